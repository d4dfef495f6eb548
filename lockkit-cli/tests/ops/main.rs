//! Tests the other commands as a user runs them: real processes on a real Redis and on the file
//! store.

mod doctor;
mod elect;
#[path = "../run/heart.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod heart;
mod look;
mod once;
mod outputs;
#[path = "../run/procfs.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod procfs;
mod slots;
mod stalled;
mod status;
mod stores;
#[path = "../run/support.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod support;
mod sweep;
mod text;
mod unlock;

use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    if heart::beat_if_told() {
        return;
    }
    support::hear_all_signals();
    let trials = [
        doctor::trials(),
        elect::trials(),
        look::trials(),
        once::trials(),
        outputs::trials(),
        slots::trials(),
        stalled::trials(),
        status::trials(),
        stores::trials(),
        sweep::trials(),
        text::trials(),
        unlock::trials(),
    ];
    let trials = trials.into_iter().flatten().map(|(name, test)| Trial::test(name, test)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A test and its name.
type Test = (&'static str, fn() -> Result<(), Failed>);

/// The standard output.
fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Each line of standard output, which is JSON.
fn json(output: &Output) -> Vec<serde_json::Value> {
    told(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The output of a command that must end with code 0.
fn good(command: Command) -> Output {
    let output = support::run(command);
    assert_eq!(output.status.code(), Some(0), "{}", support::said(&output));
    output
}
