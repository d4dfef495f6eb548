use std::collections::BTreeSet;

use super::builder::{HistoryBuilder, rw_lock};
use crate::{
    check::Rule,
    history::{DIRECTOR, Event, Mode, Op, Outcome, Refusal},
};

/// A request that is refused at 50 ms, and a look at its lock.
fn refused(why: Refusal, look: u64) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    // A claim that asks at the same time may have had the lock.
    let other = told.asks(0, 8);
    told.refused(1, other, Refusal::Cancelled);
    told.refused(50, op, why).seen(look, 9, &[(op, 1)]);
    told
}

/// A hold that is released from 49 to 50 ms, and a look at its lock.
fn released(outcome: Outcome, look: u64) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.early().released(49, op, outcome).seen(look, 9, &[(op, 1)]);
    told
}

#[test]
fn c5_a_claim_that_failed_for_certain_is_not_in_the_store() {
    refused(Refusal::Failed("no quorum".to_owned()), 50).is_fine();
    refused(Refusal::Failed("no quorum".to_owned()), 51).breaks(Rule::Ambiguity);
}

#[test]
fn c5_a_possible_grant_ends_with_its_lease() {
    for why in [Refusal::TimedOut, Refusal::Cancelled, Refusal::Unknown("reset".to_owned())] {
        refused(why.clone(), 1150).is_fine();
        refused(why, 1151).breaks(Rule::Ambiguity);
    }
}

#[test]
fn c5_a_busy_claim_is_not_granted_soon_after_without_a_fault() {
    refused(Refusal::Busy, 150).is_fine();
    refused(Refusal::Busy, 151).breaks(Rule::Ambiguity);
    for why in ["link-reset", "weather"] {
        let mut told = refused(Refusal::Busy, 1000);
        told.fault(10, 20, why, None, None).is_fine();
    }
}

#[test]
fn c5_no_fault_excuses_a_grant_of_a_request_that_failed_for_certain() {
    let mut told = refused(Refusal::Failed("no quorum".to_owned()), 51);
    told.fault(10, 20, "failover", None, Some("a failover may lose a lock"))
        .breaks(Rule::Ambiguity);
}

#[test]
fn c7_a_released_lock_is_free() {
    released(Outcome::Freed, 50).is_fine();
    let violation = released(Outcome::Freed, 51).breaks(Rule::Ambiguity);
    assert_eq!(
        violation.what,
        "p1.1 released the lock, but a look at the store 1ms later shows it as a holder"
    );
    // The local deadline is before the end of the lease in the store.
    released(Outcome::NotHeld, 1150).is_fine();
    released(Outcome::NotHeld, 1151).breaks(Rule::Ambiguity);
}

/// A hold with token 7 that is released from 49 to 50 ms, and a look that shows these tokens for it.
fn shown(tokens: &[u64], look: u64) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    told.terms.ends_with_links = true;
    let op = told.of(rw_lock(), Mode::Shared).holder(0, 1, 7);
    let holders: Vec<_> = tokens.iter().map(|token| (op, *token)).collect();
    told.early().released(49, op, Outcome::Freed).seen(look, 9, &holders);
    told
}

#[test]
fn c5_a_late_request_of_an_earlier_session_ends_with_that_session() {
    for token in [6, 8] {
        shown(&[token], 1101).is_fine();
        let violations = shown(&[token], 1102).verdict().violations;
        let rules: BTreeSet<_> = violations.iter().map(|violation| violation.rule).collect();
        assert_eq!(rules, BTreeSet::from([Rule::Ambiguity, Rule::Tokens]));
        shown(&[token, 7], 30).is_fine();
        shown(&[token], 30).breaks(Rule::Tokens);
    }
    shown(&[7], 51).breaks(Rule::Ambiguity);
    // The lease of a claim does not end with its session.
    let mut told = shown(&[8, 7], 30);
    told.terms.ends_with_links = false;
    told.breaks(Rule::Tokens);
}

#[test]
fn c7_an_unknown_release_is_over_when_the_lease_has_passed() {
    let unknown = || Outcome::Unknown("reset".to_owned());
    for outcome in [unknown(), Outcome::Dropped, Outcome::Failed("refused".to_owned())] {
        released(outcome.clone(), 1150).is_fine();
        released(outcome, 1151).breaks(Rule::Ambiguity);
    }
}

#[test]
fn c5_a_fault_extends_the_bound_of_an_unknown_request() {
    let mut told = refused(Refusal::Unknown("reset".to_owned()), 2100);
    told.fault(1000, 1200, "pause", None, None).is_fine();
}

#[test]
fn c9_a_dead_holder_ends_with_its_lease() {
    for (look, fine) in [(1201, true), (1202, false)] {
        let mut told = HistoryBuilder::new();
        let op = told.holder(0, 1, 1);
        told.killed(100, 1).seen(look, 9, &[(op, 1)]);
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Ambiguity);
        }
    }
}

#[test]
fn c7_a_lock_that_a_failover_brings_back_is_documented() {
    let mut told = released(Outcome::Freed, 100);
    told.fault(60, 70, "failover", None, Some("a failover may bring a lock back"));
    assert_eq!(told.is_fine().documented.len(), 1);
}

fn applied(told: &mut HistoryBuilder, at: u64, op: Op) -> &mut HistoryBuilder {
    told.write(at, DIRECTOR, Event::Applied { op, token: 1 })
}

#[test]
fn c5_a_request_that_failed_for_certain_was_not_applied() {
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    applied(&mut told, 10, op)
        .refused(20, op, Refusal::Failed("no".to_owned()))
        .breaks(Rule::Ambiguity);
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    told.refused(20, op, Refusal::Failed("no".to_owned()));
    applied(&mut told, 30, op).breaks(Rule::Ambiguity);
}

#[test]
fn c5_a_cancelled_or_unknown_request_may_have_been_applied() {
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    applied(&mut told, 10, op).write(15, DIRECTOR, Event::Gone { op });
    told.refused(20, op, Refusal::Failed("no".to_owned())).is_fine();
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    applied(&mut told, 10, op).refused(20, op, Refusal::Unknown("reset".to_owned())).is_fine();
}

#[test]
fn c7_a_failover_can_lose_a_release() {
    let after = |async_failover, fault: Option<&str>| {
        let mut told = released(Outcome::Freed, 900);
        told.terms.async_failover = async_failover;
        if let Some(kind) = fault {
            told.fault(60, 200, kind, None, None);
        }
        told
    };
    after(true, Some("failover")).is_fine();
    after(false, Some("kill")).breaks(Rule::Ambiguity);
    after(true, None).breaks(Rule::Ambiguity);
}
