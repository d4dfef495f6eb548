use super::builder::{HistoryBuilder, rw_lock};
use crate::{
    check::Rule,
    history::{Mode, Op, Outcome, Patience, Refusal},
};

/// A holder with a lease until 1010 is killed at 100, and another process waits from 50 on. Other
/// claims held the lock before.
fn killed() -> (HistoryBuilder, Op) {
    let mut told = HistoryBuilder::new();
    for (at, outcome) in [(0, Outcome::Freed), (4, Outcome::Dropped)] {
        let before = told.holder(at, 1, at);
        told.released(at + 2, before, outcome);
    }
    told.holder(10, 1, 8);
    let waiter = told.asks(50, 2);
    told.killed(100, 1);
    (told, waiter)
}

fn granted(told: &mut HistoryBuilder, op: Op, at: u64) -> &mut HistoryBuilder {
    told.granted(at, op, 9, at + 1000)
        .released(at + 10, op, Outcome::Freed)
        .ends(at + 9000, op.process)
}

#[test]
fn c9_another_process_gets_a_dead_holders_lock_within_its_lease() {
    let (mut told, waiter) = killed();
    granted(&mut told, waiter, 1200).is_fine();
}

#[test]
fn c9_a_missing_successor_is_reported() {
    let (mut told, waiter) = killed();
    let violation = granted(&mut told, waiter, 1300).breaks(Rule::Takeover);
    assert!(
        violation.what.starts_with(
            "p1.3 died with the lock that p2.4 waited for. No claim had it 1.1s later"
        ),
        "{violation:?}"
    );
}

#[test]
fn c9_another_process_gets_the_lock_of_a_dead_single_reader() {
    let mut told = HistoryBuilder::new();
    told.of(rw_lock(), Mode::Shared).holder(0, 1, 1);
    let before = told.holder(10, 4, 2);
    told.released(20, before, Outcome::Freed);
    let writer = told.of(rw_lock(), Mode::Exclusive).asks(50, 2);
    told.killed(100, 1);
    let reader = told.clone().of(rw_lock(), Mode::Shared).holder(60, 3, 3);
    let mut alone = told.clone();
    granted(&mut alone, writer, 1500).breaks(Rule::Takeover);
    // Beside another holder, which may hold as long as it likes.
    told.of(rw_lock(), Mode::Shared).holder(60, 3, 3);
    told.released(900, reader, Outcome::Freed);
    granted(&mut told, writer, 1500).is_fine();
}

#[test]
fn c9_a_waiter_that_asks_after_the_lease_is_not_delayed_either() {
    let mut told = HistoryBuilder::new();
    told.holder(0, 1, 1);
    told.killed(100, 1);
    let waiter = told.asks(1150, 2);
    let late = told.clone();
    granted(&mut told, waiter, 1249).is_fine();
    granted(&mut late.clone(), waiter, 1400).breaks(Rule::Takeover);
}

#[test]
fn c9_a_waiter_that_stopped_at_its_bound_was_not_delayed() {
    let mut told = HistoryBuilder::new();
    told.holder(0, 1, 1);
    told.patient(Patience::For(super::builder::ms(900)));
    let waiter = told.asks(50, 2);
    told.killed(100, 1).refused(951, waiter, Refusal::TimedOut);
    told.ends(9000, 2).is_fine();
}

#[test]
fn c9_each_dead_waiter_adds_its_own_bound() {
    let (mut told, waiter) = killed();
    told.asks(60, 3);
    told.killed(400, 3);
    let slow = told.clone();
    granted(&mut told, waiter, 2190).is_fine();
    granted(&mut slow.clone(), waiter, 2400).breaks(Rule::Takeover);
}

#[test]
fn c9_a_claim_of_unknown_outcome_may_delay_the_next() {
    let (mut told, waiter) = killed();
    let other = told.asks(60, 3);
    told.refused(800, other, Refusal::Unknown("timed out".to_owned()));
    granted(&mut told, waiter, 1900).is_fine();
}

#[test]
fn c9_a_fault_of_the_servers_extends_the_bound() {
    let (mut told, waiter) = killed();
    told.fault(600, 1600, "pause", None, None);
    let slow = told.clone();
    granted(&mut told, waiter, 2600).is_fine();
    granted(&mut slow.clone(), waiter, 2800).breaks(Rule::Takeover);
}

#[test]
fn c9_a_waiter_that_was_hit_itself_proves_nothing() {
    let (mut told, waiter) = killed();
    told.fault(600, 5000, "stop-holder", Some(2), None);
    granted(&mut told, waiter, 5050).is_fine();
}

#[test]
fn c9_a_lock_released_or_ended_before_delays_no_waiter() {
    let mut told = HistoryBuilder::new();
    let first = told.holder(0, 1, 1);
    told.released(20, first, Outcome::Freed).killed(100, 1);
    let waiter = told.asks(50, 2);
    granted(&mut told, waiter, 3000).is_fine();
}

#[test]
fn c9_a_claim_cancelled_by_a_dead_process_may_delay_the_next() {
    let (mut told, waiter) = killed();
    let other = told.asks(60, 3);
    told.refused(350, other, Refusal::Cancelled).killed(400, 3);
    granted(&mut told, waiter, 1500).is_fine();
}

#[test]
fn c9_a_waiter_that_asks_long_after_is_delayed_by_another_cause() {
    let mut told = HistoryBuilder::new();
    told.holder(0, 1, 1);
    told.killed(100, 1);
    let waiter = told.asks(5000, 2);
    granted(&mut told, waiter, 5500).is_fine();
}

#[test]
fn c9_a_history_that_ends_before_the_bound_proves_nothing() {
    let (mut told, _) = killed();
    told.asks(1150, 3);
    told.killed(1150, 3);
    assert!(told.verdict().violations.iter().all(|violation| violation.rule == Rule::Waiting));
}

#[test]
fn c9_another_process_gets_the_lock_after_a_death_during_a_request_or_release() {
    for releasing in [true, false] {
        for (at, fine) in [(1150, true), (1300, false)] {
            let mut told = HistoryBuilder::new();
            if releasing {
                let op = told.holder(0, 1, 1);
                told.releases(50, op);
            } else {
                told.asks(0, 1);
            }
            let waiter = told.asks(60, 2);
            told.killed(100, 1);
            let told = granted(&mut told, waiter, at);
            if fine {
                assert_eq!(told.is_fine().figures.takeovers, 1);
            } else {
                told.breaks(Rule::Takeover);
            }
        }
    }
}

#[test]
fn c9_faults_of_others_do_not_add_up() {
    let (mut told, waiter) = killed();
    for process in 3..20 {
        told.asks(60, process);
        told.fault(300, 400, "link-reset", Some(process), None);
    }
    assert!(
        granted(&mut told, waiter, 1600)
            .verdict()
            .violations
            .iter()
            .any(|it| it.rule == Rule::Takeover)
    );
}
