//! Tests `lockkit once`: which slots are done, which are tried again, and which never begin twice.

use std::{
    fs,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit::{Kind, LockName};
use rustix::process::Signal;

use crate::{
    Test, good, json,
    support::{Place, Running, run, runtime, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("once::a_slot_is_done_by_the_first_that_succeeds", succeeds),
        ("once::who_has_waited_for_the_lock_finds_the_slot_done", waits),
        ("once::a_run_that_failed_is_tried_again_or_not", fails),
        ("once::c9_a_crash_leaves_the_slot_open_or_not", crashes),
        ("once::a_slot_whose_lock_was_lost_stays_open", loses),
        ("once::keys_are_never_forgotten_for_want_of_room", full),
        ("once::a_clock_that_was_far_ahead_is_told_of", ahead),
        ("once::a_foreign_note_is_left_alone", foreign),
        ("once::what_was_never_begun_is_not_done", not_begun),
        ("once::a_key_is_kept_from_the_end_of_its_run", kept),
        ("once::a_busy_lock_is_waited_for_as_told", busy),
    ]
}

/// A command line that writes one line for each of its runs.
fn line(place: &Place, then: &str) -> String {
    format!("echo \"$LOCKKIT_SLOT\" >> {}; {then}", place.path("runs").display())
}

fn runs(place: &Place) -> Vec<String> {
    let text = fs::read_to_string(place.path("runs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn succeeds() -> Result<(), Failed> {
    let place = Place::new();
    let once = |slot: &str| {
        place.lockkit(["-v", "once", "job", "--slot", slot, "-c", &line(&place, "true")])
    };
    good(once("v1"));
    let again = good(once("v1"));
    assert!(said(&again).contains("slot v1 is done by process "), "{}", said(&again));
    good(once("v2"));
    good(once("v1"));
    assert_eq!(runs(&place), ["v1", "v2"]);
    Ok(())
}

/// Catches a once that repeats a slot which another run did while it waited.
fn waits() -> Result<(), Failed> {
    let place = Place::new();
    let go = place.path("go");
    let line = line(&place, &format!("until [ -e {} ]; do sleep 0.01; done", go.display()));
    let once = || Running::start(place.lockkit(["once", "job", "--slot", "v1", "-c", &line]));
    let mut first = once();
    until("the run", || (runs(&place).len() == 1).then_some(()));
    let mut second = once();
    until("the waiter", || {
        let show = json(&good(place.lockkit(["--format=json", "show", "job"])));
        (show.first()?["waiting"] == 1).then_some(())
    });
    fs::write(go, "")?;
    assert_eq!((first.end().code(), second.end().code()), (Some(0), Some(0)));
    assert_eq!(runs(&place), ["v1"]);
    Ok(())
}

fn fails() -> Result<(), Failed> {
    let place = Place::new();
    for (on_fail, expected) in [("retry", 2), ("done", 1)] {
        let once = || {
            let line = line(&place, "exit 3");
            place.lockkit(["once", on_fail, "--slot", on_fail, "--on-fail", on_fail, "-c", &line])
        };
        assert_eq!(run(once()).status.code(), Some(3));
        assert_eq!(run(once()).status.code(), Some(if expected == 2 { 3 } else { 0 }));
        let count = runs(&place).iter().filter(|slot| *slot == on_fail).count();
        assert_eq!(count, expected, "{on_fail}");
    }
    Ok(())
}

fn crashes() -> Result<(), Failed> {
    let place = Place::steady();
    for (on_fail, expected) in [("retry", 2), ("done", 1)] {
        let count = || runs(&place).iter().filter(|slot| *slot == on_fail).count();
        let once = |then: &str| {
            let line = line(&place, then);
            let job = ["--grace=200ms", "--on-fail", on_fail, "-c", &line];
            place.lockkit(["once", on_fail, "--slot", on_fail].into_iter().chain(job))
        };
        let mut first = Running::start(once("sleep 600"));
        until("the run", || (count() == 1).then_some(()));
        first.signal(Signal::KILL);
        first.end();
        // This ends the lease in the store. Until then no observer can know the outcome.
        place.redis.ask(["DEL", &format!("lockkit:mutex:{{{on_fail}}}")])?;
        good(once("true"));
        assert_eq!(count(), expected, "{on_fail}");
        let history = crate::told(&good(place.lockkit(["history", on_fail])));
        assert!(history.contains("did not finish"), "{history}");
    }
    Ok(())
}

/// The command takes its own lock away, and then succeeds.
fn loses() -> Result<(), Failed> {
    let place = Place::new();
    let unlock = format!(
        "LOCKKIT_URL='{}' {} unlock job --force --now --reason test",
        place.url(),
        env!("CARGO_BIN_EXE_lockkit")
    );
    let lost = run(place.lockkit(["once", "job", "--slot", "v1", "-c", &unlock]));
    assert_eq!(lost.status.code(), Some(123), "{}", said(&lost));
    good(place.lockkit(["once", "job", "--slot", "v1", "-c", &line(&place, "true")]));
    assert_eq!(runs(&place), ["v1"]);
    Ok(())
}

/// Writes a note as a holder of the lock.
fn write_note(place: &Place, text: &str) {
    runtime().block_on(async {
        let locker = place.locker().await;
        let guard = locker.mutex("job").unwrap().lock().await.unwrap();
        let note = locker.note(guard.name()).await.unwrap();
        assert_eq!(guard.write_note(&note.next(text)).await.unwrap(), lockkit::Noted::Written);
        guard.release().await.unwrap();
        locker.shutdown().await.unwrap();
    });
}

fn note(place: &Place) -> String {
    runtime().block_on(async {
        let locker = place.locker().await;
        let name = LockName::new(Kind::Mutex, "job").unwrap();
        let text = locker.note(&name).await.unwrap().text;
        locker.shutdown().await.unwrap();
        text
    })
}

fn full() -> Result<(), Failed> {
    let place = Place::new();
    let far = 32_503_680_000_000_u64;
    let keys = |count: usize, until: u64| {
        let keys = (0..count).map(|key| format!("[\"{key:0>200}\",{until}]"));
        let keys: Vec<_> = keys.collect();
        format!("{{\"v\":1,\"done\":{{\"keys\":[{}]}}}}", keys.join(","))
    };
    // There is room for a run, but not for one that must be remembered.
    write_note(&place, &keys(72, far));
    let slot = "v".repeat(200);
    let once = || place.lockkit(["once", "job", "--slot", &slot, "-c", &line(&place, "true")]);
    let refused = run(once());
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert!(said(&refused).contains("no room"), "{}", said(&refused));
    assert_eq!(runs(&place), [""; 0], "nothing is run that can't be remembered");
    assert_eq!(note(&place), keys(72, far));
    // Keys whose time is over make room.
    write_note(&place, &keys(72, 1));
    good(once());
    assert_eq!(runs(&place), [slot.as_str()]);
    Ok(())
}

/// Otherwise no slot would run for a long time, and every run would report success.
fn ahead() -> Result<(), Failed> {
    let place = Place::new();
    let once = || place.lockkit(["once", "job", "--every", "1h", "-c", &line(&place, "true")]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    write_note(&place, &format!("{{\"v\":1,\"done\":{{\"tick\":{}}}}}", now + 7_300));
    let refused = run(once());
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert!(said(&refused).contains("far ahead of the store's clock"), "{}", said(&refused));
    write_note(&place, &format!("{{\"v\":1,\"done\":{{\"tick\":{}}}}}", now - 7_300));
    good(once());
    assert_eq!(runs(&place).len(), 1);
    Ok(())
}

fn foreign() -> Result<(), Failed> {
    let place = Place::new();
    write_note(&place, "all work and no play");
    let once = run(place.lockkit(["once", "job", "--slot", "v1", "-c", &line(&place, "true")]));
    assert_eq!(once.status.code(), Some(125));
    assert!(said(&once).contains("as a journal of lockkit"), "{}", said(&once));
    // A missing history does not prevent a run.
    good(place.lockkit(["run", "job", "-c", &line(&place, "true")]));
    assert_eq!(runs(&place), [""]);
    assert_eq!(note(&place), "all work and no play");
    Ok(())
}

fn not_begun() -> Result<(), Failed> {
    let place = Place::new();
    fs::write(place.path("file"), "no program")?;
    let file = place.path("file").display().to_string();
    for (slot, command, code) in [
        ("--slot=a", "/no/such/command", 127),
        ("--slot=b", &file, 126),
        ("--every=8760h", &file, 126),
    ] {
        let once = ["once", "job", slot, "--on-fail=done"];
        assert_eq!(run(place.lockkit([&once[..], &[command]].concat())).status.code(), Some(code));
        let before = runs(&place).len();
        for _ in 0..2 {
            good(place.lockkit([&once[..], &["-c", &line(&place, "true")]].concat()));
        }
        assert_eq!(runs(&place).len(), before + 1, "{slot}");
    }
    Ok(())
}

/// Otherwise a run that is longer than `--keep` would be forgotten when it ends.
fn kept() -> Result<(), Failed> {
    for (on_fail, code) in [("retry", 0), ("done", 0), ("done", 3)] {
        let place = Place::new();
        let go = place.path("go");
        let line = format!("until [ -e {} ]; do sleep 0.01; done; exit {code}", go.display());
        let on_fail = format!("--on-fail={on_fail}");
        let options = ["once", "job", "--slot=v1", "--keep=1h", &on_fail, "-c", &line];
        let mut once = Running::start(place.lockkit(options));
        until("the run", || note(&place).contains("\"slot\":\"v1\"").then_some(()));
        std::thread::sleep(Duration::from_secs(2));
        fs::write(go, "")?;
        assert_eq!(once.end().code(), Some(code));
        let note: serde_json::Value = serde_json::from_str(&note(&place))?;
        let until = note["done"]["keys"][0][1].as_u64().unwrap();
        let started = note["runs"][0]["started"].as_u64().unwrap();
        assert!((3_600_290..3_660_000).contains(&(until - started)), "{on_fail} {code}: {note}");
    }
    Ok(())
}

fn busy() -> Result<(), Failed> {
    let place = Place::new();
    let _holder = Running::start(place.lockkit(["run", "job", "-c", &line(&place, "sleep 600")]));
    until("the holder", || (runs(&place).len() == 1).then_some(()));
    for (wait, bound) in [("-n", 0), ("--wait=6500ms", 6_500)] {
        let began = Instant::now();
        let once = run(place.lockkit(["once", "job", "--slot", "v1", wait, "true"]));
        assert_eq!(once.status.code(), Some(75), "{}", said(&once));
        assert!(began.elapsed() >= Duration::from_millis(bound), "{wait}: it gave up before");
    }
    let once = run(place.lockkit(["once", "job", "--slot", "v1", "-n", "-E", "9", "true"]));
    assert_eq!(once.status.code(), Some(9), "{}", said(&once));
    Ok(())
}
