use super::builder::{HistoryBuilder, ms};
use crate::history::{Outcome, Refusal};

#[test]
fn all_is_counted_once() {
    let mut told = HistoryBuilder::new();
    let first = told.holder(0, 1, 1);
    told.early().wrote(5, first, 1, 0, true, false).lost(8, first).released(
        10,
        first,
        Outcome::NotHeld,
    );
    for (at, why) in (20..).zip([
        Refusal::Busy,
        Refusal::Cancelled,
        Refusal::Failed("no".to_owned()),
        Refusal::Unknown("?".to_owned()),
    ]) {
        let op = told.asks(at, 1);
        told.refused(at, op, why);
    }
    for (at, outcome) in
        (30..).step_by(10).zip([Outcome::Dropped, Outcome::Unknown("?".to_owned())])
    {
        let op = told.holder(at, 1, at);
        told.released(at + 5, op, outcome);
    }
    told.wrote(50, first, 1, 1, true, true);
    let figures = told.is_fine().figures;
    assert_eq!((figures.requests, figures.grants, figures.losses), (7, 3, 1));
    assert_eq!((figures.unknown, figures.failed, figures.dropped), (2, 1, 2));
    assert_eq!((figures.accepted, figures.refused), (2, 0));
}

#[test]
fn a_recovery_lasts_from_the_kill_to_the_next_grant_of_the_held_name() {
    let mut told = HistoryBuilder::new();
    told.holder(0, 1, 1);
    let waiter = told.asks(50, 2);
    told.killed(100, 1).granted(1050, waiter, 2, 2000).released(1060, waiter, Outcome::Freed);
    // No claim waits for this one.
    told.holder(1100, 3, 3);
    told.killed(1110, 3);
    let figures = told.is_fine().figures;
    assert_eq!(figures.faults["kill-holder"], 2);
    assert_eq!(figures.recoveries["kill-holder"], [ms(950)]);
}

#[test]
fn a_recovery_is_from_the_end_of_a_fault_that_lasts() {
    let mut told = HistoryBuilder::new();
    told.fault(100, 400, "pause", None, None);
    let op = told.asks(50, 1);
    told.granted(450, op, 1, 1400).released(460, op, Outcome::Freed);
    told.fault(500, 600, "restart", None, None);
    let figures = told.is_fine().figures;
    assert_eq!(figures.recoveries["pause"], [ms(50)]);
    assert!(
        !figures.recoveries.contains_key("restart"),
        "the history does not show how long this took"
    );
}
