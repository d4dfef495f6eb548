use super::builder::{HistoryBuilder, mutex, rw_lock, semaphore};
use crate::{
    check::Rule,
    history::{Mode, Op, Outcome},
};

fn with(lock: crate::history::Lock, mode: Mode) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    told.of(lock, mode);
    told
}

/// Two claims ask at once. The second one is granted at `at`, and the lease of the first one lasts
/// until 1000.
fn two(at: u64) -> (HistoryBuilder, Op, Op) {
    let mut told = HistoryBuilder::new();
    let first = told.asks(0, 1);
    let second = told.asks(0, 2);
    told.granted(1, first, 1, 1000).granted(at, second, 2, at + 1000).released(
        at + 500,
        second,
        Outcome::Freed,
    );
    (told, first, second)
}

#[test]
fn c1_intervals_that_touch_are_fine() {
    let (mut told, first, _) = two(50);
    told.released(50, first, Outcome::Freed).is_fine();
    let (mut told, first, _) = two(50);
    told.early().lost(50, first).released(60, first, Outcome::NotHeld).is_fine();
    let (mut told, first, _) = two(1000);
    told.released(1010, first, Outcome::NotHeld).is_fine();
}

#[test]
fn c1_two_simultaneous_holders_are_reported_once() {
    let (mut told, first, _) = two(50);
    let violation = told.released(60, first, Outcome::Freed).breaks(Rule::Exclusion);
    assert_eq!(
        violation.what,
        "p2.2 (token 2) was granted while p1.1 (token 1) held the lock; both held it for 10ms"
    );
    assert_eq!(violation.slice.len(), 6);
}

#[test]
fn c1_a_renewed_lease_is_held_until_its_new_end() {
    let (mut told, first, _) = two(1200);
    told.renews(900, first)
        .holds(901, first, 1900)
        .released(1300, first, Outcome::Freed)
        .breaks(Rule::Exclusion);
}

/// A store such as MySQL answers a renewal that gains nothing with the rest of the lease. That rest
/// counts from when the renewal was sent, so the holder stops a bit earlier than before.
#[test]
fn c1_a_lease_that_a_renewal_reports_shorter_is_held_until_its_earlier_end() {
    let renewed = |granted: u64| {
        let (mut told, first, _) = two(granted);
        told.renews(900, first).holds(910, first, 980).lost(985, first);
        told.released(990, first, Outcome::NotHeld);
        told
    };
    renewed(982).is_fine();
    renewed(979).breaks(Rule::Exclusion);
}

#[test]
fn c1_readers_hold_together_and_no_writer_with_them() {
    let mut told = with(rw_lock(), Mode::Shared);
    let one = told.holder(0, 1, 1);
    let two = told.holder(0, 2, 2);
    told.seen(5, 9, &[(one, 1), (two, 2)]);
    told.released(10, one, Outcome::Freed).released(20, two, Outcome::Freed).is_fine();
    let writer = told.of(rw_lock(), Mode::Exclusive).holder(15, 3, 3);
    told.released(30, writer, Outcome::Freed).breaks(Rule::Exclusion);
}

#[test]
fn c1_permits_add_up_to_the_limit_and_not_beyond() {
    let mut told = with(semaphore(3), Mode::Permits(2));
    let two = told.holder(0, 1, 1);
    let one = told.of(semaphore(3), Mode::Permits(1)).holder(5, 2, 2);
    told.released(50, two, Outcome::Freed).released(50, one, Outcome::Freed);
    told.is_fine();
    let more = told.of(semaphore(3), Mode::Permits(1)).holder(20, 3, 3);
    let violation = told.released(30, more, Outcome::Freed).breaks(Rule::Exclusion);
    assert_eq!(violation.what, "p3.3 (token 3) was granted, and then 4 of 3 permits were in use");
}

#[test]
fn c1_a_killed_holder_holds_until_its_lease_has_passed() {
    for (at, fine) in [(500, false), (1000, true)] {
        let (mut told, ..) = two(at);
        told.killed(100, 1);
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Exclusion);
        }
    }
}

