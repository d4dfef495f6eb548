//! A lockkit that can't look after its command any more.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use rustix::process::Signal;

use crate::{
    Test,
    heart::{Hearts, now},
    loss::beating,
    support::{Place, is_alive, run, runtime, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("dead::c9_one_that_is_killed_takes_its_job_with_it", killed),
        ("dead::c3_one_that_is_stopped", stopped),
        ("dead::a_watchdog_that_is_killed_is_replaced", no_watchdog),
    ]
}

fn killed() -> Result<(), Failed> {
    let place = Place::new();
    let mut lockkit = beating(&place);
    let hearts = Hearts::of(&place);
    let file = place.text("deadline-file");
    runtime().block_on(async {
        let mutex = place.locker().await.mutex("job").unwrap();
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        let killed = (Instant::now(), now());
        lockkit.signal(Signal::KILL);
        let lived = Duration::from_nanos(hearts.last_beat().saturating_sub(killed.1));
        assert!(lived < Duration::from_millis(500), "they lived for {lived:?}");
        waiting.await.unwrap().release().await.unwrap();
        let free = killed.0.elapsed();
        assert!(free < Duration::from_millis(2_000 + 250 + 500), "the next one had to wait for {free:?}");
    });
    lockkit.end();
    until("the end of its folder", || (!std::path::Path::new(file.trim()).exists()).then_some(()));
    Ok(())
}

fn stopped() -> Result<(), Failed> {
    let place = Place::new();
    let mut lockkit = beating(&place);
    let hearts = Hearts::of(&place);
    lockkit.signal(Signal::STOP);
    let deadline = hearts.deadline().unwrap();
    let last = hearts.last_beat();
    assert!(last < deadline, "they lived for {} µs too long", (last - deadline) / 1_000);
    // Once it goes on, it knows.
    lockkit.signal(Signal::CONT);
    assert_eq!(lockkit.end().code(), Some(123));
    // And the lock is free.
    assert_eq!(run(place.lockkit(["run", "-w", "5s", "job", "true"])).status.code(), Some(0));
    Ok(())
}

fn no_watchdog() -> Result<(), Failed> {
    let place = Place::new();
    let mut lockkit = beating(&place);
    let hearts = Hearts::of(&place);
    let lockkit_pid = lockkit.pid().as_raw_nonzero().get();
    let watchdog = || watchdog_of(lockkit_pid);
    let first = until("the watchdog", watchdog);
    rustix::process::kill_process(rustix::process::Pid::from_raw(first).unwrap(), Signal::KILL)?;
    until("another watchdog", || watchdog().filter(|pid| *pid != first && !is_alive(first)));
    lockkit.signal(Signal::KILL);
    hearts.last_beat();
    lockkit.end();
    Ok(())
}

fn watchdog_of(lockkit: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{lockkit}/task/{lockkit}/children")).ok()?;
    let mut pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.find(|pid: &i32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains("__watchdog") && is_alive(*pid)
    })
}
