//! Measures how several processes share a lock, and what a turn costs the store.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use lockkit::spi::Mode;
use lockkit_conformance::{Stay, Witness};
use lockkit_fixture::Peer;
use lockkit_torture::clock::now;
use tokio::runtime::Runtime;

use crate::store::Store;

const PROCESSES: usize = 8;
const TASKS: usize = 8;
/// How many turns in a row a process may keep the lock.
const ROUND: usize = 17;
const ROUNDS: usize = 10;
/// The time from the start of the processes, which also includes their start-up.
const TIME: Duration = Duration::from_secs(7);

/// The most requests that a turn may take, and how unequal the processes' shares may be.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) per_turn: f64,
    pub(crate) unequal: f64,
}

/// Catches a process that keeps the lock to itself, or that yields for too long. Also catches
/// transfers that overlap, tokens that fall between processes, and processes that poll for a lock
/// that another process holds.
pub(crate) fn measure(name: &str, store: &Store, bounds: Bounds) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let before = runtime.block_on(store.requests())?;
    let end = now() + u64::try_from(TIME.as_nanos())?;
    let member = || Peer::start(&format!("{} {TASKS} {end}", store.url()));
    let members = (0..PROCESSES).map(|_| member()).collect::<Result<Vec<_>, _>>()?;
    let witness = Witness::default();
    let zero = Instant::now();
    // The instants at which each process's turns began.
    let mut begins = vec![Vec::new(); PROCESSES];
    let mut ready = 0;
    for (member, begins) in members.into_iter().zip(&mut begins) {
        loop {
            match *member.hear()?.split(' ').collect::<Vec<_>>() {
                ["ready", at] => ready = ready.max(at.parse()?),
                ["held", token, from, to] => {
                    let [from, to] = [from.parse()?, to.parse()?];
                    begins.push(from);
                    witness.record(Stay {
                        token: token.parse()?,
                        mode: Mode::Exclusive,
                        asked: None,
                        from: zero + Duration::from_nanos(from),
                        until: zero + Duration::from_nanos(to),
                    });
                }
                ["over"] => break,
                _ => return Err("could not parse the answer of a process".into()),
            }
        }
        member.ends()?;
    }
    // The count includes the requests that the processes need to connect and to disconnect.
    let requests = runtime.block_on(store.requests())? - before;
    let turns = witness.verify();
    let shares: Vec<usize> = begins
        .iter()
        .map(|begins| begins.iter().filter(|from| (ready..end).contains(*from)).count())
        .collect();
    let fewest = *shares.iter().min().unwrap();
    let largest = *shares.iter().max().unwrap();
    let seconds = Duration::from_nanos(end.saturating_sub(ready)).as_secs_f64();
    let [fewest_f, largest_f, all_f] = [fewest, largest, shares.iter().sum()].map(float);
    let unequal = largest_f / fewest_f.max(1.0);
    let per_turn = float(usize::try_from(requests)?) / float(turns);
    println!(
        "{name}: {shares:?} turns in {seconds:.1} s, {:.0}/s, most / least {unequal:.2}, \
         {per_turn:.3} requests a turn",
        all_f / seconds
    );
    assert!(fewest >= ROUND * ROUNDS, "too few turns to judge: {shares:?}");
    assert!(unequal <= bounds.unequal, "C12: unequal shares: {shares:?}");
    assert!(per_turn <= bounds.per_turn, "{per_turn:.3} requests a turn");
    Ok(())
}

fn float(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}
