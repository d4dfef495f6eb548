//! The file store, by `--local`.

use std::process::Command;

use libtest_mimic::Failed;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    Test, good, json,
    support::{Running, bare, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![("local::a_host_of_its_own_has_all_commands", all)]
}

fn all() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let url = format!("file://{}", folder.path().join("locks").display());
    let lockkit = |arguments: &[&str]| -> Command {
        let mut command = bare(arguments);
        command.env("LOCKKIT_URL", &url);
        command
    };
    let runs = folder.path().join("runs");
    let line = format!("echo $LOCKKIT_SLOT >> {}", runs.display());
    for _ in 0..2 {
        good(lockkit(&["once", "job", "--slot", "v1", "-c", &line]));
    }
    assert_eq!(std::fs::read_to_string(&runs)?, "v1\n");
    let up = folder.path().join("up");
    let line = format!("echo up > {}; sleep 60", up.display());
    let mut holder = Running::start(lockkit(&["run", "job", "-c", &line]));
    until("the holder", || up.exists().then_some(()));
    assert_eq!(run(lockkit(&["run", "-n", "job", "true"])).status.code(), Some(75));
    let listed = json(&good(lockkit(&["--format=json", "ls"])));
    assert_eq!(listed[0]["name"], "job");
    let unlock = run(lockkit(&["unlock", "job", "--force", "--reason=test"]));
    assert_eq!(unlock.status.code(), Some(0), "{}", said(&unlock));
    assert_eq!(holder.end().code(), Some(123));
    let mut killed = Running::start(lockkit(&["run", "job", "sleep", "60"]));
    until("the next holder", || {
        let shown = json(&good(lockkit(&["--format=json", "show", "job"])));
        (!shown.first()?["holders"].as_array()?.is_empty()).then_some(())
    });
    killed.signal(Signal::KILL);
    killed.end();
    good(lockkit(&["run", "job", "true"]));
    let history = json(&good(lockkit(&["--format=json", "history", "job"])));
    let outcomes: Vec<_> = history.iter().map(|run| run["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["exit 0", "stopped: asked for", "did not finish", "exit 0"]);
    Ok(())
}
