//! Puts faults into the scripts and into the client. The model must find each of them.

mod batch;
mod permits;
mod scripts;
mod tickets;
mod transfers;

use crate::{BATCHED, CLOCK_STEPS, DENIED, drain::HANGS, rules::Flaw, world::Setting};

/// A piece of a script, and its replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    pub(crate) script: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Edit {
    /// The text of a script with these edits.
    pub(crate) fn all(edits: &[Self], script: &str, text: &str) -> String {
        let ours = |edit: &&Self| {
            edit.script == script
                || edit.script == "hand_over" && text.contains("local function hand_over")
        };
        edits.iter().filter(ours).fold(text.to_owned(), |text, edit| {
            assert!(text.contains(edit.from), "{script} has nothing to replace for {edit:?}");
            text.replace(edit.from, edit.to)
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) edits: Vec<Edit>,
    pub(crate) flaw: Option<Flaw>,
    /// The setting that shows the fault, if not every setting does.
    pub(crate) setting: Option<Setting>,
    /// The promises that the fault breaks.
    pub(crate) breaks: &'static [&'static str],
}

fn script(
    name: &'static str,
    edits: &[(&'static str, &'static str, &'static str)],
    breaks: &'static [&'static str],
) -> Mutant {
    let edits = edits.iter().map(|&(script, from, to)| Edit { script, from, to }).collect();
    Mutant { name, edits, flaw: None, setting: None, breaks }
}

fn client(flaw: Flaw, name: &'static str, breaks: &'static [&'static str]) -> Mutant {
    Mutant { name, edits: Vec::new(), flaw: Some(flaw), setting: None, breaks }
}

const TWO: &str = "two owners believe that they hold";
const FALSE: &str = "an owner that does not hold believes that it holds";
const TOO_LONG: &str = "a holder's deadline is after the store's";
const LOCK_LEFT: &str = "a cancelled call left a lock";
const PLACE_LEFT: &str = "a cancelled call left a place";
const WINDOW: &str = "a hand-over has another lease than the claim window";
const OVERTAKEN: &str = "a waiter was overtaken";
const NOT_GIVEN: &str = "the lock is free although a client waits";
const DEAF: &str = "a hand-over went to a waiter that is dead or has no connection";
const PASSED_OVER: &str = "the first waiter was passed over";
const UNTOLD: &str = "two grants have one token, or a grant has none";
const REFUSED: &str = "a full server refused a request that needs no memory";
const DIFFER: &str = "the queue and the liveness entries differ";

/// The faults in the first parts of the scripts for permits.
pub(crate) fn first_parts() -> Vec<Mutant> {
    permits::first_parts()
}

/// The faults in the batches for permits, which a batch of one request shows.
pub(crate) fn permit_batches() -> Vec<Mutant> {
    batch::permits()
}

/// The faults in the batches for permits, which a batch of several requests shows.
pub(crate) fn permit_batches_of_several() -> Vec<Mutant> {
    batch::permits_of_several()
}

pub(crate) fn mutants() -> Vec<Mutant> {
    let mut mutants = scripts::all();
    mutants.extend(batch::all().map(|mutant| Mutant { setting: Some(BATCHED), ..mutant }));
    mutants.extend(transfers::all());
    mutants.extend(permits::all());
    mutants.extend(tickets::all());
    mutants.extend(clients());
    let clock = client(
        Flaw::ProofWithoutClock,
        "a proof that ignores steps of the clock",
        &["a proof reaches into the future"],
    );
    mutants.push(Mutant { setting: Some(CLOCK_STEPS), ..clock });
    let refused = script(
        "a hand-over that stops when a message is refused",
        &[("hand_over", "redis.pcall(", "redis.call(")],
        &[REFUSED, NOT_GIVEN],
    );
    mutants.push(Mutant { setting: Some(DENIED), ..refused });
    mutants
}

fn clients() -> [Mutant; 11] {
    [
        client(
            Flaw::ProofFromReceipt,
            "a proof whose window starts at the receipt",
            &[TOO_LONG, FALSE, TWO],
        ),
        client(Flaw::ProofBeforeAnchor, "a proof with a later anchor", &[TOO_LONG, FALSE, TWO]),
        client(
            Flaw::ProofOfLittle,
            "a proof for a window that is nearly over",
            &["a proof of less than half a window"],
        ),
        client(
            Flaw::DeadlineFromReply,
            "a lease that counts from the reply",
            &[TOO_LONG, FALSE, TWO],
        ),
        client(
            Flaw::UnansweredForgotten,
            "a release that reports a final outcome although an attempt may still arrive",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        client(Flaw::CancelOnlyLeaves, "a cancelled call that keeps the lock", &[LOCK_LEFT]),
        client(Flaw::OnlyListens, "a waiter that never polls", &[HANGS]),
        client(
            Flaw::TransferWithUnanswered,
            "a transfer although an attempt may still arrive",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        client(
            Flaw::SuccessorForgotten,
            "a transfer that forgets the new owner",
            &[LOCK_LEFT, "the lock is held after its release"],
        ),
        client(
            Flaw::PreviousBelieves,
            "a previous owner that still believes that it holds",
            &[FALSE, TWO],
        ),
        client(
            Flaw::CancelSilent,
            "a cancelled call that sends no request",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
    ]
}
