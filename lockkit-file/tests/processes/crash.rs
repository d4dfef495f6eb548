//! Tests processes that are killed.

use std::{
    io::Write as _,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_conformance::{Stay, Witness};
use lockkit_core::spi::Mode;
use lockkit_fixture::Peer;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::timeout;

use crate::parent::{SOON, Store};

const DEATHS: usize = 20;
const DEATHS_AT_LEAST: u64 = 20;
const TURNS_AT_LEAST: usize = 100;
/// Polls come once a second. Of twenty polls, hardly half would come within this time.
const AT_ONCE: Duration = Duration::from_millis(250);
/// A process that seems to be alive has three seconds to take its turn.
const PASSED_OVER: Duration = Duration::from_millis(2_500);
const STORM: Duration = Duration::from_secs(6);

/// How much longer a grant may take on a machine that is as busy as this one now.
fn slowness() -> Result<Duration, Failed> {
    let start = Instant::now();
    for _ in 0..4 {
        Command::new("true").status()?;
        let mut file = tempfile::tempfile()?;
        file.write_all(b"synced")?;
        file.sync_all()?;
    }
    Ok(start.elapsed() * 4)
}

pub(crate) fn holder() -> Result<(), Failed> {
    let store = Store::new()?;
    let mutex = store.mutex()?;
    let mut delays = Vec::new();
    let mut slow = Vec::new();
    let mut last = 0;
    for _ in 0..DEATHS {
        let holder = store.client("hold")?;
        let token: u64 = holder.hear()?.parse()?;
        assert!(token > last, "C4: token {token} follows {last}");
        let waiting = store.runtime.spawn({
            let mutex = mutex.clone();
            async move { (mutex.lock().await, Instant::now()) }
        });
        store.wait_for_waiters(1)?;
        let killed = Instant::now();
        holder.signal(Signal::SIGKILL)?;
        let (guard, granted) = store.runtime.block_on(async { timeout(SOON, waiting).await })??;
        let guard = guard?;
        last = guard.fencing_token().get();
        assert!(last > token, "C4: token {last} follows {token}");
        delays.push(granted - killed);
        slow.push(slowness()?);
        store.runtime.block_on(guard.release())?;
    }
    delays.sort();
    slow.sort();
    let median = delays[DEATHS / 2];
    let longest = delays[DEATHS - 1];
    eprintln!("kill -9 to grant: median {median:?}, longest {longest:?}");
    assert!(median < AT_ONCE + slow[DEATHS / 2], "{delays:?} on a machine as slow as {slow:?}");
    // Only this process's own session is left.
    assert_eq!(store.sessions()?.len(), 1, "sessions of the dead are left");
    Ok(())
}

pub(crate) fn waiter() -> Result<(), Failed> {
    let store = Store::new()?;
    let held = store.runtime.block_on(store.mutex()?.lock())?;
    let first = store.client("hold")?;
    store.wait_for_waiters(1)?;
    let mut second = store.client("hold")?;
    store.wait_for_waiters(2)?;
    first.kill()?;
    let before = slowness()?;
    let start = Instant::now();
    store.runtime.block_on(held.release())?;
    second.hear()?;
    let delay = start.elapsed();
    let slow = slowness()?.max(before);
    assert!(
        delay < PASSED_OVER + slow,
        "passed over after {delay:?}, and this machine is slow by {slow:?}"
    );
    second.tell("")?;
    assert_eq!(second.hear()?, "released");
    Ok(second.ends()?)
}

pub(crate) fn executed_child() -> Result<(), Failed> {
    let store = Store::new()?;
    let holder = store.client("hold-with-child")?;
    let told = holder.hear()?;
    let child = told.split(' ').next_back().ok_or("no child")?.parse()?;
    holder.signal(Signal::SIGKILL)?;
    let granted = store.runtime.block_on(store.mutex()?.lock_timeout(SOON));
    // The child can be killed, so it outlived its parent.
    kill(Pid::from_raw(child), Signal::SIGKILL)?;
    drop(granted?);
    Ok(())
}

/// Three processes compete. One after the other is killed at some instant.
pub(crate) fn storm() -> Result<(), Failed> {
    let store = Store::new()?;
    let start = |_| store.client("storm");
    let mut clients = (0..3).map(start).collect::<Result<Vec<_>, _>>()?;
    for client in &mut clients {
        assert_eq!(client.hear()?, "ready");
    }
    let witness = Witness::default();
    let begin = Instant::now();
    let mut deaths = 0_u64;
    // The test continues until there were enough deaths and turns.
    let is_enough = |deaths| deaths > DEATHS_AT_LEAST && witness.count() > TURNS_AT_LEAST;
    while begin.elapsed() < STORM || (begin.elapsed() < SOON && !is_enough(deaths)) {
        thread::sleep(Duration::from_micros(deaths * 7_919 % 30_000));
        bury(clients.remove(0), &witness, begin)?;
        deaths += 1;
        let next = store.client("storm")?;
        assert_eq!(next.hear()?, "ready");
        clients.push(next);
    }
    clients.into_iter().try_for_each(|client| bury(client, &witness, begin))?;
    let turns = witness.verify();
    eprintln!("{deaths} deaths, {turns} turns");
    assert!(is_enough(deaths), "{deaths} deaths, {turns} turns");
    // The lock is free and its record is whole, whatever the last process did.
    drop(store.runtime.block_on(store.mutex()?.try_lock())?.ok_or("a dead one holds it")?);
    Ok(())
}

/// Kills a client, and records when it held the lock according to its reports.
fn bury(client: Peer, witness: &Witness, zero: Instant) -> Result<(), Failed> {
    for line in client.kill()? {
        let words: Vec<_> = line.split(' ').collect();
        let [token, from, until] = words[..] else {
            return Err(format!("what is {line:?}?").into());
        };
        let at = |nanos: &str| Ok::<_, Failed>(zero + Duration::from_nanos(nanos.parse()?));
        let token = token.parse()?;
        witness.record(Stay {
            token,
            mode: Mode::Exclusive,
            asked: None,
            from: at(from)?,
            until: at(until)?,
        });
    }
    Ok(())
}
