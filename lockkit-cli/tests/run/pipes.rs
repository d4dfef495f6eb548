//! Tests that lockkit passes input and output through unchanged.

use std::{
    io::{Read as _, Write as _},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;

use crate::{
    Test,
    support::{Place, Running, run, said},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("pipes::standard_input_and_output", through),
        ("pipes::a_reader_that_goes_away", broken),
        ("pipes::lockkits_own_words_stay_off_standard_output", own_words),
        ("pipes::a_command_starts_soon", soon),
    ]
}

fn through() -> Result<(), Failed> {
    let place = Place::steady();
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let mut command = place.lockkit(["run", "job", "cat"]);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let mut input = run.0.stdin.take().unwrap();
    let sent = data.clone();
    let writer = thread::spawn(move || input.write_all(&sent).unwrap());
    let mut received = Vec::new();
    run.0.stdout.take().unwrap().read_to_end(&mut received)?;
    writer.join().unwrap();
    assert!(received == data, "{} of {} bytes", received.len(), data.len());
    assert_eq!(run.output().stderr, b"");
    Ok(())
}

/// The writer dies of the broken pipe, as without lockkit.
fn broken() -> Result<(), Failed> {
    let place = Place::new();
    let mut run = Running::start(place.lockkit(["run", "job", "yes"]));
    drop(run.0.stdout.take());
    let status = run.end();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(13), "{status}");
    Ok(())
}

fn own_words() -> Result<(), Failed> {
    let place = Place::steady();
    let output = run(place.lockkit(["-v", "run", "job", "echo", "a word"]));
    assert_eq!(output.stdout, b"a word\n");
    assert!(said(&output).contains("\"job\" is held, token "), "{}", said(&output));
    let output = run(place.lockkit(["--format", "json", "run", "job", "no-such-command"]));
    let lines: Vec<serde_json::Value> =
        said(&output).lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!((&lines[0]["event"], &lines[0]["name"]), (&"held".into(), &"job".into()));
    assert!(lines[0]["token"].is_u64(), "{}", lines[0]);
    assert_eq!(lines[1]["event"], "message");
    Ok(())
}

/// This makes no claim about speed. The bound proves that no step waits for a timer, which would
/// delay each of them.
fn soon() -> Result<(), Failed> {
    let place = Place::steady();
    let time = |arguments: &[&str]| {
        let begun = Instant::now();
        assert_eq!(run(place.lockkit(arguments)).status.code(), Some(0));
        begun.elapsed()
    };
    // The time of an empty process shows how slow the machine is. The longest such time would hide
    // a timer.
    let times: Vec<_> =
        (0..20).map(|_| (time(&["--version"]), time(&["run", "job", "true"]))).collect();
    let idle = times.iter().map(|(idle, _)| *idle).min().unwrap();
    let run = times.iter().map(|(_, run)| *run).min().unwrap();
    assert!(run < Duration::from_millis(500) + idle * 8, "{times:?}");
    Ok(())
}
