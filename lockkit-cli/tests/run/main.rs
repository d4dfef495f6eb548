//! Tests `lockkit run` as a user runs it: real processes under locks of a real Redis.
//!
//! The test binary starts itself again as a heart, which beats for as long as it lives. A variable
//! tells the new process to be one.

mod away;
mod codes;
mod dead;
mod heart;
mod loss;
mod modes;
mod namespaces;
mod pipes;
mod processes;
mod procfs;
mod refusal;
mod signals;
mod support;
mod terminal;
mod users;
mod waiting;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    if heart::beat_if_told() {
        return;
    }
    support::hear_all_signals();
    let trials = [
        away::trials(),
        codes::trials(),
        dead::trials(),
        loss::trials(),
        modes::trials(),
        namespaces::trials(),
        pipes::trials(),
        processes::trials(),
        refusal::trials(),
        signals::trials(),
        terminal::trials(),
        users::trials(),
        waiting::trials(),
    ];
    let trials = trials.into_iter().flatten().map(|(name, test)| Trial::test(name, test)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A test and its name.
type Test = (&'static str, fn() -> Result<(), Failed>);
