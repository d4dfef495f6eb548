use super::builder::{HistoryBuilder, ms};
use crate::{
    check::Rule,
    history::{Event, Outcome, Patience, Refusal},
};

#[test]
fn c8_a_request_that_never_ends() {
    let mut told = HistoryBuilder::new();
    told.asks(0, 1);
    told.ends(9000, 1);
    assert_eq!(
        told.breaks(Rule::Waiting).what,
        "p1.1 never got an answer, although its process lived"
    );
}

#[test]
fn c7_a_release_that_never_ends() {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.releases(10, op).ends(9000, 1).breaks(Rule::Waiting);
}

#[test]
fn c8_a_killed_process_leaves_its_history_cut() {
    let mut told = HistoryBuilder::new();
    told.asks(0, 1);
    let op = told.holder(5, 2, 1);
    told.releases(20, op).killed(20, 1).killed(21, 2).is_fine();
}

#[test]
fn c8_a_process_that_ended_in_order_is_not_excused() {
    let mut told = HistoryBuilder::new();
    told.asks(0, 1);
    told.ends(100, 1)
        .write(110, crate::history::DIRECTOR, Event::Died { victim: 1 })
        .breaks(Rule::Waiting);
}

/// A request that is refused at `end`.
fn waits(patience: Patience, why: Refusal, end: u64) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    let op = told.patient(patience).asks(0, 1);
    told.refused(end, op, why);
    told
}

#[test]
fn c8_a_bound_is_kept() {
    waits(Patience::For(ms(300)), Refusal::TimedOut, 400).is_fine();
    waits(Patience::UntilDropped(ms(300)), Refusal::Cancelled, 400).is_fine();
    waits(Patience::Unbounded, Refusal::Failed("closed".to_owned()), 100_000).is_fine();
}

#[test]
fn c8_a_bound_is_not_kept() {
    waits(Patience::For(ms(300)), Refusal::TimedOut, 401).breaks(Rule::Waiting);
    waits(Patience::UntilDropped(ms(300)), Refusal::Cancelled, 401).breaks(Rule::Waiting);
    waits(Patience::No, Refusal::TimedOut, 3100).is_fine();
    waits(Patience::No, Refusal::TimedOut, 3101).breaks(Rule::Waiting);
}

#[test]
fn c8_time_in_which_the_process_was_stopped_does_not_count() {
    let mut told = waits(Patience::For(ms(300)), Refusal::TimedOut, 900);
    told.fault(200, 800, "stop-holder", Some(1), None).is_fine();
    let mut told = waits(Patience::For(ms(300)), Refusal::TimedOut, 900);
    told.fault(200, 800, "stop-holder", Some(2), None).breaks(Rule::Waiting);
}

#[test]
fn c8_a_bound_is_kept_even_if_the_link_is_cut() {
    for victim in [Some(1), None] {
        let mut told = waits(Patience::For(ms(300)), Refusal::TimedOut, 900);
        told.fault(200, 800, "link-silence", victim, None).breaks(Rule::Waiting);
    }
}

#[test]
fn c8_a_grant_after_the_bound_is_late_as_well() {
    let mut told = HistoryBuilder::new();
    let op = told.patient(Patience::For(ms(300))).asks(0, 1);
    told.granted(500, op, 1, 1500).released(510, op, Outcome::Freed).breaks(Rule::Waiting);
}

#[test]
fn c8_a_free_lock_is_not_busy() {
    for (end, fine) in [(2000, true), (1000, false)] {
        let mut told = HistoryBuilder::new();
        let first = told.holder(900, 2, 1);
        told.released(end, first, Outcome::Freed);
        let op = told.patient(Patience::No).asks(2500, 1);
        told.refused(2510, op, Refusal::Busy);
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Waiting);
            told.fault(1500, 1510, "stop", None, None).is_fine();
        }
    }
}
