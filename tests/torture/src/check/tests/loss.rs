use super::builder::{HistoryBuilder, ms, mutex, rw_lock};
use crate::{
    check::{Rule, check},
    history::{Lock, Mode, Op, Outcome, Renewal},
};

/// A holder that listens, has a lease until 1000, and gives nothing back before 6000.
fn listening(renewal: Renewal, write: impl FnOnce(&mut HistoryBuilder, Op)) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    told.renewed(renewal);
    let op = told.early().holder(0, 1, 1);
    told.listens(2, op);
    write(&mut told, op);
    told.released(6000, op, Outcome::NotHeld);
    told
}

fn by_hand(write: impl FnOnce(&mut HistoryBuilder, Op)) -> HistoryBuilder {
    listening(Renewal::Manual, write)
}

#[test]
fn c3_a_listener_learns_of_the_end_of_its_lease() {
    by_hand(|told, op| _ = told.told(1000, op)).is_fine();
    by_hand(|told, op| _ = told.told(1100, op)).is_fine();
    let violation = by_hand(|told, op| _ = told.told(1101, op)).breaks(Rule::Loss);
    assert_eq!(violation.what, "p1.1 got its loss signal 101ms after the end of its lease");
    by_hand(|told, op| _ = told.told(500, op)).is_fine();
}

#[test]
fn c3_a_loss_that_never_reaches_its_listener_is_reported() {
    let violation = by_hand(|_, _| {}).breaks(Rule::Loss);
    assert_eq!(
        violation.what,
        "p1.1 got no loss signal, and listened for 5s after the end of its lease"
    );
    // A signal after the begin of the release does not count.
    by_hand(|told, op| _ = told.told(6100, op)).breaks(Rule::Loss);
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.listens(2, op).released(1100, op, Outcome::NotHeld).is_fine();
}

#[test]
fn c3_an_older_grant_whose_answer_comes_late_takes_nothing() {
    for (token, rule) in [(1, Rule::Tokens), (3, Rule::Loss)] {
        let mut told = HistoryBuilder::new();
        let words = Some("an operator may free a lock");
        let late = told.asks(0, 2);
        let op = told.asks(0, 1);
        told.fault(0, 1, "eviction", None, words).granted(1, op, 2, 1000).listens(2, op);
        told.granted(300, late, token, 1000).released(310, late, Outcome::NotHeld);
        told.released(900, op, Outcome::NotHeld);
        let verdict = check(&told.records, &told.terms);
        let rules: Vec<_> =
            verdict.violations.iter().chain(&verdict.documented).map(|it| it.rule).collect();
        assert!(
            rules.contains(&rule) && (rule == Rule::Loss || !rules.contains(&Rule::Loss)),
            "{rules:?}"
        );
    }
}

#[test]
fn c3_a_holder_that_did_not_listen_need_not_learn_of_its_loss() {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.released(6000, op, Outcome::NotHeld).is_fine();
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.listens(5950, op).released(6000, op, Outcome::NotHeld).is_fine();
}

#[test]
fn c3_a_renewal_moves_the_end_and_a_failed_one_does_not() {
    let renewed = |error, told_at| {
        by_hand(|told, op| {
            told.renews(900, op).renewed_by_hand(910, op, error);
            if error.is_none() {
                told.holds(911, op, 1900);
            }
            told.told(told_at, op);
        })
    };
    renewed(None, 1901).is_fine();
    renewed(None, 2100).breaks(Rule::Loss);
    renewed(Some("silence"), 1001).is_fine();
    renewed(Some("silence"), 1900).breaks(Rule::Loss);
    // The end is unknown while a renewal has no answer.
    by_hand(|told, op| _ = told.renews(900, op).told(1900, op)).is_fine();
}

#[test]
fn c3_a_holder_that_asks_sees_the_lockers_renewals() {
    let auto = |write: fn(&mut HistoryBuilder, Op)| listening(Renewal::Auto, write);
    auto(|told, op| _ = told.told(3000, op)).is_fine();
    auto(|told, op| _ = told.lost(3000, op).told(3001, op)).is_fine();
    auto(|told, op| _ = told.lost(3000, op).told(3200, op)).breaks(Rule::Loss);
    auto(|told, op| _ = told.lost(3000, op)).breaks(Rule::Loss);
}

