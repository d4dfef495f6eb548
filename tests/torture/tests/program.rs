//! Tests the program as a user starts it.

use std::process::{Command, Output};

fn torture(arguments: &[&str]) -> (Option<i32>, String, String) {
    let program = env!("CARGO_BIN_EXE_lockkit-torture");
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_seed_gives_the_same_output_again() {
    let (code, first, errors) = torture(&["simulate", "--seed", "42"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(
        first.starts_with("# seed 42, digest ") && first.contains("The locks kept every promise"),
        "{first}"
    );
    assert_eq!(torture(&["simulate", "--seed", "42"]).1, first);
    let (code, many, _) = torture(&["simulate", "--seed", "7", "--count", "20"]);
    assert_eq!((code, many.as_str()), (Some(0), "20 seeds: the locks kept every promise\n"));
}

#[test]
fn c13_a_refused_operation_is_reported_without_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    for (arguments, text) in [
        (
            &["run", "--url", "redis://:hunter2@127.0.0.1:1/", "--out", &out][..],
            "could not connect to the store",
        ),
        (&["run", "redis://:hunter2@127.0.0.1:1/"], "unexpected argument"),
        (&["run", "--ttl=redis://:hunter2@h"], "invalid value"),
        (&["run", "--out", &out], "no store was given"),
        (&["run", "--url-from", "/nowhere", "--out", &out], "could not read /nowhere"),
        (
            &["run", "--url", "memory://", "--out", &out],
            "each process would have its own memory store",
        ),
        (&["check", "/nowhere"], "/nowhere is not the folder of a round"),
    ] {
        let (code, _, errors) = torture(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
}
