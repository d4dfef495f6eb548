use super::builder::HistoryBuilder;
use crate::{
    check::Rule,
    history::{Outcome, Renewal},
};

const WORDS: Option<&str> = Some("an operator may free a lock");

fn held() -> (HistoryBuilder, crate::history::Op) {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    (told, op)
}

#[test]
fn c7_not_held_before_the_end_of_the_lease_needs_a_cause() {
    let (mut told, op) = held();
    let violation = told.released(100, op, Outcome::NotHeld).breaks(Rule::Renewal);
    assert_eq!(violation.what, "p1.1 no longer held the lock, 899ms before the end of its lease");
    told.fault(50, 51, "eviction", None, WORDS).is_fine();
    let (mut told, op) = held();
    told.fault(50, 51, "stop", None, None)
        .released(100, op, Outcome::NotHeld)
        .breaks(Rule::Renewal);
    let (mut told, op) = held();
    told.released(1000, op, Outcome::NotHeld).is_fine();
}

#[test]
fn c10_a_loss_before_the_end_of_the_lease_needs_a_cause() {
    let (mut told, op) = held();
    told.lost(100, op).released(101, op, Outcome::NotHeld).breaks(Rule::Renewal);
    told.terms.ends_with_links = true;
    told.breaks(Rule::Renewal);
    told.fault(50, 51, "link-reset", Some(1), None).is_fine();
    told.terms.ends_with_links = false;
    told.breaks(Rule::Renewal);
}

#[test]
fn c10_a_loss_at_an_earlier_end_that_a_renewal_reported_needs_no_cause() {
    let renewed = |until: u64| {
        let (mut told, op) = held();
        told.renews(100, op).holds(500, op, until).lost(601, op);
        told.released(602, op, Outcome::NotHeld);
        told
    };
    renewed(600).is_fine();
    renewed(900).breaks(Rule::Renewal);
}

#[test]
fn c10_a_live_holder_must_be_renewed_unless_a_fault_prevents_it() {
    let silence = "link-silence";
    let slow = "link-slow";
    for (fault, fine) in [
        (None, false),
        (Some((silence, 2)), false),
        (Some((silence, 1)), true),
        (Some((slow, 1)), false),
    ] {
        let mut told = HistoryBuilder::new();
        told.renewed(Renewal::Auto);
        let op = told.holder(0, 1, 1);
        told.holds(900, op, 1000).lost(1001, op).released(1002, op, Outcome::NotHeld);
        if let Some((kind, victim)) = fault {
            told.fault(500, 600, kind, Some(victim), None);
        }
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Renewal);
        }
        told.terms.ends_with_links = true;
        if fine || fault == Some((slow, 1)) {
            told.is_fine();
        } else {
            told.breaks(Rule::Renewal);
        }
    }
    let mut told = HistoryBuilder::new();
    told.renewed(Renewal::Auto).at_most(super::builder::ms(1000));
    let op = told.holder(0, 1, 1);
    told.lost(1001, op).released(1002, op, Outcome::NotHeld).is_fine();
}
