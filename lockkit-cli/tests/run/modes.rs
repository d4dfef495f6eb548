//! Tests the ways to hold a lock, and the variables that describe the lock to the command.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;

use crate::{
    Test,
    support::{Place, Running, line_of, run, runtime, said},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("modes::c1_the_shared_and_the_one_who_writes", read_write),
        ("modes::c1_permits", permits),
        ("modes::c1_two_runs_of_one_name", exclusive),
        ("modes::c1_a_lock_of_another_kind_under_the_same_name_is_told", other_kind),
        ("modes::a_lockkit_inside_a_job_is_told_where_its_url_is", nested),
        ("modes::the_commands_environment", environment),
        ("modes::the_file_of_the_url", url_files),
        ("modes::namespaces", namespaces),
        ("modes::hold_for", hold_for),
        ("modes::the_label", label),
    ]
}

/// A lockkit that holds its lock until a file exists. The lock is held when this returns.
fn holding(place: &Place, options: &[&str]) -> Running {
    let up = place.path("up");
    let _ = fs::remove_file(&up);
    let line = format!(
        "echo up > {}; until [ -e {} ]; do sleep 0.01; done",
        up.display(),
        place.path("go").display()
    );
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend(["job", "sh", "-c", &line]);
    let run = Running::start(place.lockkit(arguments));
    place.text("up");
    run
}

/// Whether `-n` finds the lock free.
fn is_free(place: &Place, options: &[&str]) -> bool {
    let mut arguments = vec!["run", "-n"];
    arguments.extend(options);
    arguments.extend(["job", "true"]);
    let output = run(place.lockkit(arguments));
    match output.status.code() {
        Some(0) => true,
        Some(75) => false,
        code => panic!("{code:?}: {}", said(&output)),
    }
}

fn ends_well(place: &Place, run: Running) {
    fs::write(place.path("go"), "").unwrap();
    let output = run.output();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    fs::remove_file(place.path("go")).unwrap();
}

fn exclusive() -> Result<(), Failed> {
    let place = Place::new();
    let run = holding(&place, &[]);
    assert!(!is_free(&place, &[]));
    ends_well(&place, run);
    assert!(is_free(&place, &[]));
    Ok(())
}

fn read_write() -> Result<(), Failed> {
    let place = Place::new();
    let run = holding(&place, &["-s"]);
    assert!(is_free(&place, &["-s"]));
    assert!(!is_free(&place, &["--write"]));
    assert!(!is_free(&place, &["-x"]), "flock's letter for a lock that excludes those who share");
    assert!(is_free(&place, &[]), "the mutex is another lock");
    ends_well(&place, run);
    let run = holding(&place, &["--write"]);
    assert!(!is_free(&place, &["-s"]));
    ends_well(&place, run);
    assert!(is_free(&place, &["-s"]));
    Ok(())
}

/// `-s` does not exclude a plain `run`, unlike in flock(1), so lockkit warns the user.
fn other_kind() -> Result<(), Failed> {
    // The first line does not say that lockkit waits for a server that stalls.
    let place = Place::steady();
    let shared = holding(&place, &["-s"]);
    let go = place.path("go");
    let line = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let mut plain = Running::start(place.lockkit(["run", "job", "-c", &line]));
    let mut told = line_of(&mut plain);
    if told.contains("waiting for") {
        // The store gave the lock late.
        told = line_of(&mut plain);
    }
    assert!(told.contains("the rwlock \"job\" is held by lockkit pid "), "{told}");
    assert!(told.contains("do not exclude each other"), "{told}");
    fs::write(&go, "").unwrap();
    assert_eq!(plain.output().status.code(), Some(0));
    assert_eq!(shared.output().status.code(), Some(0));
    fs::remove_file(&go)?;
    let alone = run(place.lockkit(["run", "job", "sleep", "0.2"]));
    assert_eq!(said(&alone), "", "nobody holds another lock of that name");
    Ok(())
}

/// The inner command does not inherit the URL of the outer lockkit, which may hold a password. It
/// inherits the name of a file.
fn nested() -> Result<(), Failed> {
    let place = Place::new();
    let inner = format!("{} run inner echo ran", env!("CARGO_BIN_EXE_lockkit"));
    let output = run(place.lockkit(["run", "outer", "-c", &inner]));
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("no store: ") && said(&output).contains("LOCKKIT_URL_FILE"),
        "{}",
        said(&output)
    );
    fs::write(place.path("url"), place.url())?;
    let mut command = crate::support::bare(["run", "outer", "-c", &inner]);
    command.env("LOCKKIT_URL_FILE", place.path("url"));
    let output = run(command);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), b"ran\n".as_slice()),
        "{}",
        said(&output)
    );
    Ok(())
}

