//! Tests that all commands work on each store. The command line gives up the record of a run after
//! three seconds, so the servers of these tests never stall.

use std::{fs, process::Command, time::Duration};

use libtest_mimic::Failed;
use lockkit_fixture::{
    RedisServer, ZooKeeperOptions, sql_servers_from_env_or_start, zookeeper_from_env_or_start,
};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    Test, good, json,
    support::{PATIENT, Running, bare, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("stores::file_has_all_commands", file),
        ("stores::mysql_has_all_commands", mysql),
        ("stores::redis_has_all_commands", redis),
        ("stores::zookeeper_has_all_commands", zookeeper),
    ]
}

fn file() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    all(&format!("file://{}", folder.path().join("locks").display()))
}

fn mysql() -> Result<(), Failed> {
    for mut server in sql_servers_from_env_or_start()? {
        server.server.iter_mut().for_each(|server| server.never_stall());
        let joined = if server.url.contains('?') { '&' } else { '?' };
        for strategy in ["optimistic", "pessimistic"] {
            // Two strategies do not share their tables.
            let prefix = format!("cli_{}_{strategy}", std::process::id());
            let patient = PATIENT.trim_start_matches('?');
            all(&format!(
                "{}{joined}strategy={strategy}&table_prefix={prefix}&{patient}",
                server.url
            ))?;
        }
    }
    Ok(())
}

fn redis() -> Result<(), Failed> {
    let mut server = RedisServer::start()?;
    server.never_stall();
    all(&format!("{}{PATIENT}", server.url()))
}

fn zookeeper() -> Result<(), Failed> {
    // Sessions of 8 s: on a busy machine, a run needs that much time between two heartbeats.
    let options = ZooKeeperOptions::default().with_tick(Duration::from_millis(400));
    let mut server = zookeeper_from_env_or_start(options)?;
    server.server.iter_mut().for_each(|server| server.never_stall());
    all(&server.url)
}

/// Tests a run that ends by itself, one that an operator asks to stop, and one whose host dies.
/// Other processes look, wait and come late meanwhile.
fn all(url: &str) -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let lockkit = |arguments: &[&str]| -> Command {
        let mut command = bare(arguments);
        command.env("LOCKKIT_URL", url);
        command
    };
    // The server may be the user's own, so the name is unique.
    let name = format!("job-{}", std::process::id());
    let runs = folder.path().join("runs");
    let line = format!("echo $LOCKKIT_SLOT >> {}", runs.display());
    for _ in 0..2 {
        good(lockkit(&["once", &name, "--slot", "v1", "-c", &line]));
    }
    assert_eq!(fs::read_to_string(&runs)?, "v1\n", "{url}");
    good(lockkit(&["once", &name, "--every", "1h", "-c", "true"]));

    let up = folder.path().join("up");
    let line = format!("echo up > {}; sleep 600", up.display());
    let mut holder = Running::start(lockkit(&["run", "--grace=200ms", &name, "-c", &line]));
    until("the holder", || up.exists().then_some(()));
    assert_eq!(run(lockkit(&["run", "-n", &name, "true"])).status.code(), Some(75));
    let listed = json(&good(lockkit(&["--format=json", "ls"])));
    assert!(listed.iter().any(|lock| lock["name"] == name.as_str()), "{url}: {listed:?}");
    let mut next = Running::start(lockkit(&["run", &name, "true"]));
    let unlock = run(lockkit(&["unlock", &name, "--force", "--reason=test"]));
    assert_eq!(unlock.status.code(), Some(0), "{url}: {}", said(&unlock));
    assert!(crate::told(&unlock).contains("released it"), "{url}: {}", crate::told(&unlock));
    assert_eq!(holder.end().code(), Some(123), "{url}");
    assert_eq!(next.end().code(), Some(0), "{url}");

    fs::remove_file(&up)?;
    let mut killed =
        Running::start(lockkit(&["run", "--ttl=9s", "--grace=200ms", &name, "-c", &line]));
    // The command starts before its run is in the history.
    until("the next holder", || {
        let history = json(&good(lockkit(&["--format=json", "history", &name])));
        history.iter().any(|run| run["outcome"] == "running").then_some(())
    });
    killed.signal(Signal::KILL);
    killed.end();
    good(lockkit(&["run", &name, "true"]));
    let history = json(&good(lockkit(&["--format=json", "history", &name])));
    let outcomes: Vec<_> = history.iter().map(|run| run["outcome"].as_str().unwrap()).collect();
    let expected = ["exit 0", "exit 0", "stopped: asked for", "exit 0", "did not finish", "exit 0"];
    assert_eq!(outcomes, expected, "{url}");

    let elected = run(lockkit(&["elect", &name, "-c", "exit 7"]));
    assert_eq!(elected.status.code(), Some(7), "{url}: {}", said(&elected));
    let doctor = run(lockkit(&["--format=json", "doctor"]));
    assert!(matches!(doctor.status.code(), Some(0 | 1)), "{url}: {}", said(&doctor));
    for step in ["lock", "renew", "release"] {
        let diagnostics = json(&doctor);
        let found = diagnostics
            .iter()
            .any(|diagnostic| diagnostic["what"] == step && diagnostic["severity"] == "good");
        assert!(found, "{url}: no {step} in {diagnostics:?}");
    }
    Ok(())
}
