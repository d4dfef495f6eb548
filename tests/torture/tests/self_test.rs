//! Tests the checker with stores that have deliberate flaws. In the simulation, the rule against a
//! flaw catches it within a fixed number of seeds. The right store is clean over the same seeds.

#[path = "support/seeds.rs"]
mod seeds;

use std::{
    ops::Range,
    sync::Mutex,
    time::{Duration, Instant},
};

use lockkit_conformance::mutant::Flaw;
use lockkit_torture::{
    check::{Rule, check},
    ear::Ear,
    sim::{Scenario, run},
};

use self::seeds::in_parallel;

const SEEDS: Range<u64> = 0..1_500;

/// The rules for the flaw. At least one rule must find it. The other flaws need a case of the
/// conformance suite, because no history shows them.
const CAUGHT: [(Flaw, &[Rule]); 21] = [
    (Flaw::AttemptByAnotherOwner, &[Rule::Exclusion, Rule::Leaks]),
    (Flaw::ConstantToken, &[Rule::Tokens]),
    (Flaw::DeadlineFromReply, &[Rule::Exclusion]),
    (Flaw::DeleteWithoutCompare, &[Rule::Exclusion]),
    (Flaw::ExtendThatShortens, &[Rule::Exclusion]),
    (Flaw::LimitOffByOne, &[Rule::Exclusion]),
    (Flaw::LostRenewalIgnored, &[Rule::Exclusion, Rule::Register]),
    (Flaw::NeverRenewed, &[Rule::Renewal]),
    (Flaw::NoLease, &[Rule::Waiting, Rule::Takeover]),
    (Flaw::NoRecheckAfterWait, &[Rule::Exclusion]),
    (Flaw::QueueEntryStays, &[Rule::Leaks]),
    (Flaw::ReadersApart, &[Rule::Exclusion]),
    (Flaw::ReleasedIsNotHeld, &[Rule::Renewal]),
    (Flaw::RenewalOfNothing, &[Rule::Exclusion]),
    // The store shows another token than the holder has.
    (Flaw::RenewalRecreates, &[Rule::Tokens, Rule::Exclusion]),
    (Flaw::RenewsOnce, &[Rule::Renewal]),
    (Flaw::ReplyLostIsFailed, &[Rule::Ambiguity]),
    (Flaw::RetryReportsWholeLease, &[Rule::Exclusion]),
    (Flaw::SlowRenewalIgnored, &[Rule::Renewal]),
    (Flaw::TokenSharedByPermits, &[Rule::Tokens]),
    (Flaw::UnreleasedOnTrouble, &[Rule::Leaks]),
];

fn rules(scenario: Scenario) -> Vec<(Rule, String)> {
    let run = run(scenario);
    let violations = check(&run.records, &run.terms).violations;
    violations.into_iter().map(|violation| (violation.rule, violation.what)).collect()
}

/// The first seed in which a rule against the flaw finds it, and the finding.
fn first(
    wrong: impl Fn(Scenario) -> Scenario + Sync,
    expected: &[Rule],
) -> Option<(u64, Rule, String)> {
    let first = Mutex::new(None::<(u64, Rule, String)>);
    in_parallel(SEEDS, |seed| {
        let told = rules(wrong(Scenario::new(seed)));
        let Some((rule, what)) = told.into_iter().find(|(rule, _)| expected.contains(rule)) else {
            return true;
        };
        let mut first = first.lock().unwrap();
        if first.as_ref().is_none_or(|(earlier, ..)| seed < *earlier) {
            *first = Some((seed, rule, what));
        }
        false
    });
    first.into_inner().unwrap()
}

#[test]
fn each_flaw_is_caught_by_its_rule() {
    let mut missed = Vec::new();
    let started = Instant::now();
    for (flaw, expected) in CAUGHT {
        match first(|scenario| scenario.with_flaw(flaw), expected) {
            Some((seed, rule, what)) => {
                println!("{flaw:?}: after {} seeds, by {rule}: {what}", seed + 1)
            }
            None => missed.push(flaw),
        }
    }
    println!("{:?}", started.elapsed());
    assert!(missed.is_empty(), "not caught within {SEEDS:?}: {missed:?}");
}

#[test]
fn c3_a_signal_that_never_comes_or_comes_late_is_caught() {
    for ear in [Ear::Deaf, Ear::Late(Duration::from_millis(10))] {
        let (seed, rule, what) = first(|scenario| scenario.with_ear(ear), &[Rule::Loss]).unwrap();
        println!("{ear:?}: after {} seeds, by {rule}: {what}", seed + 1);
    }
}