fn permits() -> Result<(), Failed> {
    let place = Place::new();
    let run = holding(&place, &["--permits", "2/3"]);
    assert!(is_free(&place, &["--permits", "1/3"]));
    assert!(!is_free(&place, &["--permits", "2/3"]));
    ends_well(&place, run);
    Ok(())
}

fn environment() -> Result<(), Failed> {
    let place = Place::new();
    let environment = |options: &[&str]| -> HashMap<String, String> {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["job", "sh", "-c", "env; echo UNTIL=$(head -1 $LOCKKIT_DEADLINE_FILE)"]);
        let mut command = place.lockkit(arguments);
        command.env("LOCKKIT_URL_FILE", "/a/secret/place").env("LOCKKIT_SLOT", "of another");
        let output = run(command);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    };
    let found = environment(&[]);
    assert_eq!(found["LOCKKIT_NAME"], "job");
    assert_eq!(found["LOCKKIT_BACKEND"], "redis");
    assert_eq!(found["LOCKKIT_MODE"], "exclusive");
    assert_eq!(found["LOCKKIT_OWNER"].len(), 32);
    assert!(found["UNTIL"].parse::<u64>()? > crate::heart::now());
    assert!(!fs::exists(&found["LOCKKIT_DEADLINE_FILE"])?, "it is left behind");
    for absent in ["LOCKKIT_URL", "LOCKKIT_URL_FILE", "LOCKKIT_SLOT"] {
        assert!(!found.contains_key(absent), "{absent}");
    }
    let next = environment(&["--permits", "1/2"]);
    assert_eq!(next["LOCKKIT_MODE"], "1/2");
    assert_eq!(environment(&["-s"])["LOCKKIT_MODE"], "shared");
    let again = environment(&[]);
    assert!(again["LOCKKIT_TOKEN"].parse::<u64>()? > found["LOCKKIT_TOKEN"].parse::<u64>()?);
    Ok(())
}

/// Catches an option that does not override the environment.
fn url_files() -> Result<(), Failed> {
    let place = Place::new();
    let other = Place::new();
    fs::write(place.path("url"), format!("  {}  \nanother line\n", place.url()))?;
    let file = place.path("url");
    let held = holding(&place, &[]);
    let busy = |mut command: std::process::Command| {
        let output = run({
            command.args(["run", "-n", "job", "true"]);
            command
        });
        assert!(output.stdout.is_empty());
        output.status.code() == Some(75)
    };
    let mut by_environment = crate::support::bare::<&str>([]);
    by_environment.env("LOCKKIT_URL_FILE", &file);
    assert!(busy(by_environment));
    let mut by_option = other.lockkit(["--url-file".as_ref(), file.as_os_str()]);
    by_option.env("LOCKKIT_URL_FILE", "/no/such/file");
    assert!(busy(by_option), "the environment won");
    assert!(!busy(other.lockkit::<&str>([])));
    ends_well(&place, held);
    Ok(())
}

fn namespaces() -> Result<(), Failed> {
    let place = Place::new();
    let held = holding(&place, &["--namespace", "a"]);
    assert!(!is_free(&place, &["--namespace", "a"]));
    assert!(is_free(&place, &["--namespace", "b"]));
    runtime().block_on(async {
        let inspection = place.locker().await.mutex("a/job").unwrap().inspect().await.unwrap();
        assert_eq!(inspection.holders.len(), 1);
    });
    ends_well(&place, held);
    Ok(())
}

fn hold_for() -> Result<(), Failed> {
    let place = Place::new();
    let begun = Instant::now();
    let output = run(place.lockkit(["run", "--hold-for", "700ms", "job", "sh", "-c", "exit 6"]));
    assert_eq!(output.status.code(), Some(6));
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    assert!(is_free(&place, &[]));
    Ok(())
}

fn label() -> Result<(), Failed> {
    let place = Place::new();
    let label = |options: &[&str]| {
        let run = holding(&place, options);
        let pid = run.pid();
        let label = runtime().block_on(async {
            let inspection = place.locker().await.mutex("job").unwrap().inspect().await.unwrap();
            inspection.holders[0].label.clone().unwrap()
        });
        ends_well(&place, run);
        (label, pid.as_raw_nonzero())
    };
    let (text, pid) = label(&[]);
    assert!(
        text.starts_with(&format!("lockkit pid {pid} on ")) && text.ends_with(": sh"),
        "{text}"
    );
    assert_eq!(label(&["--label", "the nightly one"]).0, "the nightly one");
    Ok(())
}
