//! Tests that lockkit reports a failure in one line, without a secret.

use std::{fs, process::Output};

use libtest_mimic::Failed;
use lockkit_fixture::{RedisOptions, RedisServer};

use crate::{
    Test,
    procfs::children,
    support::{PATIENT, Place, Running, bare, run, said},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("refusal::c13_bad_input", bad_input),
        ("refusal::c13_a_wrong_password_is_not_repeated", wrong_password),
        ("refusal::no_process_shows_the_url", hidden),
    ]
}

const SECRET: &str = "hunter2";

fn assert_refused(output: &Output, code: i32, words: &str) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{words:?} is not in: {said}");
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(output.stdout, b"");
}

fn bad_input() -> Result<(), Failed> {
    let place = Place::new();
    let long = "x".repeat(256);
    let status = place.path("no/such/folder/status");
    let status = format!("--status-file={}", status.display());
    for (arguments, words) in [
        (
            &["run", "--ttl", "1s", "--grace", "5s", "job", "true"][..],
            "--grace 5s is too long for a lease of 1s",
        ),
        (&["run", "--ttl", "1ms", "--grace", "0s", "job", "true"], "ttl"),
        (&["run", &long, "true"], "256 bytes, but at most 255 are allowed"),
        (&["run", "", "true"], "must not be empty"),
        (&["run", "--label", "a\nb", "job", "true"], "control characters"),
        (&["run", "--url", "http://u:hunter2@h/", "job", "true"], "http"),
        (&["run", "--url", "memory://", "job", "true"], "belongs to one process"),
        (&["run", "--url", "redis://u:hunter2@h/", "--local", "job", "true"], "names two stores"),
        (&["run", "--local", "--url-file", "/hunter2", "job", "true"], "names two stores"),
        (
            &["run", "--url-file", "/no/such/file", "job", "true"],
            "could not read the URL from the file /no/such/file",
        ),
        (&["run", "--url-file", "/dev/null", "job", "true"], "is not a URL"),
        (&["run", "-n", "--url", "redis://u:hunter2@127.0.0.1:1/", "job", "true"], "127.0.0.1:1"),
        (&["run", &status, "job", "true"], "status file"),
    ] {
        let output = run(place.lockkit(arguments));
        assert_refused(&output, 125, words);
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
        assert!(said(&output).starts_with("lockkit: "), "{}", said(&output));
    }
    for (arguments, words) in [
        (&["run", "--no-such-flag", "job", "true"][..], "--no-such-flag"),
        (&["run", "--url=redis://:hunter2@h/", "--no-such-flag", "job"], "--no-such-flag"),
        (&["run", "job"], "COMMAND"),
        (&["run", "--permits", "3/2", "job", "true"], "K/N"),
        (&["run", "-s", "--write", "job", "true"], "--write"),
    ] {
        assert_refused(&run(place.lockkit(arguments)), 125, words);
    }
    // `--ttl` has precedence over the URL's options, which do not fit then.
    let folder = format!("file://{}?op_timeout=3s", place.path("locks").display());
    let output =
        run(bare(["run", "--url", &folder, "--ttl", "2s", "--grace", "0s", "job", "true"]));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_refused(&run(bare(["run", "job", "true"])), 125, "no store: give --url, LOCKKIT_URL");
    Ok(())
}

fn wrong_password() -> Result<(), Failed> {
    let mut redis = RedisServer::start_as(RedisOptions::default().with_password("right"))?;
    // A stall would be another error.
    redis.never_stall();
    let mut command = bare(["run", "job", "true"]);
    command.env("LOCKKIT_URL", format!("redis://:{SECRET}@127.0.0.1:{}/{PATIENT}", redis.port()));
    let output = run(command);
    assert_refused(&output, 125, "password");
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    Ok(())
}

/// The environments of processes that lockkit starts have no secret either.
fn hidden() -> Result<(), Failed> {
    let redis = RedisServer::start_as(RedisOptions::default().with_password(SECRET))?;
    let place = tempfile::tempdir()?;
    let up = place.path().join("up");
    let go = place.path().join("go");
    let line =
        format!("echo up > {}; until [ -e {} ]; do sleep 0.01; done", up.display(), go.display());
    let mut command = bare(["run", "job", "sh", "-c", &line]);
    command.env("LOCKKIT_URL", redis.url().replace("redis://", &format!("redis://:{SECRET}@")));
    let lockkit = Running::start(command);
    crate::support::until("the command", || {
        fs::read_to_string(&up).ok().filter(|text| !text.is_empty())
    });
    let pid = lockkit.pid().as_raw_nonzero().get();
    assert!(!fs::read_to_string(format!("/proc/{pid}/cmdline"))?.contains(SECRET));
    let children = children(pid);
    assert_eq!(children.len(), 2, "the command and the watchdog");
    for child in children {
        for file in ["cmdline", "environ"] {
            let text =
                String::from_utf8_lossy(&fs::read(format!("/proc/{child}/{file}"))?).into_owned();
            assert!(!text.contains(SECRET), "{file} of {child}: {text}");
        }
    }
    fs::write(go, "")?;
    let output = lockkit.output();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    Ok(())
}