#[test]
fn c3_a_listener_learns_of_the_loss_before_the_next_grant() {
    let taken = |told_at, renewal| {
        let mut told = HistoryBuilder::new();
        let first = told.early().renewed(renewal).holder(0, 1, 1);
        told.listens(2, first);
        let second = told.asks(1500, 2);
        told.granted(1501, second, 2, 2500).released(2000, second, Outcome::Freed);
        told.told(told_at, first).released(6000, first, Outcome::NotHeld);
        told
    };
    taken(1600, Renewal::Auto).is_fine();
    let violation = taken(1602, Renewal::Auto).breaks(Rule::Loss);
    assert_eq!(violation.what, "p1.1 got its loss signal 101ms after the grant to p2.2");
    taken(1101, Renewal::Manual).breaks(Rule::Loss);
    let words = Some("a step of the clock frees what is held");
    assert_eq!(
        taken(1700, Renewal::Auto)
            .fault(1490, 1491, "clock", None, words)
            .is_fine()
            .documented
            .len(),
        1
    );
    // The documentation says that the store grants early, not that a lease has no end.
    taken(1101, Renewal::Manual).fault(900, 901, "clock", None, words).breaks(Rule::Loss);
}

#[test]
fn c3_readers_and_holders_of_other_locks_do_not_shorten_a_lease_of_a_reader() {
    let beside = |lock: Lock, mode| {
        let mut told = HistoryBuilder::new();
        let first = told.early().renewed(Renewal::Auto).of(rw_lock(), Mode::Shared).holder(0, 1, 1);
        told.listens(2, first);
        let second = told.of(lock, mode).holder(1500, 2, 2);
        told.released(2000, second, Outcome::Freed).told(3000, first).released(
            6000,
            first,
            Outcome::NotHeld,
        );
        told
    };
    beside(rw_lock(), Mode::Shared).is_fine();
    beside(mutex(), Mode::Exclusive).is_fine();
    beside(rw_lock(), Mode::Exclusive).breaks(Rule::Loss);
}

#[test]
fn c3_the_end_by_max_hold_also_gives_a_loss_signal() {
    for (told_at, fine) in [(2050, true), (2200, false)] {
        let mut told = HistoryBuilder::new();
        let op = told.early().renewed(Renewal::Auto).at_most(ms(2000)).holder(0, 1, 1);
        told.listens(2, op).told(told_at, op).released(6000, op, Outcome::NotHeld);
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Loss);
        }
    }
}

#[test]
fn c3_time_without_cpu_does_not_count() {
    let late = |told_at, write: fn(&mut HistoryBuilder)| {
        by_hand(|told, op| {
            write(told);
            told.told(told_at, op);
        })
    };
    late(3050, |told| _ = told.fault(800, 3000, "stop-holder", Some(1), None)).is_fine();
    late(3150, |told| _ = told.fault(800, 3000, "stop-holder", Some(1), None)).breaks(Rule::Loss);
    late(3050, |told| _ = told.fault(800, 3000, "stop-holder", Some(2), None)).breaks(Rule::Loss);
    late(3050, |told| _ = told.fault(800, 3000, "stop", None, None)).breaks(Rule::Loss);
    late(3050, |told| _ = told.fault(800, 3000, "link-silence", Some(1), None)).breaks(Rule::Loss);
    late(3050, |told| _ = told.stalled(900, 3000, 1)).is_fine();
    late(3050, |told| _ = told.stalled(900, 3000, 2)).breaks(Rule::Loss);
    // The fault and the stall cover the same time.
    let both = |told: &mut HistoryBuilder| {
        told.fault(800, 2000, "stop-holder", Some(1), None).stalled(800, 2000, 1);
    };
    late(2100, both).is_fine();
    late(2200, both).breaks(Rule::Loss);
}

#[test]
fn c3_dead_processes_need_no_loss_signal() {
    for (wrote, fine) in [(900, true), (1050, true), (1500, false)] {
        let mut told = HistoryBuilder::new();
        let op = told.holder(0, 1, 1);
        told.listens(2, op).stalled(wrote - 1, wrote, 1).killed(5000, 1);
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Loss);
        }
    }
}
