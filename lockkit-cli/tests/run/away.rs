//! Tests a store that is unreachable when lockkit starts.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::process::ExitStatusExt as _,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::{RedisOptions, RedisServer};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    Test,
    support::{PATIENT, Place, Running, bare, line_of, run, runtime, said},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("away::c13_a_store_that_comes_back_is_waited_for", comes_back),
        ("away::c13_one_that_stays_away_is_given_up", stays_away),
        ("away::c13_what_is_waited_for_the_store_is_less_for_the_lock", less_for_the_lock),
        ("away::c8_a_store_that_does_not_answer_does_not_exceed_the_wait", silent),
        #[cfg(feature = "zk")]
        ("away::c8_a_zookeeper_that_does_not_answer_does_not_exceed_the_wait", silent_zookeeper),
        ("away::c13_a_server_of_another_kind_is_told_in_one_line", no_redis),
        ("away::c13_a_signal_ends_it", signal),
        ("away::c13_what_does_not_pass_is_told_at_once", permanent),
    ]
}

/// A lockkit that does not wait ends much sooner than this.
const AT_ONCE: Duration = Duration::from_secs(20);

fn timed(command: Command) -> (Output, Duration) {
    let began = Instant::now();
    (run(command), began.elapsed())
}

/// How long the store stays away after lockkit reports that.
const AWAY: Duration = Duration::from_millis(700);
/// How long the store is away before lockkit reports it.
const SILENT: Duration = Duration::from_millis(300);

/// Starts these commands while the store is away. Brings the store back after each command that is
/// not quiet has reported that.
fn over_a_restart(place: &mut Place, lines: &[&[&str]]) -> Result<Vec<Output>, Failed> {
    place.redis.kill()?;
    let mut started: Vec<_> =
        lines.iter().map(|line| Running::start(place.lockkit(*line))).collect();
    let tell = |run: &mut Running, line: &&[&str]| {
        if line[0] == "-q" { String::new() } else { line_of(run) }
    };
    let told: Vec<_> = started.iter_mut().zip(lines).map(|(run, line)| tell(run, line)).collect();
    thread::sleep(AWAY);
    place.redis.restart()?;
    let outputs = started.into_iter().map(Running::output).zip(told).map(|(mut output, told)| {
        output.stderr.splice(0..0, told.into_bytes());
        output
    });
    Ok(outputs.collect())
}

fn comes_back() -> Result<(), Failed> {
    let mut place = Place::new();
    let status = format!("--status-file={}", place.path("status").display());
    let lines: [&[&str]; 5] = [
        &["-q", "run", "e", "echo", "ran"],
        &["run", &status, "a", "echo", "ran"],
        &["run", "-w", "15s", "b", "echo", "ran"],
        &["once", "c", "--slot", "v1", "echo", "ran"],
        &["elect", "d", "echo", "ran"],
    ];
    let outputs = over_a_restart(&mut place, &lines)?;
    for (line, output) in lines.iter().zip(&outputs) {
        let said = said(output);
        assert_eq!(output.status.code(), Some(0), "{line:?}: {said}");
        assert_eq!(output.stdout, b"ran\n", "{line:?}");
        let times =
            said.lines().filter(|line| line.contains("could not reach the store: ")).count();
        assert_eq!(times, usize::from(line[0] != "-q"), "{line:?}: {said}");
    }
    let line = said(&outputs[1]);
    assert!(
        line.starts_with("lockkit: could not reach the store: ") && line.contains("127.0.0.1"),
        "{line}"
    );
    // A server may stall later.
    let line = line.lines().next().unwrap();
    assert!(line.ends_with("; lockkit tries again for 30s"), "{line}");
    assert!(said(&outputs[2]).contains("; lockkit tries again for 15s"), "{}", said(&outputs[2]));
    let status: Value = serde_json::from_str(&fs::read_to_string(place.path("status"))?)?;
    let waited = Duration::from_millis(status["waited_ms"].as_u64().unwrap());
    assert!(waited >= SILENT + AWAY, "{status}");

    let json = over_a_restart(&mut place, &[&["--format=json", "run", "f", "true"]])?;
    let event: Value = serde_json::from_str(said(&json[0]).lines().next().unwrap())?;
    assert_eq!(event["event"], "store_away", "{event}");
    assert!(event["error"].as_str().unwrap().contains("127.0.0.1"), "{event}");
    assert!(event["left_ms"].as_u64() > Some(20_000), "{event}");
    Ok(())
}

/// Catches a lockkit that bounds its first attempt only by `connect_timeout`, which is 30 s here.
fn silent() -> Result<(), Failed> {
    let place = Place::new();
    place.redis.pause()?;
    let (output, took) = timed(place.lockkit(["run", "-w", "1.2", "job", "true"]));
    place.redis.resume()?;
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(
        said(&output).contains("the store did not answer within 1s 200ms, which --wait allows"),
        "{}",
        said(&output)
    );
    assert!(took < AT_ONCE, "{took:?}");
    Ok(())
}

/// Catches a lockkit whose first attempt is bounded only by the store's timeouts, and reports
/// those. The port accepts connections but never answers.
#[cfg(feature = "zk")]
fn silent_zookeeper() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut command = bare(["run", "-w", "3s", "job", "true"]);
    command.env(
        "LOCKKIT_URL",
        format!("zk://{}/?session_timeout=300s&connect_timeout=60s", listener.local_addr()?),
    );
    let output = run(command);
    let said = said(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("the store did not answer within 3s, which --wait allows"), "{said}");
    Ok(())
}

