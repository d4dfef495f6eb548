//! Tests `lockkit unlock`: the holder stops before the lock is freed.

use std::{fs, time::Duration};

use libtest_mimic::Failed;
use lockkit::{FencingToken, Grants, LockOptions};

use crate::{
    Test, good,
    heart::{Hearts, now},
    json,
    support::{Place, Running, run, runtime, said, until},
    told,
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("unlock::c1_a_queued_task_gets_it_when_all_of_the_job_is_gone", library_waiter),
        ("unlock::c1_a_queued_run_gets_it_when_all_of_the_job_is_gone", run_waiter),
        ("unlock::a_request_is_about_the_grants_that_it_names", aims),
        ("unlock::a_holder_that_uses_the_library_is_asked", library_holder),
        ("unlock::another_token_changes_nothing", another_token),
        ("unlock::a_holder_that_does_not_hear_is_overruled_in_the_end", deaf),
        ("unlock::now_does_not_ask", at_once),
        ("unlock::all_who_share_are_asked", shared),
        ("unlock::one_of_two_locks_has_to_be_named", two_kinds),
        ("unlock::what_is_free_is_free", free),
        ("unlock::ctrl_c_withdraws_the_request", interrupted),
    ]
}

/// A holder with a child and a grandchild that ignore SIGTERM.
fn holder(place: &Place) -> Running {
    let mut command = place.lockkit(["run", "job", "--grace=500ms", &Hearts::command()]);
    Hearts::tell(&mut command, place);
    Running::start(command)
}

fn token(place: &Place) -> String {
    let show = good(place.lockkit(["--format=json", "show", "job"]));
    json(&show)[0]["holders"][0]["token"].to_string()
}

fn waiting(place: &Place, count: u64) {
    until("the waiter", || {
        let show = json(&good(place.lockkit(["--format=json", "show", "job"])));
        (show.first()?["waiting"].as_u64()? >= count).then_some(())
    });
}

fn library_waiter() -> Result<(), Failed> {
    let place = Place::new();
    let mut holder = holder(&place);
    let hearts = Hearts::of(&place);
    let runtime = runtime();
    let url = place.url();
    let waiter = runtime.spawn(async move {
        let locker = lockkit::connect(&url).await.unwrap();
        let guard = locker.mutex("job").unwrap().lock().await.unwrap();
        let granted = now();
        guard.release().await.unwrap();
        granted
    });
    waiting(&place, 1);
    let unlock = good(place.lockkit(["unlock", "job", "--force", "--reason", "test"]));
    assert!(told(&unlock).contains("released it"), "{}", told(&unlock));
    let granted = runtime.block_on(waiter)?;
    assert!(hearts.last_beat() < granted, "the job beat after the next one was granted");
    assert_eq!(holder.end().code(), Some(123));
    Ok(())
}

/// The next holder is not asked, because the request was not for it.
fn run_waiter() -> Result<(), Failed> {
    let place = Place::new();
    let mut holder = holder(&place);
    let hearts = Hearts::of(&place);
    let file = place.path("next");
    let line = format!("cat /proc/uptime > {}; sleep 3; echo end >> {0}", file.display());
    let mut next = Running::start(place.lockkit(["run", "job", "-c", &line]));
    waiting(&place, 1);
    good(place.lockkit(["unlock", "job", "--token", &token(&place)]));
    assert_eq!(holder.end().code(), Some(123));
    assert_eq!(next.end().code(), Some(0));
    let text = fs::read_to_string(file)?;
    let (uptime, rest) = text.split_once(' ').unwrap();
    let hundredths: u64 = uptime.replace('.', "").parse()?;
    assert!(
        hearts.last_beat() < (hundredths + 1) * 10_000_000,
        "the job beat after the next one was granted"
    );
    assert!(rest.ends_with("end\n"));
    Ok(())
}

/// The request still lasts while the next holder works, as if an operator's look at the lock came
/// late.
fn aims() -> Result<(), Failed> {
    let place = Place::new();
    let runtime = runtime();
    let locker = runtime.block_on(place.locker());
    let mutex = locker.mutex("job")?;
    let before = FencingToken::new(1);
    for (grants, sleep, code) in [
        (Grants::Only(before), "2.5", 0),
        (Grants::UpTo(before), "2.5", 0),
        (Grants::UpTo(FencingToken::new(u64::MAX)), "15", 123),
    ] {
        let request = runtime.block_on(locker.request_release(mutex.name(), grants, "test"))?;
        // A holder looks for a request at least once a second.
        let run = run(place.lockkit(["run", "job", "sleep", sleep]));
        assert_eq!(run.status.code(), Some(code), "{grants:?}: {}", said(&run));
        runtime.block_on(request.withdraw())?;
    }
    Ok(())
}

fn library_holder() -> Result<(), Failed> {
    let place = Place::new();
    let runtime = runtime();
    let locker = runtime.block_on(place.locker());
    let guard = runtime.block_on(locker.mutex("job")?.lock())?;
    let unlock = Running::start(place.lockkit(["unlock", "job", "--force", "--reason=di\nsk"]));
    let reason = runtime.block_on(guard.release_requested())?;
    assert!(reason.starts_with("di?sk (lockkit unlock on "), "{reason}");
    runtime.block_on(guard.release())?;
    let unlock = unlock.output();
    assert_eq!(unlock.status.code(), Some(0));
    assert!(told(&unlock).contains("released it"), "{}", told(&unlock));
    Ok(())
}

