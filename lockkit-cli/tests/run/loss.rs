//! Tests that the command ends before its lock does.

use std::time::Duration;

use libtest_mimic::Failed;
use lockkit_fixture::state_of;
use serde_json::Value;

#[cfg(feature = "zk")]
use crate::support::{bare, run};
use crate::{
    Test,
    dead::CROWD,
    heart::{Hearts, InTime, now},
    support::{Place, Running, is_awaited, runtime, said, until},
};

/// A server or a lockkit process that stalls for less than half of this loses no lock. A watchdog
/// that looked only once a second would be half a second late.
pub(crate) const TTL: Duration = Duration::from_millis(11_500);
/// lockkit kills the command this much before the deadline, and its watchdog half as much.
const MARGIN: Duration = Duration::from_millis(115);

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("loss::c3_a_store_that_is_silent", silent),
        ("loss::c3_a_store_that_has_died", died),
        ("loss::c3_a_command_has_its_grace_before_the_end", grace),
        ("loss::c3_a_lock_that_an_operator_freed", freed),
        #[cfg(feature = "zk")]
        ("loss::c10_a_command_outlives_the_lease_of_its_grant_on_zookeeper", outlives),
    ]
}

/// A lockkit whose command and grandchild ignore SIGTERM. The file `status` has the outcome.
pub(crate) fn beating(place: &Place) -> Running {
    let heart = Hearts::command();
    let status = format!("--status-file={}", place.path("status").display());
    let mut command =
        place.lockkit(["run", &status, "--ttl=11500ms", "--grace=300ms", "job", &heart]);
    Hearts::tell(&mut command, place);
    Running::start(command)
}

/// A grant lasts for what is left of the session. Before each renewal, two fifths of the session
/// timeout are left. The grace is a third of it, as by default with a shorter session.
#[cfg(feature = "zk")]
fn outlives() -> Result<(), Failed> {
    let _no_crowd = CROWD.read();
    // The longest session is twenty ticks. A short one would end if the machine stalled.
    let options = lockkit_fixture::ZooKeeperOptions::default().with_tick(Duration::from_secs(3));
    let mut server = lockkit_fixture::ZooKeeperServer::start_with(options)?;
    server.never_stall();
    let mut command = bare(["run", "--ttl=60s", "--grace=20s", "job", "sleep", "38"]);
    command.env("LOCKKIT_URL", format!("zk://{}/?session_timeout=60s", server.addr()));
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    Ok(())
}

fn silent() -> Result<(), Failed> {
    let _no_crowd = CROWD.read();
    let place = Place::new();
    let run = beating(&place);
    let hearts = Hearts::of(&place);
    runtime().block_on(async {
        let mutex = place.locker().await.mutex("job").unwrap();
        let waiter = tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            (now(), guard)
        });
        let locker = place.locker().await;
        let mutex = locker.mutex("job").unwrap();
        is_awaited(&mutex).await;
        place.redis.pause().unwrap();
        let paused = now();
        let InTime { deadline, last, .. } = hearts.assert_in_time(run.pid());
        // No earlier renewal can last longer than this.
        let lasts = Duration::from_nanos(deadline.saturating_sub(paused));
        assert!(lasts < TTL, "the deadline is {lasts:?} after the last answer of the store");
        tokio::time::sleep(TTL.saturating_sub(Duration::from_nanos(now() - paused))).await;
        place.redis.resume().unwrap();
        // The store grants the lock at once.
        let (granted, guard) = waiter.await.unwrap();
        assert!(last < granted);
        guard.release().await.unwrap();
    });
    let output = run.output();
    assert_eq!(output.status.code(), Some(123), "{}", said(&output));
    assert!(
        said(&output).contains("\"job\" was lost, so lockkit stops the command"),
        "{}",
        said(&output)
    );
    Ok(())
}

fn died() -> Result<(), Failed> {
    let _no_crowd = CROWD.read();
    let mut place = Place::new();
    let run = beating(&place);
    Hearts::of(&place);
    place.redis.kill()?;
    let hearts = Hearts::of(&place);
    let InTime { deadline, last, gap, mut busy } = hearts.assert_in_time(run.pid());
    until("the end of lockkit", || {
        busy.measure();
        (state_of(run.pid().as_raw_nonzero().get()) == Some('Z')).then_some(())
    });
    // The command is not stopped earlier than necessary. A renewal failed long before.
    let before = Duration::from_nanos(deadline.saturating_sub(last));
    assert!(before < TTL / 4 + gap, "they died {before:?} before the end");
    let busy = busy.time();
    assert!(
        before + busy > MARGIN,
        "its watchdog had to kill them, {before:?} before the end; lockkit was busy for {busy:?}"
    );
    let output = run.output();
    assert_eq!(output.status.code(), Some(123));
    let lines: Vec<_> = said(&output).lines().map(str::to_owned).collect();
    let why = "no server listens there";
    // The first renewal may still meet the connection that breaks.
    let warned = lines.iter().position(|line| line.contains("could not renew \"job\": "));
    let lost = lines.iter().position(|line| {
        line.contains("was lost, so lockkit stops the command") && line.contains(why)
    });
    assert!(
        warned.is_some() && warned < lost,
        "the holder is told why, and before it is stopped: {lines:?}"
    );
    let status: Value = serde_json::from_str(&place.text("status"))?;
    assert_eq!((&status["outcome"], &status["code"]), (&"lost".into(), &123.into()), "{status}");
    assert!(status["reason"].as_str().unwrap().contains(why), "{status}");
    Ok(())
}

/// This command needs only a tenth of its grace.
fn grace() -> Result<(), Failed> {
    let mut place = Place::new();
    let up = place.path("up");
    let clean = place.path("clean");
    let line = format!(
        "trap 'sleep 0.5; echo yes > {}; exit 0' TERM; echo yes > {}; while :; do sleep 0.01; done",
        clean.display(),
        up.display()
    );
    let run =
        Running::start(place.lockkit(["run", "--ttl=20s", "--grace=5s", "job", "sh", "-c", &line]));
    place.text("up");
    place.redis.kill()?;
    let output = run.output();
    assert_eq!(output.status.code(), Some(123), "{}", said(&output));
    assert!(clean.exists(), "it was killed: {}", said(&output));
    Ok(())
}

/// Tests what lockkit promises here: the command ends soon after the next renewal reports the loss.
/// `lockkit unlock` would ask first.
fn freed() -> Result<(), Failed> {
    let place = Place::new();
    let run = beating(&place);
    let hearts = Hearts::of(&place);
    let freed = runtime().block_on(async {
        let mutex = place.locker().await.mutex("job").unwrap();
        let token = mutex.inspect().await.unwrap().holders[0].token.unwrap();
        assert_eq!(mutex.force_release(token).await.unwrap(), lockkit::Released::Freed);
        now()
    });
    let lived = Duration::from_nanos(hearts.last_beat().saturating_sub(freed));
    // A server may stall meanwhile, but the lease would end later than this.
    assert!(lived < TTL * 2 / 3, "they lived for {lived:?}");
    let output = run.output();
    assert_eq!(output.status.code(), Some(123));
    assert!(
        said(&output).contains("the store reports that this claim no longer has it"),
        "{}",
        said(&output)
    );
    Ok(())
}