fn no_redis() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("redis://{}/", listener.local_addr()?);
    let server = thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 64];
            if stream.read(&mut request).unwrap_or(0) == 1 {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let mut command = bare(["ls"]);
    command.env("LOCKKIT_URL", &url);
    let output = run(command);
    let said = said(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("is this the port of a Redis server?"), "{said}");
    let end = url.trim_start_matches("redis://").trim_end_matches('/');
    TcpStream::connect(end)?.write_all(b"x")?;
    server.join().unwrap();
    Ok(())
}

fn stays_away() -> Result<(), Failed> {
    let mut place = Place::new();
    place.redis.kill()?;
    for line in [
        &["run", "-n", "job", "true"][..],
        &["ls"],
        &["show", "job"],
        &["unlock", "job", "--force"],
    ] {
        let (output, took) = timed(place.lockkit(line));
        assert_eq!(output.status.code(), Some(125), "{line:?}: {}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{line:?}: {}", said(&output));
        assert!(took < AT_ONCE, "{line:?}: {took:?}");
    }
    for (line, away) in [
        (&["run", "-w", "1500ms", "job", "true"][..], "1s 500ms"),
        (&["run", "--ttl=2s", "job", "true"], "2s"),
        (&["once", "--ttl=2s", "job", "--slot=v1", "true"], "2s"),
        (&["elect", "--ttl=2s", "job", "true"], "2s"),
    ] {
        let mut command = place.lockkit(line);
        // Otherwise lockkit would wait for the longer op_timeout of the place's URL.
        command.env("LOCKKIT_URL", place.redis.url());
        let (output, took) = timed(command);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{line:?}: {said}");
        let last = said.lines().last().unwrap();
        assert!(
            last.starts_with(&format!("lockkit: could not reach the store for {away}: ")),
            "{line:?}: {said}"
        );
        assert!(last.contains("127.0.0.1"), "{line:?}: {said}");
        assert!((Duration::from_millis(1_400)..AT_ONCE).contains(&took), "{line:?}: {took:?}");
    }
    Ok(())
}

/// Another owner has the lock all the time.
fn less_for_the_lock() -> Result<(), Failed> {
    // This server does not stall for a second time.
    let place = Place::steady();
    let (output, took, told) = runtime().block_on(async {
        let locker = place.locker().await;
        let guard = locker.mutex("job").unwrap().lock().await.unwrap();
        place.redis.pause().unwrap();
        // The first attempt gets no answer within its second.
        let mut command = bare(["run", "-w", "20s", "job", "true"]);
        command.env("LOCKKIT_URL", format!("{}?connect_timeout=1s", place.redis.url()));
        let began = Instant::now();
        let mut waiting = Running::start(command);
        let told = line_of(&mut waiting);
        tokio::time::sleep(Duration::from_secs(12)).await;
        place.redis.resume().unwrap();
        let ended = (waiting.output(), began.elapsed(), told);
        guard.release().await.unwrap();
        ended
    });
    let said = said(&output);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(told.contains("could not reach the store: "), "{told}");
    // More than twelve seconds have passed by then.
    let left = said.split_once("; gives up in ").and_then(|(_, rest)| rest.split_once("s\n"));
    assert!(left.is_some_and(|(left, _)| left.parse::<u64>().unwrap() <= 7), "{said}");
    // Without the time that the store took off, it would be 32 s.
    assert!(took < Duration::from_secs(30), "{took:?} of 20s");
    Ok(())
}

fn signal() -> Result<(), Failed> {
    let mut place = Place::new();
    place.redis.kill()?;
    for signal in [Signal::TERM, Signal::INT] {
        for command in [&["run", "job"][..], &["once", "job", "--slot=v1"], &["elect", "job"]] {
            let status = place.path("status");
            let _ = fs::remove_file(&status);
            let option = format!("--status-file={}", status.display());
            let mut run = Running::start(place.lockkit([command, &[&option, "true"]].concat()));
            let line = line_of(&mut run);
            assert!(line.contains("could not reach the store: "), "{line}");
            let began = Instant::now();
            run.signal(signal);
            let ended = run.end();
            let took = began.elapsed();
            assert_eq!(ended.signal(), Some(signal.as_raw()), "{command:?}");
            // Otherwise lockkit would try again for half a minute.
            assert!(took < AT_ONCE, "{command:?}: {took:?}");
            let status: Value = serde_json::from_str(&fs::read_to_string(status)?)?;
            assert_eq!(status["outcome"], "interrupted", "{command:?}: {status}");
        }
    }
    Ok(())
}

fn permanent() -> Result<(), Failed> {
    let mut redis = RedisServer::start_as(RedisOptions::default().with_password("right"))?;
    // A stall would be another error.
    redis.never_stall();
    let wrong = format!("redis://:wrong@127.0.0.1:{}/{PATIENT}", redis.port());
    for (url, words) in [
        (wrong.as_str(), "password"),
        ("redis://127.0.0.1:1/?no_such=parameter", "no_such"),
        ("carrier-pigeon://loft/", "carrier-pigeon"),
    ] {
        let mut command = bare(["run", "-w", "20s", "job", "true"]);
        command.env("LOCKKIT_URL", url);
        let (output, took) = timed(command);
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        assert!(
            said(&output).contains(words) && said(&output).lines().count() == 1,
            "{}",
            said(&output)
        );
        assert!(took < AT_ONCE, "{url}: {took:?}");
    }
    Ok(())
}