fn another_token() -> Result<(), Failed> {
    let place = Place::new();
    let mut holder = holder(&place);
    let hearts = Hearts::of(&place);
    let before = token(&place);
    let unlock = run(place.lockkit(["unlock", "job", "--token", "7"]));
    assert_eq!(unlock.status.code(), Some(75));
    let text = said(&unlock);
    assert!(
        text.contains("no client holds \"job\" with token 7, but it is held by lockkit pid "),
        "{text}"
    );
    assert!(text.contains("nothing was done") && text.contains(&before), "{text}");
    assert_eq!(told(&unlock), "");
    assert_eq!(token(&place), before);
    assert!(!hearts.are_gone() && holder.0.try_wait()?.is_none());
    Ok(())
}

/// A holder that uses the library need not listen for requests.
fn deaf() -> Result<(), Failed> {
    let place = Place::steady();
    let runtime = runtime();
    let guard = runtime
        .block_on(async { place.locker().await.mutex("job").unwrap().lock().await.unwrap() });
    let begun = std::time::Instant::now();
    let arguments = ["--format=json", "unlock", "job", "--force", "--reason=test", "--wait=5s"];
    let unlock = good(place.lockkit(arguments));
    assert!(begun.elapsed() >= Duration::from_secs(5));
    let freed = json(&unlock);
    assert_eq!(freed[0]["how"], "forced");
    assert_eq!(freed[0]["token"], guard.fencing_token().get());
    let told = runtime.block_on(guard.release()).unwrap_err();
    assert_eq!(told.kind(), lockkit::ErrorKind::Lost);
    Ok(())
}

fn at_once() -> Result<(), Failed> {
    let place = Place::new();
    let mut holder = holder(&place);
    let hearts = Hearts::of(&place);
    let unlock = good(place.lockkit(["unlock", "job", "--force", "--reason=test", "--now"]));
    assert!(told(&unlock).contains("by force"), "{}", told(&unlock));
    assert_eq!(holder.end().code(), Some(123));
    assert!(hearts.are_gone());
    Ok(())
}

fn shared() -> Result<(), Failed> {
    let place = Place::new();
    let holders = (0..3).map(|number| {
        let line = format!("echo up > {}; sleep 600", place.path(&number.to_string()).display());
        Running::start(place.lockkit(["run", "--shared", "job", "-c", &line]))
    });
    let holders: Vec<_> = holders.collect();
    (0..3).for_each(|number| drop(place.text(&number.to_string())));
    let arguments = ["--format=json", "unlock", "job", "--force", "--reason=test"];
    let freed = json(&good(place.lockkit(arguments)));
    assert_eq!(freed.len(), 3);
    assert!(
        freed.iter().all(|one| one["how"] == "given-back" && one["kind"] == "rwlock"),
        "{freed:?}"
    );
    for mut holder in holders {
        assert_eq!(holder.end().code(), Some(123));
    }
    Ok(())
}

fn two_kinds() -> Result<(), Failed> {
    let place = Place::new();
    let _mutex = holder(&place);
    Hearts::of(&place);
    let line = format!("echo up > {}; sleep 600", place.path("up").display());
    let mut semaphore = Running::start(place.lockkit(["run", "--permits=1/2", "job", "-c", &line]));
    place.text("up");
    let unlock = run(place.lockkit(["unlock", "job", "--force", "--reason=test"]));
    assert_eq!(unlock.status.code(), Some(125));
    assert!(
        said(&unlock).contains("mutex and semaphore; choose one with --kind"),
        "{}",
        said(&unlock)
    );
    good(place.lockkit(["unlock", "job", "--kind=semaphore", "--force", "--reason=test"]));
    assert_eq!(semaphore.end().code(), Some(123));
    assert_ne!(token(&place), "null");
    Ok(())
}

fn free() -> Result<(), Failed> {
    let place = Place::new();
    let unlock = good(place.lockkit(["unlock", "job", "--force", "--reason=test"]));
    assert!(said(&unlock).contains("no client holds"), "{}", said(&unlock));
    assert_eq!(run(place.lockkit(["unlock", "job", "--token=1"])).status.code(), Some(75));
    for incomplete in [&["unlock", "job"][..], &["unlock", "job", "--force"]] {
        assert_eq!(run(place.lockkit(incomplete)).status.code(), Some(125));
    }
    Ok(())
}

fn interrupted() -> Result<(), Failed> {
    // lockkit tries to withdraw the request for less than a second.
    let place = Place::steady();
    let runtime = runtime();
    let locker = runtime.block_on(place.locker());
    let guard = runtime.block_on(locker.mutex("job")?.lock())?;
    let unlock = Running::start(place.lockkit(["unlock", "job", "--force", "--reason=test"]));
    runtime.block_on(guard.release_requested())?;
    unlock.signal(rustix::process::Signal::INT);
    let output = unlock.output();
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("withdrew"), "{}", said(&output));
    // Another request has its turn only after the first one.
    let at_once = locker.with_defaults(LockOptions::new().with_wait(Duration::ZERO))?;
    let request = at_once.request_release(guard.name(), Grants::All, "test");
    drop(runtime.block_on(request)?);
    Ok(runtime.block_on(guard.release())?)
}
