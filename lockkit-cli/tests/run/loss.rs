//! The command is gone before its lock is.

use std::time::Duration;

use libtest_mimic::Failed;

use crate::{
    Test,
    heart::{Hearts, now},
    support::{Place, Running, is_awaited, runtime, said, until},
};

const TTL: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_millis(300);

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("loss::c3_a_store_that_is_silent", silent),
        ("loss::c3_a_store_that_has_died", died),
        ("loss::c3_a_command_has_its_grace_before_the_end", grace),
        ("loss::c3_a_lock_that_an_operator_freed", freed),
    ]
}

/// A lockkit whose command and grandchild hear no SIGTERM.
pub(crate) fn beating(place: &Place) -> Running {
    let heart = Hearts::command();
    let mut command = place.lockkit(["run", "--ttl=2s", "--grace=300ms", "job", &heart]);
    Hearts::tell(&mut command, place);
    Running::start(command)
}

fn silent() -> Result<(), Failed> {
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
        // Nothing that was renewed before can last for longer: the store grants it at once.
        tokio::time::sleep(TTL).await;
        place.redis.resume().unwrap();
        let (granted, guard) = waiter.await.unwrap();
        assert!(hearts.are_gone(), "they live beside the next holder");
        assert!(hearts.last_beat() < granted);
        guard.release().await.unwrap();
    });
    let output = run.output();
    assert_eq!(output.status.code(), Some(123), "{}", said(&output));
    assert!(said(&output).contains("\"job\" was lost, and the command is stopped"), "{}", said(&output));
    Ok(())
}

fn died() -> Result<(), Failed> {
    let mut place = Place::new();
    let run = beating(&place);
    Hearts::of(&place);
    place.redis.kill()?;
    let hearts = Hearts::of(&place);
    // What was renewed last may be known a little later.
    let mut deadline = 0;
    until("their end", || {
        deadline = hearts.deadline().unwrap_or(0).max(deadline);
        hearts.are_gone().then_some(())
    });
    let last = hearts.last_beat();
    assert!(last < deadline, "they lived for {} µs too long", (last - deadline) / 1_000);
    // It is not stopped before it has to be.
    let grace = u64::try_from(GRACE.as_nanos())?;
    assert!(
        last > deadline - grace - 200_000_000,
        "they died {} ms before the end",
        (deadline - last) / 1_000_000
    );
    let output = run.output();
    assert_eq!(output.status.code(), Some(123));
    assert!(!said(&output).contains("stands still"), "its watchdog had to do it: {}", said(&output));
    Ok(())
}

/// Half of it is enough for this one.
fn grace() -> Result<(), Failed> {
    let mut place = Place::new();
    let (up, clean) = (place.path("up"), place.path("clean"));
    let line = format!(
        "trap 'sleep 0.3; echo yes > {}; exit 0' TERM; echo yes > {}; while :; do sleep 0.01; done",
        clean.display(),
        up.display()
    );
    let run = Running::start(place.lockkit(["run", "--ttl=2s", "--grace=600ms", "job", "sh", "-c", &line]));
    place.text("up");
    place.redis.kill()?;
    let output = run.output();
    assert_eq!(output.status.code(), Some(123), "{}", said(&output));
    assert!(clean.exists(), "it was killed: {}", said(&output));
    Ok(())
}

/// What can be promised: it ends soon after the next renewal has told. `lockkit unlock` asks before.
fn freed() -> Result<(), Failed> {
    let place = Place::new();
    let run = beating(&place);
    let hearts = Hearts::of(&place);
    let freed = runtime().block_on(async {
        let mutex = place.locker().await.mutex("job").unwrap();
        let token = mutex.inspect().await.unwrap().holders[0].token.unwrap();
        mutex.force_release(token).await.unwrap();
        now()
    });
    let lived = Duration::from_nanos(hearts.last_beat().saturating_sub(freed));
    assert!(lived < TTL / 3 + GRACE + Duration::from_millis(700), "they lived for {lived:?}");
    let output = run.output();
    assert_eq!(output.status.code(), Some(123));
    assert!(said(&output).contains("the store says that it is not ours any more"), "{}", said(&output));
    Ok(())
}
