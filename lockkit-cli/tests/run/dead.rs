//! Tests a lockkit that can't look after its command any more.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::RwLock,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::{is_alive, state_of};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::{
    Test,
    heart::{Hearts, now},
    loss::{TTL, beating},
    procfs::watchdog_of,
    support::{PATIENCE, Place, Running, bare, run, runtime, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("dead::c9_one_that_is_killed_takes_its_job_with_it", killed),
        ("dead::c9_one_that_is_killed_keeps_its_files_lock_until_its_job_is_gone", killed_on_files),
        ("dead::c3_one_that_is_stopped", stopped),
        (
            "dead::c3_a_deadline_that_passes_while_the_watchdog_looks_is_not_missed",
            stopped_in_a_look,
        ),
        ("dead::a_watchdog_that_is_killed_is_replaced", no_watchdog),
        ("dead::a_watchdog_that_is_gone_or_stopped_is_missed_at_once", no_watchdog_for_a_moment),
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
        let killed = now();
        lockkit.signal(Signal::KILL);
        let lived = Duration::from_nanos(hearts.last_beat().saturating_sub(killed));
        // They die long before their lease ends.
        assert!(lived < TTL / 2, "they lived for {lived:?}");
        // The lease ends because no process renews it.
        timeout(PATIENCE, waiting)
            .await
            .expect("it is held for ever")
            .unwrap()
            .release()
            .await
            .unwrap();
    });
    lockkit.end();
    until("the end of its folder", || (!Path::new(file.trim()).exists()).then_some(()));
    Ok(())
}

/// Looks at hundreds of processes take much time. Tests that need a kill in time must not run
/// beside them.
pub(crate) static CROWD: RwLock<()> = RwLock::new(());

/// The system frees the files of a process when the process ends. Only after that does the watchdog
/// have something to kill.
fn killed_on_files() -> Result<(), Failed> {
    let _crowd = CROWD.write();
    let place = Place::new();
    let idle = idle_processes();
    let url = format!("file://{}", place.path("locks").display());
    let runtime = runtime();
    for round in 0..10 {
        let mut command = bare(["--url", &url, "run", "job", &Hearts::command()]);
        Hearts::tell(&mut command, &place);
        let mut lockkit = Running::start(command);
        let hearts = Hearts::of(&place);
        let mutex = runtime.block_on(lockkit::connect(&url))?.mutex("job")?;
        let waiting = runtime.spawn({
            let mutex = mutex.clone();
            async move {
                let guard = mutex.lock().await.unwrap();
                (now(), guard)
            }
        });
        until("a waiter", || {
            runtime.block_on(mutex.inspect()).unwrap().waiters.filter(|waiters| *waiters > 0)
        });
        lockkit.signal(Signal::KILL);
        until("the next one", || waiting.is_finished().then_some(()));
        let (granted, guard) = runtime.block_on(waiting)?;
        let last = hearts.last_beat();
        assert!(
            last < granted,
            "round {round}: they lived for {} µs beside the next",
            (last - granted) / 1_000
        );
        runtime.block_on(guard.release())?;
        lockkit.end();
        hearts.forget();
    }
    drop(idle);
    Ok(())
}

fn stopped() -> Result<(), Failed> {
    let _no_crowd = CROWD.read();
    let place = Place::new();
    let mut lockkit = beating(&place);
    let hearts = Hearts::of(&place);
    lockkit.signal(Signal::STOP);
    hearts.assert_in_time(lockkit.pid());
    // When lockkit continues, it knows that.
    lockkit.signal(Signal::CONT);
    assert_eq!(lockkit.end().code(), Some(123));
    // The lock is free, too.
    assert_eq!(run(place.lockkit(["run", "-w", "30s", "job", "true"])).status.code(), Some(0));
    Ok(())
}

/// On a busy machine the test may miss the watchdog's look, and begins again.
fn stopped_in_a_look() -> Result<(), Failed> {
    const LONGEST: Duration = Duration::from_secs(240);
    let _crowd = CROWD.write();
    let place = Place::steady();
    let _idle = idle_processes();
    let began = Instant::now();
    while began.elapsed() < LONGEST {
        if is_stopped_in_a_look(&place)? {
            return Ok(());
        }
    }
    Err("the test saw no look of the watchdog before the deadline".into())
}

