//! C12 for crowds on one name. The tests measure the cost of a grant when many tasks of one process
//! want the name, and whether processes get equal shares of it.
//!
//! The test binary starts itself again for the other processes.

mod cost;
mod member;
mod shares;
mod store;

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_fixture::role;

use crate::store::Store;

/// A store, and the bounds for its requests and for the shares of its waiters.
struct Bed {
    name: &'static str,
    start: fn() -> Result<Store, Failed>,
    cost: cost::Bounds,
    shares: shares::Bounds,
}

fn main() -> Result<(), Failed> {
    if let Some([url, tasks, end]) = role().as_deref() {
        return member::run(url, tasks.parse()?, end.parse()?);
    }
    let mut arguments = Arguments::from_args();
    // These tests count requests, and take all of the machine.
    arguments.test_threads = Some(1);
    let beds = [
        Bed {
            name: "redis",
            start: Store::redis,
            cost: cost::Bounds { gated: 1.1, ungated: 2.1, shared: Some(2.2) },
            shares: shares::Bounds { per_turn: 2.0, unequal: 1.3 },
        },
        Bed {
            name: "zookeeper",
            start: Store::zookeeper,
            cost: cost::Bounds { gated: 3.3, ungated: 5.3, shared: Some(3.5) },
            shares: shares::Bounds { per_turn: 5.2, unequal: 1.3 },
        },
        Bed {
            name: "mariadb",
            start: || Store::sql("optimistic"),
            // The same bounds as those of an uncontended pair.
            cost: cost::Bounds { gated: 1.1, ungated: 5.0, shared: Some(6.0) },
            // This store has no queue: the waiter that looks first is next, and on a busy machine
            // chance decides which waiter that is. A process that never yields leaves the others a
            // hundredth.
            shares: shares::Bounds { per_turn: 3.0, unequal: 6.0 },
        },
        Bed {
            name: "mariadb-pessimistic",
            start: || Store::sql("pessimistic"),
            cost: cost::Bounds { gated: 4.3, ungated: 5.2, shared: None },
            shares: shares::Bounds { per_turn: 6.0, unequal: 1.3 },
        },
    ];
    let mut trials = Vec::new();
    for Bed { name, start, cost, shares } in beds {
        trials.push(Trial::test(
            format!("{name}::c12_a_grant_among_64_tasks_costs_less_by_the_gate"),
            move || cost::measure(name, &start()?, cost),
        ));
        if let Some(most) = cost.shared {
            trials.push(Trial::test(
                format!("{name}::c12_a_shared_grant_among_64_tasks_costs_no_wait_in_the_store"),
                move || cost::measure_shared(name, &start()?, most),
            ));
        }
        trials.push(Trial::test(
            format!("{name}::c1_c4_c12_eight_processes_get_equal_shares"),
            move || shares::measure(name, &start()?, shares),
        ));
    }
    trials.push(Trial::test(
        "redis-without-gate::c1_c4_c12_eight_processes_get_equal_shares",
        || {
            let bounds = shares::Bounds { per_turn: 2.2, unequal: 1.1 };
            shares::measure("redis-without-gate", &Store::redis_without_gate()?, bounds)
        },
    ));
    libtest_mimic::run(&arguments, trials).exit();
}
