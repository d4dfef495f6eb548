use super::builder::{HistoryBuilder, rw_lock};
use crate::{
    check::Rule,
    history::{Mode, Outcome},
};

#[test]
fn c4_a_stopped_holder_that_is_late_and_refused_is_fine() {
    let mut told = HistoryBuilder::new();
    let late = told.holder(0, 1, 1);
    told.wrote(2, late, 1, 0, true, false).fault(10, 1500, "stop-holder", Some(1), None);
    let next = told.asks(20, 2);
    told.granted(1010, next, 2, 2010).wrote(1020, next, 2, 1, true, false).released(
        1030,
        next,
        Outcome::Freed,
    );
    told.wrote(1501, late, 1, 2, false, false)
        .lost(1505, late)
        .released(1510, late, Outcome::NotHeld)
        .is_fine();
}

#[test]
fn c4_an_accepted_smaller_token_is_reported() {
    let mut told = HistoryBuilder::new();
    let first = told.holder(0, 1, 1);
    told.released(5, first, Outcome::Freed);
    let second = told.holder(10, 2, 2);
    told.wrote(20, second, 2, 0, true, false).wrote(30, first, 1, 2, true, true).released(
        40,
        second,
        Outcome::Freed,
    );
    let violation = told.breaks(Rule::Register);
    assert_eq!(violation.what, "the register accepted token 1 of p1.1 after token 2");
}

#[test]
fn c4_a_register_that_forgets_is_reported() {
    let mut told = HistoryBuilder::new();
    let first = told.holder(0, 1, 5);
    told.wrote(2, first, 5, 0, true, false).wrote(20, first, 5, 0, true, false).released(
        40,
        first,
        Outcome::Freed,
    );
    told.breaks(Rule::Register);
}

#[test]
fn c4_a_refusal_without_a_larger_token_is_reported() {
    let mut told = HistoryBuilder::new();
    let first = told.holder(0, 1, 5);
    told.released(10, first, Outcome::Freed).wrote(20, first, 5, 0, false, true);
    told.breaks(Rule::Register);
}

/// The register refuses a holder, because a late writer has used a larger token.
fn refused(mode: Mode, careless: bool, weakens: Option<&str>) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    told.of(rw_lock(), mode);
    told.fault(1, 2, "failover", None, weakens);
    let holder = told.asks(0, 1);
    let other = told.asks(0, 2);
    // The other claim had its answer too late to hold at all.
    told.granted(10, holder, 1, 1000).granted(11, other, 2, 11).released(
        12,
        other,
        Outcome::NotHeld,
    );
    told.wrote(20, other, 2, 0, true, true).wrote(30, holder, 1, 2, false, careless);
    told.released(40, holder, Outcome::Freed);
    told
}

#[test]
fn c1_a_careful_holder_is_not_refused() {
    let violation = refused(Mode::Exclusive, false, None).breaks(Rule::Register);
    assert_eq!(
        violation.what,
        "p1.1 held with token 1 and was refused, because the register had accepted 2"
    );
}

#[test]
fn c1_a_careless_holder_or_a_reader_may_be_refused() {
    refused(Mode::Exclusive, true, None).is_fine();
    refused(Mode::Shared, false, None).is_fine();
}

#[test]
fn c1_a_documented_refusal_is_listed_separately() {
    let verdict = refused(Mode::Exclusive, false, Some("a failover may lose a lock")).is_fine();
    assert_eq!(verdict.documented.len(), 1);
    assert_eq!(verdict.documented[0].documented.as_deref(), Some("a failover may lose a lock"));
}

#[test]
fn c1_a_writer_that_lost_or_releases_may_be_refused() {
    let mut told = HistoryBuilder::new();
    let first = told.holder(0, 1, 1);
    let second = told.asks(3, 2);
    told.early().lost(5, first).granted(6, second, 2, 1006).wrote(10, second, 2, 0, true, false);
    told.wrote(20, first, 1, 2, false, false);
    told.released(30, first, Outcome::NotHeld).released(40, second, Outcome::Freed).is_fine();
}

#[test]
fn c4_a_fault_excuses_no_token() {
    let mut told = refused(Mode::Shared, false, Some("a failover may lose a lock"));
    let second = told.holder(50, 3, 3);
    told.wrote(60, second, 3, 2, true, false).wrote(70, second, 3, 3, true, false).released(
        80,
        second,
        Outcome::Freed,
    );
    let first =
        told.records.iter().find_map(|record| super::super::index::op_of(&record.event)).unwrap();
    told.wrote(90, first, 1, 3, true, true);
    told.breaks(Rule::Register);
}