/// The test stops the watchdog in a look at all processes, and continues it after the deadline. A
/// watchdog that then waited for its next look would wait for minutes: a hundred times as long as
/// this look took. Returns `false` if the test saw no look before the deadline.
fn is_stopped_in_a_look(place: &Place) -> Result<bool, Failed> {
    let mut lockkit = beating(place);
    let hearts = Hearts::of(place);
    let lockkit_pid = lockkit.pid().as_raw_nonzero().get();
    let watchdog = until("the watchdog", || watchdog_of(lockkit_pid));
    lockkit.signal(Signal::STOP);
    until("that lockkit stands", || (state_of(lockkit_pid) == Some('T')).then_some(()));
    let watchdog_pid = Pid::from_raw(watchdog).unwrap();
    loop {
        if hearts.are_gone() {
            lockkit.signal(Signal::CONT);
            lockkit.end();
            hearts.forget();
            return Ok(false);
        }
        if looks(watchdog) {
            kill_process(watchdog_pid, Signal::STOP)?;
            until("that the watchdog stands", || (state_of(watchdog) == Some('T')).then_some(()));
            if looks(watchdog) {
                break;
            }
            kill_process(watchdog_pid, Signal::CONT)?;
        }
        thread::sleep(Duration::from_millis(1));
    }
    until("the deadline", || hearts.deadline().filter(|deadline| *deadline <= now()));
    kill_process(watchdog_pid, Signal::CONT)?;
    hearts.last_beat();
    lockkit.signal(Signal::CONT);
    assert_eq!(lockkit.end().code(), Some(123));
    Ok(true)
}

/// Whether the watchdog is looking at all processes: it has their folder open.
fn looks(watchdog: i32) -> bool {
    let open = fs::read_dir(format!("/proc/{watchdog}/fd")).unwrap();
    open.filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .any(|path| path == Path::new("/proc"))
}

/// Processes that make a look at all processes slow.
fn idle_processes() -> Vec<Running> {
    let idle = |_| {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        Running::start(sleep)
    };
    (0..300).map(idle).collect()
}

fn no_watchdog() -> Result<(), Failed> {
    let place = Place::new();
    let mut lockkit = beating(&place);
    let hearts = Hearts::of(&place);
    let lockkit_pid = lockkit.pid().as_raw_nonzero().get();
    let watchdog = || watchdog_of(lockkit_pid);
    let first = until("the watchdog", watchdog);
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL)?;
    until("another watchdog", || watchdog().filter(|pid| *pid != first && !is_alive(first)));
    lockkit.signal(Signal::KILL);
    hearts.last_beat();
    lockkit.end();
    Ok(())
}

/// lockkit notices this even if it rarely looks at the lease.
fn no_watchdog_for_a_moment() -> Result<(), Failed> {
    let place = Place::new();
    let up = place.path("up");
    let line = format!("echo up > {}; sleep 600", up.display());
    let lockkit =
        Running::start(place.lockkit(["-q", "run", "--ttl=5m", "job", "sh", "-c", &line]));
    place.text("up");
    let of = lockkit.pid().as_raw_nonzero().get();
    // This is far less than the time until the next look at the lease.
    let bound = Duration::from_secs(30);
    for _ in 0..3 {
        let first = until("the watchdog", || watchdog_of(of));
        let began = Instant::now();
        kill_process(Pid::from_raw(first).unwrap(), Signal::KILL)?;
        until("another watchdog", || watchdog_of(of).filter(|pid| *pid != first));
        assert!(began.elapsed() < bound, "another one came after {:?}", began.elapsed());
    }
    let watchdog = until("the watchdog", || watchdog_of(of));
    until("its start", || (state_of(watchdog) == Some('S')).then_some(()));
    let began = Instant::now();
    kill_process(Pid::from_raw(watchdog).unwrap(), Signal::STOP)?;
    // The watchdog may not have stopped yet at the first looks.
    let mut looks = 0;
    let mut stood = Duration::ZERO;
    until("that it goes on", || {
        looks += 1;
        if state_of(watchdog) == Some('T') {
            (looks, stood) = (0, began.elapsed());
        }
        (looks == 50).then_some(())
    });
    assert!(stood < bound, "it went on after {stood:?}");
    Ok(())
}

/// Waits until the watchdog knows the present processes: for a look that begins after this call.
pub(crate) fn until_known(lockkit: i32) {
    let watchdog = until("the watchdog", || watchdog_of(lockkit));
    // The watchdog has begun, and waits.
    until("its start", || (state_of(watchdog) == Some('S')).then_some(()));
    let waits = || {
        let status = fs::read_to_string(format!("/proc/{watchdog}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let begun = waits();
    // The watchdog may also wake for two orders, the group and a renewal, without a look.
    until("a look of the watchdog", || (waits() >= begun + 3).then_some(()));
}
