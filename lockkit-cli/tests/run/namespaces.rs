//! Tests lockkit in a process namespace of its own, as in a container. There its parent has no
//! number, and neither has its group.

use std::process::{Command, Stdio};

use libtest_mimic::Failed;

use crate::{
    Test,
    support::{Place, run, said},
};

pub(crate) fn trials() -> Vec<Test> {
    // A user who may not make a namespace can skip these tests.
    let made = unshare(&["--mount-proc"]).arg("true").output();
    if !made.is_ok_and(|made| made.status.success()) {
        return Vec::new();
    }
    vec![
        ("namespaces::a_command_runs_though_our_group_has_no_number", groups),
        ("namespaces::the_processes_of_another_one_are_no_help", foreign),
    ]
}

fn unshare(options: &[&str]) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]).args(options);
    unshare
}

fn lockkit(place: &Place, options: &[&str], line: &str) -> Command {
    let mut command = unshare(options);
    command.args([env!("CARGO_BIN_EXE_lockkit"), "run", "job", "-c", line]);
    command.env("LOCKKIT_URL", place.url());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn groups() -> Result<(), Failed> {
    let place = Place::new();
    let output = run(lockkit(&place, &["--mount-proc"], "sleep 600 & echo runs; exit 7"));
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(output.stdout, b"runs\n");
    assert!(said(&output).contains("left processes behind"), "{}", said(&output));
    Ok(())
}

/// Processes that have the same numbers in that namespace must not be killed.
fn foreign() -> Result<(), Failed> {
    let place = Place::new();
    let output = run(lockkit(&place, &[], "echo runs"));
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(125), &[][..]),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("--mount-proc"), "{}", said(&output));
    Ok(())
}