#[test]
fn c1_a_store_bound_to_connections_may_free_a_killed_holder() {
    let (mut told, ..) = two(500);
    told.terms.connection_bound = true;
    told.killed(100, 1).is_fine();
    // Not before its process has died: until then the holder knew that it held.
    let (mut told, first, _) = two(500);
    told.terms.connection_bound = true;
    told.holds(600, first, 1000).killed(700, 1).breaks(Rule::Exclusion);
    // Here no process has died.
    let (mut told, first, _) = two(500);
    told.terms.connection_bound = true;
    told.released(600, first, Outcome::Freed).breaks(Rule::Exclusion);
}

#[test]
fn c1_an_overlap_after_a_fault_that_allows_for_it_is_documented() {
    let words = "a failover may lose a lock";
    for (heals, documented) in [(20, true), (3, true)] {
        let (mut told, first, _) = two(50);
        told.fault(2, heals, "failover", None, Some(words)).released(60, first, Outcome::Freed);
        let verdict = told.verdict();
        assert_eq!((verdict.violations.is_empty(), verdict.documented.len()), (documented, 1));
        assert!(
            verdict.documented[0].slice.iter().any(|record| record.at == 2_000_000),
            "the fault is a part of it"
        );
    }
}

#[test]
fn c1_an_overlap_long_after_such_a_fault_or_before_it_is_not() {
    for (from, to) in [(2, 10), (2160, 2170)] {
        let mut told = HistoryBuilder::new();
        told.fault(from, to, "failover", None, Some("a failover may lose a lock"));
        let first = told.holder(2000, 1, 1);
        let second = told.asks(2000, 2);
        told.granted(2150, second, 2, 3150).released(2160, first, Outcome::Freed);
        told.released(2200, second, Outcome::Freed).breaks(Rule::Exclusion);
    }
}

#[test]
fn c1_two_that_were_granted_after_the_heal_are_not_excused() {
    for (asked, documented) in [(0, true), (400, false)] {
        let mut told = HistoryBuilder::new();
        told.terms.slack = super::builder::ms(1000);
        told.fault(1, 2, "failover", None, Some("a failover may lose a lock"));
        let one = told.asks(asked, 1);
        told.granted(500, one, 1, 1500);
        let two = told.holder(600, 2, 2);
        told.released(700, one, Outcome::Freed).released(800, two, Outcome::Freed);
        if documented {
            assert_eq!(told.is_fine().documented.len(), 1);
        } else {
            told.breaks(Rule::Exclusion);
        }
    }
}

#[test]
fn c1_a_fault_of_another_server_excuses_nothing() {
    for (victim, documented) in [(1, true), (3, false)] {
        let (mut told, first, _) = two(50);
        told.fault(2, 3, "link-reset", Some(victim), Some("a connection that dies frees its lock"));
        told.released(60, first, Outcome::Freed);
        if documented {
            assert_eq!(told.is_fine().documented.len(), 1);
        } else {
            told.breaks(Rule::Exclusion);
        }
    }
}

#[test]
fn c14_one_inspection_with_two_holders_is_reported() {
    let mut told = with(mutex(), Mode::Exclusive);
    let one = told.asks(0, 1);
    let two = told.asks(0, 2);
    told.seen(10, 9, &[(one, 1), (two, 2)]).killed(20, 1).killed(20, 2);
    assert_eq!(
        told.breaks(Rule::Exclusion).what,
        "one look at the store shows 2 holders, and 2 of them are exclusive"
    );
}

#[test]
fn c1_a_history_full_of_violations_is_summarised() {
    let mut told = HistoryBuilder::new();
    let ops: Vec<Op> = (0..60).map(|n| told.holder(0, n, u64::from(n) + 1)).collect();
    for op in ops {
        told.released(50, op, Outcome::Freed);
    }
    let violations = told.verdict().violations;
    assert_eq!(violations.len(), 21);
    assert_eq!(violations[20].what, "and 1750 more findings of this rule");
}

#[test]
fn c1_a_writer_among_many_readers_is_summarised() {
    let mut told = with(rw_lock(), Mode::Shared);
    let mut ops: Vec<Op> = (0..30).map(|n| told.holder(0, n, u64::from(n) + 1)).collect();
    ops.push(told.of(rw_lock(), Mode::Exclusive).holder(10, 50, 50));
    for op in ops {
        told.released(50, op, Outcome::Freed);
    }
    assert_eq!(told.verdict().violations[20].what, "and 10 more findings of this rule");
}
