//! Tests every way to end, and its exit code.

use std::{fs, iter, os::unix::process::ExitStatusExt as _};

use libtest_mimic::Failed;
use lockkit::{Kind, LockName};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    Test,
    support::{Place, Running, run, runtime, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("codes::a_commands_own_end_is_passed_on", own_ends),
        ("codes::a_commands_signal_is_raised_again", signals),
        ("codes::126_and_127_are_told_apart_from_a_commands_own", not_executed),
        ("codes::a_busy_lock", busy),
        ("codes::too_long_a_run", max_run),
        ("codes::c7_a_release_that_finds_the_lock_lost", lost_at_the_end),
        ("codes::what_fails_before_the_run", failed),
    ]
}

/// Runs a shell line under a lock. Returns the exit code, the status file and the standard error.
fn shell(place: &Place, options: &[&str], line: &str) -> (Option<i32>, Value, String) {
    let status = place.path("status");
    let status_option = format!("--status-file={}", status.to_str().unwrap());
    let mut arguments = vec!["run", status_option.as_str()];
    arguments.extend(options);
    arguments.extend(["job", "sh", "-c", line]);
    let output = run(place.lockkit(arguments));
    let status = serde_json::from_str(&fs::read_to_string(status).unwrap()).unwrap();
    (output.status.code(), status, said(&output))
}

fn own_ends() -> Result<(), Failed> {
    // lockkit tries to release for three seconds.
    let place = Place::steady();
    for code in [0, 1, 75, 123, 124, 125, 126, 127, 200, 255] {
        let (ended, status, said) = shell(&place, &[], &format!("exit {code}"));
        assert_eq!(ended, Some(code), "{said}");
        assert_eq!(
            (&status["outcome"], &status["code"]),
            (&"exited".into(), &code.into()),
            "{status}"
        );
        assert_eq!(said, "", "for {code}");
        assert!(status["token"].as_u64().unwrap() > 0 && status["ran_ms"].is_u64(), "{status}");
    }
    let output = run(place.lockkit(["run", "job", "-c", "exit 9"]));
    assert_eq!(output.status.code(), Some(9), "{}", said(&output));
    Ok(())
}

fn signals() -> Result<(), Failed> {
    let place = Place::new();
    for signal in [Signal::KILL, Signal::TERM, Signal::SEGV, Signal::PIPE, Signal::HUP] {
        let number = signal.as_raw();
        let output = run(place.lockkit(["run", "job", "sh", "-c", &format!("kill -{number} $$")]));
        assert_eq!(output.status.signal(), Some(number), "{}", said(&output));
        assert!(!output.status.core_dumped());
    }
    let (_, status, _) = shell(&place, &[], "kill -9 $$");
    assert_eq!(
        (&status["outcome"], &status["signal"], &status["code"]),
        (&"signaled".into(), &9.into(), &137.into())
    );
    Ok(())
}

