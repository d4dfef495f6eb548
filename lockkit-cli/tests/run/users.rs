//! Tests what lockkit may not do as one user: kill another user's processes, or look at a program
//! that no user may read.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use libtest_mimic::Failed;
use rustix::process::{Signal, geteuid};

use crate::{
    Test,
    support::{Place, Running, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    let mut trials: Vec<Test> =
        vec![("users::c7_a_command_that_was_never_started_is_a_failure_of_lockkit", execute_only)];
    // Only root has processes of two users.
    if geteuid().is_root() {
        trials.push(("users::what_may_not_be_killed_keeps_the_lock_until_told_otherwise", foreign));
    }
    trials
}

/// The number of the user `nobody`.
const NOBODY: u32 = 65_534;

fn open_to_all(place: &Place) {
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
}

/// A command of an ordinary user, on the store of the place.
fn ordinary(place: &Place, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LOCKKIT_URL", place.url()).stderr(std::process::Stdio::piped());
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A copy that other users can reach. Another process makes it. If this process had it open for
/// writing, a child of another test could keep it open, and then it could not be executed.
fn copy(place: &Place, mode: &str) -> PathBuf {
    let program = place.path("lockkit");
    let mut install = Command::new("install");
    install.args(["-m", mode, env!("CARGO_BIN_EXE_lockkit")]).arg(&program);
    assert!(install.status().unwrap().success());
    program
}

/// The system hides such a process from its children.
fn execute_only() -> Result<(), Failed> {
    let place = Place::new();
    open_to_all(&place);
    let program = copy(&place, "0111");
    let status = place.path("status");
    let mut command = ordinary(&place, &program);
    command.arg("run").arg("--status-file").arg(&status).args(["job", "true"]);
    let output = run(command);
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(said(&output).contains("could not start the command"), "{}", said(&output));
    let status = fs::read_to_string(status)?;
    assert!(status.contains(r#""outcome":"failed""#), "{status}");
    Ok(())
}

fn foreign() -> Result<(), Failed> {
    let place = Place::new();
    open_to_all(&place);
    let program = copy(&place, "0755");
    let line = format!(
        "echo $$ > {}; until [ -e {} ]; do sleep 0.01; done",
        place.path("group").display(),
        place.path("go").display()
    );
    let mut command = ordinary(&place, &program);
    command.args(["run", "--grace=100ms", "job", "sh", "-c", &line]);
    command.stderr(fs::File::create(place.path("said"))?);
    let mut lockkit = Running::start(command);
    // This process is like one that sudo would leave.
    let group = place.text("group").trim().parse().unwrap();
    let mut sleep = Command::new("sleep");
    sleep.arg("600").process_group(group);
    let sleep = Running::start(sleep);
    fs::write(place.path("go"), "")?;
    let pid = sleep.pid().as_raw_nonzero();
    let words = format!("belong to another user, and lockkit may not kill them: {pid};");
    let heard = |words: &str| fs::read_to_string(place.path("said")).unwrap().contains(words);
    until("a word about it", || heard(&words).then_some(()));
    let busy = run(place.lockkit(["run", "-n", "job", "true"]));
    assert_eq!(busy.status.code(), Some(75), "{}", said(&busy));
    lockkit.signal(Signal::TERM);
    assert_eq!(lockkit.end().code(), Some(125));
    assert!(heard("a signal ended the wait"));
    let free = run(place.lockkit(["run", "-n", "job", "true"]));
    assert_eq!(free.status.code(), Some(0), "{}", said(&free));
    drop(sleep);
    Ok(())
}
