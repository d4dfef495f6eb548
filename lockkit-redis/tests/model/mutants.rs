//! Puts faults into the scripts and into the client. The model must find each of them.

mod scripts;

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
                || edit.script == "hand_over"
                    && !matches!(script, "extend" | "raise_token" | "batch")
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

const TWO: &str = "two believe that they hold";
const FALSE: &str = "one believes that it holds, and doesn't";
const TOO_LONG: &str = "a holder counts on too long a lease";
const LOCK_LEFT: &str = "a lock is left of one who gave up";
const PLACE_LEFT: &str = "a place is left of one who gave up";
const WINDOW: &str = "a hand-over's lease is not the claim window";
const OVERTAKEN: &str = "a waiter was overtaken";
const NOT_GIVEN: &str = "the lock is free, and a waiter was not given it";
const DEAF: &str = "given to a waiter who is dead or deaf";
const PASSED_OVER: &str = "one who was to go first was passed over";
const UNTOLD: &str = "a lock without a token of its own";
const REFUSED: &str = "a full server refused what takes no memory";
const DIFFER: &str = "queue and liveness differ";

pub(crate) fn mutants() -> Vec<Mutant> {
    let mut mutants = scripts::all();
    mutants.extend(scripts::batches().map(|mutant| Mutant { setting: Some(BATCHED), ..mutant }));
    mutants.extend([
        client(
            Flaw::ProofFromReceipt,
            "a proof that counts from the receipt",
            &[TOO_LONG, FALSE, TWO],
        ),
        client(Flaw::ProofBeforeAnchor, "a proof from a later anchor", &[TOO_LONG, FALSE, TWO]),
        client(
            Flaw::ProofOfLittle,
            "a proof of a window that is nearly over",
            &["a proof of less than half a window"],
        ),
        client(Flaw::DeadlineFromReply, "a lease counted from the reply", &[TOO_LONG, FALSE, TWO]),
        client(
            Flaw::UnansweredForgotten,
            "a release that is final although an unanswered attempt may arrive",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        client(Flaw::CancelOnlyLeaves, "a cancel that gives nothing back", &[LOCK_LEFT]),
        client(Flaw::OnlyListens, "a waiter that only listens", &[HANGS]),
        client(
            Flaw::TransferWithUnanswered,
            "a hand-over though an attempt may still arrive",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        client(
            Flaw::SuccessorForgotten,
            "a new owner who is forgotten",
            &[LOCK_LEFT, "released, and still held"],
        ),
        client(Flaw::PreviousBelieves, "a previous owner who believes on", &[FALSE, TWO]),
        client(Flaw::CancelSilent, "a cancel that tells nobody", &[LOCK_LEFT, PLACE_LEFT]),
    ]);
    let clock = client(
        Flaw::ProofWithoutClock,
        "a proof without a look at the clock",
        &["a proof reaches into the future"],
    );
    mutants.push(Mutant { setting: Some(CLOCK_STEPS), ..clock });
    let refused = script(
        "a hand-over that ends where a message is refused",
        &[("hand_over", "redis.pcall(", "redis.call(")],
        &[REFUSED, NOT_GIVEN],
    );
    mutants.push(Mutant { setting: Some(DENIED), ..refused });
    mutants
}
