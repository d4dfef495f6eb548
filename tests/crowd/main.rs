//! C12 for crowds on one name: what a grant costs the store when many tasks of one process want it, and whether processes
//! get equal shares of it.
//!
//! The test binary starts itself again as the processes; its arguments tell it so.

mod cost;
mod member;
mod shares;
mod store;

use std::env;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{shares::Bounds, store::Store};

/// A store, and what it and its waiters may be asked to bear.
type Bed = (&'static str, fn() -> Result<Store, Failed>, cost::Bound, Bounds);

fn main() -> Result<(), Failed> {
    let words: Vec<_> = env::args().skip(1).collect();
    if let [role, url, tasks, end] = &*words
        && role == member::ROLE
    {
        return member::run(url, tasks.parse()?, end.parse()?);
    }
    let mut arguments = Arguments::from_args();
    // They count, and take all of the machine.
    arguments.test_threads = Some(1);
    let beds: [Bed; 4] = [
        ("redis", Store::redis, cost::Bound::PerGrant(1.1), Bounds { per_turn: 2.0, unequal: 1.3 }),
        ("zookeeper", Store::zookeeper, cost::Bound::OfUngated(0.8), Bounds { per_turn: 5.2, unequal: 1.3 }),
        // Nobody queues in this store: whoever looks first, is next.
        (
            "mariadb",
            || Store::sql("optimistic"),
            cost::Bound::OfUngated(0.8),
            Bounds { per_turn: 3.0, unequal: 2.0 },
        ),
        (
            "mariadb-pessimistic",
            || Store::sql("pessimistic"),
            cost::Bound::OfUngated(0.8),
            Bounds { per_turn: 6.0, unequal: 1.3 },
        ),
    ];
    let mut trials = Vec::new();
    for (name, start, cost, bounds) in beds {
        trials.push(Trial::test(
            format!("{name}::c12_a_grant_among_64_tasks_costs_less_by_the_gate"),
            move || cost::measure(name, &start()?, cost),
        ));
        trials.push(Trial::test(format!("{name}::c1_c4_c12_eight_processes_get_equal_shares"), move || {
            shares::measure(name, &start()?, bounds)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
