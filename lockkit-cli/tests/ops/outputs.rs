//! Tests outputs that can't be written.

use std::{
    io::pipe,
    process::{Command, Stdio},
};

use libtest_mimic::Failed;

use crate::{
    Test, good, json,
    support::{Place, Running, bare, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("outputs::nobody_reads_standard_error", no_stderr),
        ("outputs::nobody_reads_standard_output", no_stdout),
        ("outputs::standard_output_is_full", full),
        ("outputs::unlock_frees_all_though_nobody_reads", unlock),
        ("outputs::bad_input_is_one_line", one_line),
    ]
}

/// A pipe without a reader.
fn broken() -> Stdio {
    pipe().unwrap().1.into()
}

fn no_stderr() -> Result<(), Failed> {
    let place = Place::new();
    for (arguments, code) in [
        (&["run", "job", "/no/such/command"][..], 127),
        (&["run", "--ttl=1s", "--grace=5s", "job", "true"], 125),
        (&["run", "--no-such-flag", "job"], 125),
        (&[], 125),
        (&["watch", "job", "--until-free"], 0),
        (&["unlock", "job", "--force", "--reason=x"], 0),
        (&["-vv", "run", "job", "true"], 0),
        (&["run", "job", "-c", "exit 3"], 3),
    ] {
        let mut command = place.lockkit(arguments);
        command.stderr(broken());
        assert_eq!(Running::start(command).end().code(), Some(code), "{arguments:?}");
    }
    Ok(())
}

fn no_stdout() -> Result<(), Failed> {
    let place = Place::steady();
    good(place.lockkit(["run", "job", "true"]));
    for arguments in [
        &["history", "job"][..],
        &["show", "job"],
        &["man"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ] {
        let mut command = place.lockkit(arguments);
        command.stdout(broken());
        let output = run(command);
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
    Ok(())
}

/// A file that may not grow acts as a full disk, without a device.
fn full() -> Result<(), Failed> {
    let place = Place::steady();
    good(place.lockkit(["run", "job", "true"]));
    for arguments in
        [&["history", "job"][..], &["man"], &["completions", "bash"], &["--help"], &["--version"]]
    {
        let mut command = Command::new("sh");
        let script = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_lockkit")]).args(arguments);
        command.env("LOCKKIT_URL", place.url()).stderr(Stdio::piped());
        command.stdout(std::fs::File::create(place.path("full"))?);
        let output = run(command);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {}", said(&output));
        let said = said(&output);
        assert!(
            said.lines().count() == 1 && said.contains("could not write to standard output"),
            "{said}"
        );
    }
    Ok(())
}

fn unlock() -> Result<(), Failed> {
    let place = Place::new();
    let holder = |number: u32| {
        let up = place.path(&number.to_string());
        let line = format!("touch {}; exec sleep 600", up.display());
        let holder = Running::start(place.lockkit([
            "run",
            "--ttl=9s",
            "--grace=200ms",
            "--permits=1/2",
            "job",
            "-c",
            &line,
        ]));
        until("the holder", || up.exists().then_some(()));
        holder
    };
    let mut holders = [holder(1), holder(2)];
    let mut command = place.lockkit(["unlock", "job", "--force", "--now", "--reason=x"]);
    command.stdout(broken());
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(json(&good(place.lockkit(["--format=json", "ls"]))).len(), 0);
    for holder in &mut holders {
        assert_eq!(holder.end().code(), Some(123));
    }
    Ok(())
}

fn one_line() -> Result<(), Failed> {
    for (arguments, words) in [
        (&["run"][..], "<NAME> <COMMAND>...; see lockkit run --help"),
        (&["run", "job"], "<COMMAND>...; see lockkit run --help"),
        (&["--url=redis://:hunter2@h/", "run", "--no-such", "job"], "'--no-such'"),
        (&["run", "--ttl=x", "job", "true"], "see lockkit run --help"),
        (&["run", "--permits=3/2", "job", "true"], "K/N"),
        (&["rum", "job", "true"], "'rum'"),
        (&["--format=xml", "ls"], "see lockkit ls --help"),
        (&["once", "job", "true"], "--every"),
        (&["unlock", "job"], "see lockkit unlock --help"),
        (&["run", "job", "a\nb", "--ur1"], "no store"),
        (&["run", "--x\n--y", "job", "true"], "see lockkit run --help"),
        (
            &["run", "job", "--ur1=redis://:hunter2@h/", "true"],
            "unknown option --ur1; write -- before",
        ),
        (&["once", "--slot=x", "job", "--ur1", "true"], "unknown option --ur1; write -- before"),
        (&["elect", "job", "--ur1", "true"], "unknown option --ur1; write -- before"),
    ] {
        let output = run(bare(arguments));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with("lockkit: ") && said.contains(words),
            "{words:?} is not in: {said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
    let place = Place::new();
    assert_eq!(run(place.lockkit(["run", "job", "--", "--ur1"])).status.code(), Some(127));
    Ok(())
}
