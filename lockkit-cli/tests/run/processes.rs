//! Which processes are of a job.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use rustix::process::Signal;

use crate::{
    Test,
    support::{Place, Running, bare, is_alive, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("processes::what_a_command_leaves_behind_is_stopped", leftovers),
        ("processes::what_does_not_hear_is_killed_after_the_grace", deaf_leftovers),
        ("processes::an_emptied_environment_hides_nobody", without_environment),
        ("processes::children_of_another_program_are_spared", spared),
        ("processes::c9_a_run_in_a_run_dies_with_the_outer_one", nested),
        ("processes::orphans_are_reaped_while_the_command_runs", reaped),
    ]
}

fn pid(place: &Place, name: &str) -> i32 {
    place.text(name).trim().parse().unwrap()
}

fn leftovers() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    let line = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 60' & until [ -s {0} ]; do sleep 0.01; done; exit 4",
        file.display()
    );
    let begun = Instant::now();
    let output = run(place.lockkit(["run", "job", "sh", "-c", &line]));
    assert_eq!(output.status.code(), Some(4));
    assert!(said(&output).contains("left processes behind"), "{}", said(&output));
    assert!(!is_alive(pid(&place, "pid")));
    assert!(begun.elapsed() < Duration::from_secs(4), "the grace is for those who need it");
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

/// After a kill -9 there is only the process group to tell by, and a session of its own leaves that, too.
fn without_environment() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    let line = format!("echo $$ > {}; exec sleep 60", file.display());
    let outer = format!("env -i sh -c '{line}' & wait");
    let mut lockkit = Running::start(place.lockkit(["run", "job", "sh", "-c", &outer]));
    let pid = pid(&place, "pid");
    lockkit.signal(Signal::KILL);
    until("the end of the grandchild", || (!is_alive(pid)).then_some(()));
    lockkit.end();
    Ok(())
}

fn spared() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.path("pid");
    // lockkit takes over a shell that has a child already.
    let line = format!(
        "sleep 61 >/dev/null 2>&1 & echo $! > {}; exec {} run job true",
        file.display(),
        env!("CARGO_BIN_EXE_lockkit")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("LOCKKIT_URL", place.redis.url());
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
    let line = format!("setsid sh -c 'echo $$ > {}; exec sleep 60' & wait", file.display());
    let url = place.redis.url();
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
    let line = format!("for i in 1 2 3 4 5; do (true &) ; done; echo up > {}; sleep 60", up.display());
    let lockkit = Running::start(place.lockkit(["run", "job", "sh", "-c", &line]));
    place.text("up");
    let pid = lockkit.pid().as_raw_nonzero();
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    until("the end of all zombies", || (children().split_whitespace().count() == 2).then_some(()));
    let _ = bare(["--version"]);
    Ok(())
}
