//! Tests what lockkit reports while it waits.

use libtest_mimic::Failed;
use serde_json::Value;

use crate::{
    Test,
    support::{Place, Running, is_awaited, line_of, run, runtime, said},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![("waiting::it_says_for_whom", who), ("waiting::c8_the_next_one_begins_at_once", next)]
}

fn who() -> Result<(), Failed> {
    // lockkit asks only for a moment who holds the lock.
    let place = Place::steady();
    runtime().block_on(async {
        let locker = place.locker().await;
        let options = lockkit::LockOptions::new().with_label("somebody on web-7");
        let guard =
            locker.mutex("job").unwrap().with_options(options).unwrap().lock().await.unwrap();
        let token = guard.fencing_token();
        let output = run(place.lockkit(["run", "-w", "10200ms", "job", "true"]));
        let said = said(&output);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "one line at once, one at the end: {said}");
        assert!(
            lines[0].starts_with("lockkit: waiting for \"job\" for ")
                && lines[0].contains("s: held by somebody on web-7, since "),
            "{said}"
        );
        let (_, left) =
            lines[0].split_once(&format!(", token {token}; gives up in ")).expect(&said);
        let (_, waited) =
            lines[0].split_once(" for ").and_then(|(_, rest)| rest.split_once(" for ")).unwrap();
        // Both times are cut to whole seconds.
        let seconds = |text: &str| text.split_once('s').unwrap().0.parse::<u64>().unwrap();
        assert!(
            seconds(left) < 10 && (9..=10).contains(&(seconds(left) + seconds(waited))),
            "{said}"
        );
        let output = run(place.lockkit(["-q", "run", "-w", "6s", "job", "true"]));
        assert_eq!(output.stderr, b"", "it was to be quiet");
        let mut waiting = Running::start(place.lockkit(["--format=json", "run", "job", "true"]));
        let line: Value = serde_json::from_str(&line_of(&mut waiting)).unwrap();
        assert_eq!(line["event"], "waiting");
        assert_eq!(line["holders"][0]["label"], "somebody on web-7");
        assert_eq!(line["holders"][0]["token"], token.get());
        guard.release().await.unwrap();
    });
    Ok(())
}

fn next() -> Result<(), Failed> {
    let place = Place::new();
    runtime().block_on(async {
        let locker = place.locker().await;
        let mutex = locker.mutex("job").unwrap();
        let guard = mutex.lock().await.unwrap();
        let waiting = Running::start(place.lockkit(["run", "-w", "60s", "job", "echo", "ran"]));
        is_awaited(&mutex).await;
        guard.release().await.unwrap();
        let output = waiting.output();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(0), b"ran\n".as_slice()),
            "{}",
            said(&output)
        );
    });
    Ok(())
}
