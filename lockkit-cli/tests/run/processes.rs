//! Tests which processes belong to a job.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::{is_alive, state_of};
use rustix::process::Signal;

use crate::{
    Test,
    dead::until_known,
    procfs::children,
    support::{Place, Running, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("processes::what_a_command_leaves_behind_is_stopped", leftovers),
        ("processes::what_does_not_hear_is_killed_after_the_grace", deaf_leftovers),
        ("processes::an_emptied_environment_hides_nobody", without_environment),
        ("processes::nor_does_a_session_of_its_own_beside_that", without_anything),
        ("processes::children_of_another_program_are_spared", spared),
        ("processes::so_are_orphans_of_such_children", spared_orphan),
        ("processes::beside_such_children_the_jobs_own_orphans_are_stopped", own_orphan),
        ("processes::c9_a_run_in_a_run_dies_with_the_outer_one", nested),
        ("processes::orphans_are_reaped_while_the_command_runs", reaped),
    ]
}

fn pid(place: &Place, name: &str) -> i32 {
    place.text(name).trim().parse().unwrap()
}

fn leftovers() -> Result<(), Failed> {
    let place = Place::steady();
    let file = place.path("pid");
    let line = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 600' & \
         until [ -s {0} ]; do sleep 0.01; done; exit 4",
        file.display()
    );
    let begun = Instant::now();
    let output = run(place.lockkit(["run", "--ttl=5m", "--grace=60s", "job", "sh", "-c", &line]));
    assert_eq!(output.status.code(), Some(4));
    assert!(said(&output).contains("left processes behind"), "{}", said(&output));
    assert!(!is_alive(pid(&place, "pid")));
    assert!(begun.elapsed() < Duration::from_secs(30), "the grace is for those who need it");
    Ok(())
}

fn deaf_leftovers() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    let line = format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ > {}; while :; do sleep 0.1; done' & until [ -s {0} ]; do sleep 0.01; done",
        file.display()
    );
    let begun = Instant::now();
    let output = run(place.lockkit(["run", "--grace=400ms", "job", "sh", "-c", &line]));
    assert_eq!(output.status.code(), Some(0));
    assert!(!is_alive(pid(&place, "pid")));
    assert!(begun.elapsed() >= Duration::from_millis(400));
    Ok(())
}

/// After a kill -9, only the process group identifies the process.
fn without_environment() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    let line = format!("echo $$ > {}; exec sleep 600", file.display());
    let outer = format!("env -i sh -c '{line}' & wait");
    let mut lockkit = Running::start(place.lockkit(["run", "job", "sh", "-c", &outer]));
    let pid = pid(&place, "pid");
    // lockkit names the group to its watchdog before it sleeps.
    let of = lockkit.pid().as_raw_nonzero().get();
    until("that lockkit waits", || (state_of(of) == Some('S')).then_some(()));
    lockkit.signal(Signal::KILL);
    until("the end of the grandchild", || (!is_alive(pid)).then_some(()));
    lockkit.end();
    Ok(())
}

/// The watchdog already knows the process by then. No renewal of this lease wakes it meanwhile.
fn without_anything() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    let line = format!("echo $$ > {}; exec sleep 600", file.display());
    let outer = format!("env -i setsid sh -c '{line}' & wait");
    let mut lockkit = Running::start(place.lockkit(["run", "--ttl=5m", "job", "sh", "-c", &outer]));
    let pid = pid(&place, "pid");
    until_known(lockkit.pid().as_raw_nonzero().get());
    lockkit.signal(Signal::KILL);
    until("the end of the grandchild", || (!is_alive(pid)).then_some(()));
    lockkit.end();
    Ok(())
}

/// A shell that already has a child, and becomes a lockkit that adopts a child of that child.
fn with_stranger(place: &Place, child: &str, command: &str) -> Command {
    let line = format!(
        "sh -c '{child}' >/dev/null 2>&1 & exec {} run --grace=300ms job sh -c '{command}'",
        env!("CARGO_BIN_EXE_lockkit")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("LOCKKIT_URL", place.url());
    shell.stderr(std::process::Stdio::piped());
    shell
}

fn spared_orphan() -> Result<(), Failed> {
    let place = Place::new();
    let up = place.path("up");
    let file = place.path("pid");
    // When the orphan writes its number, lockkit is already its parent.
    let orphan = format!(
        "until [ $(ps -o ppid= -p $$) != $1 ]; do sleep 0.01; done; echo $$ > {}; exec sleep 600",
        file.display()
    );
    fs::write(place.path("orphan"), orphan)?;
    let child = format!(
        "until [ -e {} ]; do sleep 0.01; done; sh {} $$ & sleep 0.1",
        up.display(),
        place.path("orphan").display()
    );
    let command =
        format!("echo > {}; until [ -s {} ]; do sleep 0.01; done", up.display(), file.display());
    let output = run(with_stranger(&place, &child, &command));
    let pid = pid(&place, "pid");
    let lives = is_alive(pid);
    let _ =
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL);
    assert!(lives, "{}", said(&output));
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    Ok(())
}

fn own_orphan() -> Result<(), Failed> {
    let place = Place::steady();
    let file = place.path("pid");
    let command = format!(
        "(setsid sh -c \"echo \\$\\$ > {}; sleep 600; :\" &); \
         until [ -s {0} ]; do sleep 0.01; done",
        file.display()
    );
    let output = run(with_stranger(&place, "exec sleep 20", &command));
    assert!(!is_alive(pid(&place, "pid")), "{}", said(&output));
    assert!(said(&output).contains("left processes behind"), "{}", said(&output));
    Ok(())
}

fn spared() -> Result<(), Failed> {
    let place = Place::steady();
    let file = place.path("pid");
    // lockkit replaces a shell that already has a child.
    let line = format!(
        "sleep 61 >/dev/null 2>&1 & echo $! > {}; exec {} run job true",
        file.display(),
        env!("CARGO_BIN_EXE_lockkit")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("LOCKKIT_URL", place.url());
    command.stderr(std::process::Stdio::piped());
    let output = run(command);
    let pid = pid(&place, "pid");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(is_alive(pid), "{}", said(&output));
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL)?;
    assert_eq!(said(&output), "");
    Ok(())
}

fn nested() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    let line = format!("setsid sh -c 'echo $$ > {}; exec sleep 600' & wait", file.display());
    let url = place.url();
    let mut command = place.lockkit(["run", "outer", env!("CARGO_BIN_EXE_lockkit"), "--url", &url]);
    command.args(["run", "inner", "sh", "-c", &line]);
    let mut lockkit = Running::start(command);
    let pid = pid(&place, "pid");
    assert!(is_alive(pid));
    lockkit.signal(Signal::KILL);
    until("the end of the inner grandchild", || (!is_alive(pid)).then_some(()));
    lockkit.end();
    Ok(())
}

fn reaped() -> Result<(), Failed> {
    let place = Place::new();
    let up = place.path("up");
    let line =
        format!("for i in 1 2 3 4 5; do (true &) ; done; echo up > {}; sleep 600", up.display());
    let lockkit = Running::start(place.lockkit(["run", "job", "sh", "-c", &line]));
    place.text("up");
    let pid = lockkit.pid().as_raw_nonzero().get();
    until("the end of all zombies", || (children(pid).len() == 2).then_some(()));
    Ok(())
}
