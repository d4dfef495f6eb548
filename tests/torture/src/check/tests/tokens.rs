use super::builder::{HistoryBuilder, mutex, rw_lock, semaphore};
use crate::{
    check::Rule,
    history::{Event, Mode, Outcome},
};

/// One claim after the other, each asked for after the grant of the one before.
fn in_turn(tokens: &[u64]) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    for (at, token) in (0..).step_by(10).zip(tokens) {
        let op = told.holder(at, 1, *token);
        told.released(at + 5, op, Outcome::Freed);
    }
    told
}

#[test]
fn c4_tokens_that_rise_are_fine() {
    in_turn(&[1, 2, 5, 6]).is_fine();
}

#[test]
fn c4_a_falling_token_is_reported_with_the_larger_one_before() {
    let violation = in_turn(&[1, 7, 5, 8]).breaks(Rule::Tokens);
    assert_eq!(violation.what, "p1.3 got token 5, although 7 was known before its request");
    assert_eq!(violation.slice.len(), 3);
}

#[test]
fn c4_a_token_of_two_grants_is_reported_once() {
    let violation = in_turn(&[1, 1]).breaks(Rule::Tokens);
    assert_eq!(violation.what, "p1.1 and p1.2 both got token 1");
}

#[test]
fn c4_readers_and_permits_share_no_token_either() {
    for (lock, mode) in [(rw_lock(), Mode::Shared), (semaphore(2), Mode::Permits(1))] {
        let mut told = HistoryBuilder::new();
        told.of(lock, mode).holder(0, 1, 4);
        told.holder(0, 2, 4);
        told.breaks(Rule::Tokens);
    }
}

#[test]
fn c4_an_earlier_attempt_may_get_a_smaller_token() {
    let mut told = HistoryBuilder::new();
    let first = told.asks(0, 1);
    let second = told.asks(0, 2);
    told.granted(5, second, 2, 1000).released(6, second, Outcome::Freed);
    // The answer came only after its lease had passed, so another claim may have had the lock
    // since.
    told.granted(2000, first, 1, 1000);
    told.released(2020, first, Outcome::NotHeld).is_fine();
}

/// Two claims that ask at once, and are granted these tokens one after the other.
fn waited(modes: [(crate::history::Lock, Mode); 2], tokens: [u64; 2]) -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    let [first, second] = modes;
    let waiter = told.of(second.0, second.1).asks(0, 1);
    let first = told.of(first.0, first.1).holder(10, 2, tokens[0]);
    told.released(20, first, Outcome::Freed);
    told.granted(30, waiter, tokens[1], 1030).released(40, waiter, Outcome::Freed);
    told
}

#[test]
fn c4_a_holder_has_a_larger_token_than_each_earlier_grant() {
    let exclusive = || (mutex(), Mode::Exclusive);
    waited([exclusive(), exclusive()], [3, 5]).is_fine();
    let violation = waited([exclusive(), exclusive()], [5, 3]).breaks(Rule::Tokens);
    assert_eq!(
        violation.what,
        "p1.1 holds with token 3, although p2.2 got 5 before that grant was known"
    );
    let mut excused = waited([exclusive(), exclusive()], [5, 3]);
    excused.fault(15, 16, "failover", None, Some("a failover may lose a lock"));
    assert_eq!(excused.is_fine().documented.len(), 1);
}

#[test]
fn c4_a_reader_has_a_larger_token_than_an_earlier_writer_and_a_smaller_one_than_a_later() {
    let read = || (rw_lock(), Mode::Shared);
    let write = || (rw_lock(), Mode::Exclusive);
    waited([write(), read()], [5, 3]).breaks(Rule::Tokens);
    waited([read(), write()], [5, 3]).breaks(Rule::Tokens);
    waited([read(), read()], [5, 3]).is_fine();
}

#[test]
fn c4_permits_that_exclude_each_other_have_rising_tokens() {
    let permits = |number| (semaphore(3), Mode::Permits(number));
    waited([permits(2), permits(2)], [5, 3]).breaks(Rule::Tokens);
    waited([permits(2), permits(1)], [5, 3]).is_fine();
}

#[test]
fn c2_an_owner_of_two_claims_is_reported() {
    let mut told = HistoryBuilder::new();
    for (at, process) in [(0, 1), (2000, 2)] {
        let op = told.asks(at, process);
        let owner = "the same".to_owned();
        let until = (at + 1000) * 1_000_000;
        told.write(at + 1, process, Event::Granted { op, owner, token: at + 1, until });
        told.released(at + 10, op, Outcome::Freed);
    }
    assert_eq!(told.breaks(Rule::Tokens).what, "p1.1 and p2.2 both got the owner the same");
}

#[test]
fn c4_a_grant_at_the_same_instant_was_not_known_before() {
    let mut told = HistoryBuilder::new();
    told.of(rw_lock(), Mode::Shared);
    let first = told.asks(0, 1);
    told.granted(5, first, 2, 1000);
    let second = told.asks(5, 2);
    told.granted(6, second, 1, 1000);
    told.released(10, first, Outcome::Freed).released(10, second, Outcome::Freed).is_fine();
}

#[test]
fn c4_the_same_token_of_two_locks_is_fine() {
    let mut told = in_turn(&[3]);
    told.of(rw_lock(), Mode::Exclusive);
    let op = told.holder(50, 1, 3);
    told.released(60, op, Outcome::Freed).is_fine();
}

#[test]
fn c4_a_token_that_was_only_seen_counts() {
    let mut told = HistoryBuilder::new();
    let dead = told.asks(0, 1);
    told.seen(10, 9, &[(dead, 8)]).killed(11, 1);
    let next = told.asks(20, 2);
    told.granted(1050, next, 7, 2050).released(1060, next, Outcome::Freed);
    assert_eq!(
        told.breaks(Rule::Tokens).what,
        "p2.2 got token 7, although 8 was known before its request"
    );
}

#[test]
fn c4_a_claim_that_is_seen_with_another_token_than_its_own() {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.seen(10, 9, &[(op, 2)]).released(20, op, Outcome::Freed);
    assert_eq!(told.breaks(Rule::Tokens).what, "p1.1 got token 1, but the store shows it with 2");
}

/// Before the grant, some members of a quorum may not be raised yet. After the grant they are.
#[test]
fn c14_an_inspection_after_the_grant_shows_no_smaller_token() {
    for (look, fine) in [(5, true), (10, true), (11, false)] {
        let mut told = HistoryBuilder::new();
        let op = told.asks(1, 1);
        told.granted(10, op, 7, 1001).seen(look, 9, &[(op, 6)]).released(20, op, Outcome::Freed);
        if fine {
            told.is_fine();
        } else {
            let what = told.breaks(Rule::Tokens).what;
            assert_eq!(what, "p1.1 got token 7, but the store shows it with 6");
        }
    }
}
