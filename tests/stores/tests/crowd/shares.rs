//! Who of several processes gets how much, and what a turn costs the store.

use std::{
    env, thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::Leashed;
use lockkit_torture::clock::now;
use tokio::runtime::Runtime;

use crate::{member, store::Store};

const PROCESSES: usize = 8;
const TASKS: usize = 8;
/// A process may keep the lock for so many turns.
const ROUND: usize = 17;
const ROUNDS: usize = 10;
/// From the start of the processes, which takes them a part of it.
const TIME: Duration = Duration::from_secs(7);
/// What must happen, happens within this.
const SOON: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct Turn {
    token: u64,
    from: u64,
    to: u64,
    process: usize,
}

/// How few requests a turn shall take, and how unequal the processes' shares may be.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) per_turn: f64,
    pub(crate) unequal: f64,
}

/// Catches a process that keeps the lock to itself, one that stands back too long, hand-overs that overlap, tokens
/// that fall between processes, and processes that ask again and again for what another one has.
pub(crate) fn measure(name: &str, store: &Store, bounds: Bounds) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let before = runtime.block_on(store.requests())?;
    let folder = tempfile::tempdir()?;
    let end = now() + u64::try_from(TIME.as_nanos())?;
    let words = [member::ROLE.to_owned(), store.url(), TASKS.to_string(), end.to_string()];
    let mut members = Vec::new();
    for process in 0..PROCESSES {
        let log = folder.path().join(process.to_string());
        members.push(Leashed::spawn(&env::current_exe()?, &words, &log)?);
    }
    let late = Instant::now() + TIME + SOON;
    let (mut turns, mut ready) = (Vec::new(), 0);
    for (process, member) in members.iter_mut().enumerate() {
        while member.is_running()? && Instant::now() < late {
            thread::sleep(Duration::from_millis(20));
        }
        let told = member.log();
        if told.lines().last() != Some("bye") {
            return Err(format!("process {process} did not end well; it wrote: {}", tail(&told)).into());
        }
        for line in told.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["ready", at] => ready = ready.max(at.parse()?),
                ["held", token, from, to] => {
                    let [token, from, to] = [token.parse()?, from.parse()?, to.parse()?];
                    turns.push(Turn { token, from, to, process });
                }
                _ => {}
            }
        }
    }
    // With what the processes need to connect and to go.
    let requests = runtime.block_on(store.requests())? - before;
    turns.sort_by_key(|turn| turn.from);
    for pair in turns.windows(2) {
        let [a, b] = [pair[0], pair[1]];
        assert!(a.to <= b.from, "C1: {} had it until {}, {} from {}", a.process, a.to, b.process, b.from);
        assert!(a.token < b.token, "C4: {} after {}", b.token, a.token);
    }
    let mut shares = [0_usize; PROCESSES];
    for turn in turns.iter().filter(|turn| (ready..end).contains(&turn.from)) {
        shares[turn.process] += 1;
    }
    let (fewest, largest) = (*shares.iter().min().unwrap(), *shares.iter().max().unwrap());
    let seconds = Duration::from_nanos(end.saturating_sub(ready)).as_secs_f64();
    let [fewest_f, largest_f, all_f] = [fewest, largest, shares.iter().sum()].map(float);
    let unequal = largest_f / fewest_f.max(1.0);
    let per_turn = float(usize::try_from(requests)?) / float(turns.len());
    println!(
        "{name}: {shares:?} turns in {seconds:.1} s, {:.0}/s, most / least {unequal:.2}, {per_turn:.3} requests a turn",
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

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
