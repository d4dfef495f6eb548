//! Tests signals while lockkit waits and while the command runs.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

use libtest_mimic::Failed;
use lockkit_fixture::state_of;
use nix::sys::signal::SigSet;
use rustix::process::Signal;

use crate::{
    Test,
    procfs::children,
    support::{Place, Running, is_awaited, runtime, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("signals::c6_one_that_waits_leaves_the_queue", while_waiting),
        ("signals::the_command_hears_them", forwarded),
        ("signals::one_that_dies_of_it", deadly),
        ("signals::a_stopped_command_dies_of_them", stopped),
        ("signals::what_was_ignored_stays_ignored", nohup),
        ("signals::what_was_blocked_stays_blocked", blocked),
    ]
}

fn while_waiting() -> Result<(), Failed> {
    let place = Place::steady();
    runtime().block_on(async {
        let locker = place.locker().await;
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let mut tries = 0;
            loop {
                let name = format!("job {} {tries}", signal.as_raw());
                let mutex = locker.mutex(&name).unwrap();
                let guard = mutex.lock().await.unwrap();
                let mut run = Running::start(place.lockkit(["run", &name, "true"]));
                is_awaited(&mutex).await;
                run.signal(signal);
                assert_eq!(run.end().signal(), Some(signal.as_raw()));
                let waiters = mutex.inspect().await.unwrap().waiters;
                guard.release().await.unwrap();
                if waiters == Some(0) {
                    break;
                }
                // lockkit tries to leave the queue for half a second, which is not always enough
                // on a busy machine.
                tries += 1;
                assert!(tries < 6, "after {signal:?}: {waiters:?}");
            }
        }
    });
    Ok(())
}

fn forwarded() -> Result<(), Failed> {
    let place = Place::new();
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ] {
        let up = place.path(name);
        let line = format!(
            "trap 'echo heard; exit 9' {name}; echo up > {}; while :; do sleep 0.01; done",
            up.display()
        );
        let run = Running::start(place.lockkit(["run", "job", "sh", "-c", &line]));
        place.text(name);
        run.signal(signal);
        let output = run.output();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(9), b"heard\n".as_slice()),
            "{name}: {}",
            said(&output)
        );
    }
    Ok(())
}

fn deadly() -> Result<(), Failed> {
    let place = Place::new();
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let name = format!("up-{}", signal.as_raw());
        let line = format!("echo up > {}; exec sleep 600", place.path(&name).display());
        let mut run = Running::start(place.lockkit(["run", "job", "sh", "-c", &line]));
        place.text(&name);
        run.signal(signal);
        assert_eq!(run.end().signal(), Some(signal.as_raw()));
    }
    Ok(())
}

fn stopped() -> Result<(), Failed> {
    let place = Place::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut run =
            Running::start(place.lockkit(["-q", "run", "job", "sh", "-c", "kill -STOP $$"]));
        let command = child(&run).as_raw_nonzero();
        until("its stop", || (state_of(command) == Some('T')).then_some(()));
        run.signal(signal);
        assert_eq!(run.end().signal(), Some(signal.as_raw()));
    }
    Ok(())
}

fn nohup() -> Result<(), Failed> {
    let place = Place::new();
    let line = format!(
        "echo up > {}; until [ -e {} ]; do sleep 0.01; done; exit 8",
        place.path("up").display(),
        place.path("go").display()
    );
    let mut command = std::process::Command::new("sh");
    let script = "trap '' HUP; exec \"$@\"";
    command.args([
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_lockkit"),
        "run",
        "job",
        "sh",
        "-c",
        &line,
    ]);
    command.env("LOCKKIT_URL", place.url());
    let mut run = Running::start(command);
    place.text("up");
    run.signal(Signal::HUP);
    rustix::process::kill_process_group(child(&run), Signal::HUP)?;
    std::fs::write(place.path("go"), "")?;
    assert_eq!(run.end().code(), Some(8));
    Ok(())
}

/// The command has its caller's signal mask, even if lockkit blocks signals for itself.
fn blocked() -> Result<(), Failed> {
    let place = Place::new();
    let mut command = place.lockkit(["run", "job", "grep", "SigBlk", "/proc/self/status"]);
    command.process_group(0);
    let before = SigSet::from(nix::sys::signal::Signal::SIGUSR2);
    before.thread_block()?;
    let run = Running::start(command);
    before.thread_unblock()?;
    let output = run.output();
    let mask = String::from_utf8(output.stdout)?;
    assert_eq!(
        u64::from_str_radix(mask.trim_start_matches("SigBlk:").trim(), 16)?,
        1 << 11,
        "{mask}"
    );
    Ok(())
}

/// The first process of the command's group.
fn child(run: &Running) -> rustix::process::Pid {
    let lockkit = run.pid().as_raw_nonzero().get();
    until("the command", || {
        let found = children(lockkit).into_iter().find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.starts_with("sh"))
        });
        found.and_then(rustix::process::Pid::from_raw)
    })
}
