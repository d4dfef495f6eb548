use super::builder::{HistoryBuilder, ms, mutex, rw_lock, semaphore};
use crate::{
    check::Rule,
    history::{Event, Mode, Op, Outcome, Refusal, Renewal},
};

fn held(write: impl FnOnce(&mut HistoryBuilder, Op)) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    write(told.early(), op);
    told.released(5000, op, Outcome::NotHeld);
    told
}

#[test]
fn c3_a_lease_grows_with_renewals() {
    held(|told, op| _ = told.renews(500, op).holds(510, op, 1500).holds(600, op, 1498)).is_fine();
    // The answer came just before the end, and was recorded just after it.
    held(|told, op| _ = told.renews(990, op).holds(1001, op, 1990)).is_fine();
}

#[test]
fn c3_nothing_is_held_past_its_end_or_after_its_loss() {
    held(|told, op| _ = told.holds(1001, op, 2000)).breaks(Rule::Belief);
    held(|told, op| _ = told.holds(1001, op, 1000)).breaks(Rule::Belief);
    held(|told, op| _ = told.renews(1001, op).holds(1002, op, 2000)).breaks(Rule::Belief);
    held(|told, op| _ = told.lost(500, op).holds(600, op, 1000)).breaks(Rule::Belief);
    held(|told, op| _ = told.releases(500, op).holds(600, op, 1000)).breaks(Rule::Belief);
}

#[test]
fn c3_automatic_renewals_need_no_record() {
    let mut told = HistoryBuilder::new();
    let op = told.renewed(Renewal::Auto).holder(0, 1, 1);
    told.holds(1500, op, 2300).released(1600, op, Outcome::Freed).is_fine();
}

#[test]
fn c3_a_process_stopped_for_a_lease_no_longer_holds() {
    for (from, to, fine) in [(100, 1300, false), (100, 400, true)] {
        let mut told = HistoryBuilder::new();
        let op = told.renewed(Renewal::Auto).holder(0, 1, 1);
        told.fault(from, to, "stop-holder", Some(1), None).holds(1301, op, 2300).released(
            1400,
            op,
            Outcome::Freed,
        );
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Belief);
        }
    }
}

#[test]
fn c2_a_lease_is_never_shortened() {
    held(|told, op| _ = told.holds(100, op, 900)).breaks(Rule::Belief);
    // Except for the time of a renewal, in which the store's answer grew old.
    held(|told, op| _ = told.renews(100, op).holds(200, op, 850)).is_fine();
    held(|told, op| _ = told.renews(100, op).holds(200, op, 849)).breaks(Rule::Belief);
}

#[test]
fn c3_a_lease_is_no_longer_than_requested() {
    let renewed = |until| held(|told, op| _ = told.renews(500, op).holds(510, op, until));
    renewed(1550).is_fine();
    renewed(1561).breaks(Rule::Belief);
    let mut told = renewed(5000);
    // A session may last longer than its claims ask for.
    told.terms.ends_with_links = true;
    told.is_fine();
}

#[test]
fn c10_a_longest_hold_shortens_the_lease() {
    for (until, fine) in [(1000, true), (1300, false)] {
        let mut told = HistoryBuilder::new();
        let op = told.at_most(ms(1200)).renewed(Renewal::Auto).holder(0, 1, 1);
        told.holds(500, op, 1200).holds(600, op, until).released(610, op, Outcome::Freed);
        if fine {
            told.is_fine();
        } else {
            told.breaks(Rule::Belief);
        }
    }
}

#[test]
fn impossible_answers_are_reported() {
    let nobody = Op { process: 1, number: 99 };
    held(|told, _| _ = told.lost(10, nobody)).breaks(Rule::Belief);
    held(|told, op| _ = told.granted(10, op, 1, 1000)).breaks(Rule::Belief);
    held(|told, op| _ = told.refused(10, op, Refusal::TimedOut)).breaks(Rule::Belief);
    held(|told, op| _ = told.write(10, 2, Event::Lost { op, reason: None })).breaks(Rule::Belief);
    held(|told, op| _ = told.wrote(10, op, 2, 0, true, false)).breaks(Rule::Belief);
    held(|told, _| _ = told.seen(10, 9, &[(nobody, 7)])).breaks(Rule::Belief);
    let again = |told: &mut HistoryBuilder, op: Op| {
        let first = told.records[0].event.clone();
        told.write(10, op.process, first);
    };
    held(again).breaks(Rule::Belief);
    held(|told, op| _ = told.of(rw_lock(), Mode::Shared).wrote(10, op, 1, 0, true, false))
        .breaks(Rule::Belief);
    let mut told = HistoryBuilder::new();
    told.killed(10, 1).ends(50, 1).breaks(Rule::Belief);
}

#[test]
fn impossible_requests_are_reported() {
    let cases =
        [(mutex(), Mode::Shared), (rw_lock(), Mode::Permits(1)), (semaphore(2), Mode::Permits(3))];
    for (lock, mode) in cases {
        let mut told = HistoryBuilder::new();
        let op = told.of(lock, mode).asks(0, 1);
        told.refused(1, op, Refusal::TimedOut).breaks(Rule::Belief);
    }
    let mut told = HistoryBuilder::new();
    for limit in [2, 3] {
        let op = told.of(semaphore(limit), Mode::Permits(1)).asks(0, 1);
        told.refused(1, op, Refusal::TimedOut);
    }
    told.breaks(Rule::Belief);
}