fn not_executed() -> Result<(), Failed> {
    // lockkit tries to release for three seconds.
    let place = Place::steady();
    let script = place.path("script");
    fs::write(&script, "#!/no/such/interpreter\n")?;
    let script = script.to_str().unwrap();
    let executable = place.path("executable");
    fs::write(&executable, "#!/no/such/interpreter\n")?;
    fs::set_permissions(&executable, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let executable = executable.to_str().unwrap();
    for (command, code, outcome) in [
        ("no-such-command", 127, "not_found"),
        ("/no/such/command", 127, "not_found"),
        (script, 126, "not_executable"),
        (executable, 126, "not_executable"),
        ("/", 126, "not_executable"),
    ] {
        let file = place.path("status");
        let option = format!("--status-file={}", file.to_str().unwrap());
        let output = run(place.lockkit(["run", &option, "job", command]));
        assert_eq!(output.status.code(), Some(code), "{command}: {}", said(&output));
        let status: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
        assert_eq!(status["outcome"], outcome, "{command}");
        let said = said(&output);
        assert!(said.lines().count() == 1 && said.contains(command), "{said}");
    }
    Ok(())
}

/// Makes `ask` try again while lockkit does not name the holder. It asks the store only for a
/// second who that is, which is not always enough on a busy machine.
fn naming_the_holder(ask: impl Fn() -> String) -> String {
    let mut told = iter::repeat_with(ask).take(6);
    told.find(|said| !said.contains("did not say by whom")).expect("a named holder")
}

fn busy() -> Result<(), Failed> {
    let place = Place::steady();
    runtime().block_on(async {
        let guard = place.locker().await.mutex("job").unwrap().lock().await.unwrap();
        for (options, code) in [
            (&["-n"][..], 75),
            (&["-w", "6500ms"], 75),
            (&["-n", "-E", "4"], 4),
            (&["-w", "0s", "-E", "0"], 0),
            (&["--timeout", "6.4"], 75),
        ] {
            let said = naming_the_holder(|| {
                let (ended, status, said) = shell(&place, options, "echo ran");
                assert_eq!(ended, Some(code), "{said}");
                assert_eq!((&status["outcome"], &status["token"]), (&"busy".into(), &Value::Null));
                said
            });
            let last = said.lines().last().unwrap();
            assert!(last.starts_with("lockkit: \"job\" is busy: held by somebody"), "{said}");
        }
        let asks = ["--format=json", "run", "-n", "job", "true"];
        let told = naming_the_holder(|| said(&run(place.lockkit(asks))));
        let event: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&event["event"], &event["name"]), (&"busy".into(), &"job".into()), "{event}");
        assert!(event["reason"].as_str().unwrap().starts_with("held by somebody"), "{event}");
        guard.release().await.unwrap();
    });
    Ok(())
}

fn max_run() -> Result<(), Failed> {
    let place = Place::new();
    let (ended, status, said) =
        shell(&place, &["--max-run", "200ms", "--grace", "100ms"], "trap '' TERM; sleep 30");
    assert_eq!((ended, &status["outcome"]), (Some(124), &"max_run".into()), "{said}");
    let (ended, status, said) =
        shell(&place, &["--max-run", "200ms"], "trap 'exit 3' TERM; sleep 30 & wait");
    assert_eq!((ended, &status["outcome"]), (Some(124), &"max_run".into()), "{said}");
    assert!(status["ran_ms"].as_u64().unwrap() >= 200, "{status}");
    Ok(())
}

/// The command ends before the next renewal could have reported the loss.
fn lost_at_the_end() -> Result<(), Failed> {
    // lockkit tries to release for three seconds.
    let place = Place::steady();
    let option = format!("--status-file={}", place.path("status").to_str().unwrap());
    let go = place.path("go");
    let line = format!(
        "echo up > {0}; until [ -e {1} ]; do sleep 0.01; done",
        place.path("up").display(),
        go.display()
    );
    let run =
        Running::start(place.lockkit(["run", "--ttl=60s", &option, "job", "sh", "-c", &line]));
    place.text("up");
    // Without this wait, the note about the start would discover the loss. A forced release would
    // notify the holder, and lockkit would stop the command.
    let runtime = runtime();
    let name = LockName::new(Kind::Mutex, "job")?;
    let locker = runtime.block_on(place.locker());
    until("the note", || {
        (!runtime.block_on(locker.note(&name)).unwrap().text.is_empty()).then_some(())
    });
    place.redis.ask(["FLUSHALL"])?;
    fs::write(go, "")?;
    let output = run.output();
    assert_eq!(output.status.code(), Some(123), "{}", said(&output));
    assert!(said(&output).contains("was lost while the command ran"), "{}", said(&output));
    let status: Value = serde_json::from_str(&fs::read_to_string(place.path("status"))?)?;
    assert_eq!((&status["outcome"], &status["code"]), (&"lost".into(), &123.into()));
    Ok(())
}

fn failed() -> Result<(), Failed> {
    let mut place = Place::new();
    place.redis.kill()?;
    let (ended, status, said) = shell(&place, &["-n"], "echo ran");
    assert_eq!(
        (ended, &status["outcome"], &status["code"]),
        (Some(125), &"failed".into(), &125.into()),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(status["reason"].as_str().unwrap().contains("127.0.0.1"), "{status}");
    Ok(())
}
