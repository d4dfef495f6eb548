use std::collections::HashSet;

use lockkit_core::Kind;
use proptest::prelude::*;

use super::*;

const WALL: u64 = 1_700_000_000_000_000;

fn name() -> LockName {
    LockName::new(Kind::Mutex, "orders/42").unwrap()
}

fn at(wall: u64) -> Now {
    Now { up: 1, wall }
}

fn early() -> Now {
    at(WALL)
}

fn id(number: u128) -> OwnerId {
    OwnerId::new(number)
}

/// An owner of a session with the same number.
fn asker(number: u128, share: Share) -> Asker<'static> {
    Asker { owner: id(number), session: id(number), share, label: None }
}

fn permits(count: u32, limit: u32) -> Share {
    let number = |n| NonZeroU32::new(n).unwrap();
    Share::Permits { count: number(count), limit: number(limit) }
}

fn ask(record: &mut Record, number: u128, share: Share, now: &Now) -> Option<u64> {
    let answer = record.attempt(&asker(number, share), Wait::Queue, now).unwrap();
    record.settle(now);
    match answer {
        Attempt::Granted(grant) => Some(grant.token.get()),
        Attempt::Busy { queued, .. } => {
            assert!(queued);
            None
        }
    }
}

fn frees(record: &mut Record, number: u128) {
    assert_eq!(record.release(&[id(number)]), Released::Freed);
    record.settle(&early());
}

#[test]
fn c4_tokens_are_the_time_or_follow_the_last_token() {
    let mut record = Record::new(&name());
    assert_eq!(ask(&mut record, 1, Share::Exclusive, &early()), Some(WALL));
    frees(&mut record, 1);
    // The token still rises within the same µs, and after the clock was set back.
    assert_eq!(ask(&mut record, 2, Share::Exclusive, &early()), Some(WALL + 1));
    frees(&mut record, 2);
    assert_eq!(ask(&mut record, 3, Share::Exclusive, &at(5)), Some(WALL + 2));
    frees(&mut record, 3);
    assert_eq!(ask(&mut record, 4, Share::Exclusive, &at(WALL + 1_000)), Some(WALL + 1_000));
}

#[test]
fn c4_tokens_rise_over_a_record_of_the_same_boot_that_was_put_back() {
    let mut record = Record::new(&name());
    ask(&mut record, 1, Share::Exclusive, &early());
    frees(&mut record, 1);
    let backup = record.clone();
    let mut last = None;
    for round in 1..=5 {
        last = ask(&mut record, 2, Share::Exclusive, &at(WALL + 100 * round));
        frees(&mut record, 2);
    }
    assert!(ask(&mut backup.clone(), 3, Share::Exclusive, &at(WALL + 501)) > last);
}

/// The first release wrote this record, and later releases must read it.
#[test]
fn c13_a_record_of_the_first_format_is_read() {
    let bytes = include_bytes!("golden.json");
    let record = Record::parse(bytes, &name()).unwrap();
    assert!(record.is_held_by(id(0xa1), id(0xb1)) && record.is_awaited_by(id(0xa2)));
    assert_eq!((record.token, record.gate), (1_700_000_000_000_007, 4_711));
    assert_eq!(record.holders[0].label.as_deref(), Some("host/1"));
    assert_eq!((record.holders[0].mode, record.queue[0].mode), (permits(2, 3), permits(3, 3)));
    assert_eq!(record.holders[0].since_unix_us, WALL);
    assert_eq!(record.queue[0].turn_unix_us, Some(WALL + 1));
    assert_eq!(record.to_bytes().unwrap(), bytes);
}

#[test]
fn c4_there_is_an_end_of_tokens_and_no_overflow() {
    let mut record = Record::new(&name());
    ask(&mut record, 1, Share::Exclusive, &early());
    assert_eq!(
        record.raise_token(id(1), FencingToken::new(u64::MAX)),
        Some(FencingToken::new(u64::MAX))
    );
    frees(&mut record, 1);
    let error = record.attempt(&asker(2, Share::Exclusive), Wait::Queue, &early()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
}

#[test]
fn c5_the_same_owner_gets_the_same_grant_again() {
    let mut record = Record::new(&name());
    let token = ask(&mut record, 1, Share::Exclusive, &early());
    let before = record.clone();
    assert_eq!(ask(&mut record, 1, Share::Exclusive, &early()), token);
    assert_eq!(record, before);
}

#[test]
fn c12_one_queue_for_all_modes() {
    let mut record = Record::new(&name());
    ask(&mut record, 1, Share::Shared, &early()).unwrap();
    for (number, share) in
        [(2, Share::Exclusive), (3, Share::Shared), (4, Share::Shared), (5, Share::Exclusive)]
    {
        assert_eq!(ask(&mut record, number, share, &early()), None);
    }
    assert_eq!(record.first(), []);
    frees(&mut record, 1);
    assert_eq!(record.first(), [id(2)]);
    ask(&mut record, 2, Share::Exclusive, &early()).unwrap();
    frees(&mut record, 2);
    assert_eq!(record.first(), [id(3), id(4)]);
    // A newcomer does not barge ahead of waiters that are ready.
    assert_eq!(ask(&mut record, 6, Share::Shared, &early()), None);
}

#[test]
fn c12_a_head_that_wants_much_is_not_starved() {
    let mut record = Record::new(&name());
    ask(&mut record, 1, permits(2, 3), &early()).unwrap();
    assert_eq!(ask(&mut record, 2, permits(3, 3), &early()), None);
    assert_eq!(ask(&mut record, 3, permits(1, 3), &early()), None);
    let error = record.attempt(&asker(4, permits(1, 4)), Wait::Queue, &early()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    frees(&mut record, 1);
    assert_eq!(record.first(), [id(2)]);
}

#[test]
fn c9_dead_processes_hold_nothing_and_block_no_waiter() {
    let mut record = Record::new(&name());
    for number in 1..=4 {
        ask(&mut record, number, Share::Exclusive, &early());
    }
    record.without(&[id(2)]);
    assert_eq!(record.first(), []);
    record.without(&[id(1)]);
    assert_eq!(record.first(), [id(3)]);
    assert!(!record.is_held_by(id(1), id(1)));
}

#[test]
fn c9_a_waiter_that_does_not_take_its_turn_loses_it() {
    let mut record = Record::new(&name());
    for number in 1..=3 {
        ask(&mut record, number, Share::Exclusive, &at(1));
    }
    assert_eq!(record.release(&[id(1)]), Released::Freed);
    record.settle(&at(10));
    record.skip_idle(Some(id(3)), &at(10 + TURN));
    assert_eq!(ask(&mut record, 3, Share::Exclusive, &at(10 + TURN)), None);
    // The waiter whose turn it is may be late.
    let mut late = record.clone();
    late.skip_idle(Some(id(2)), &at(11 + TURN));
    assert!(ask(&mut late, 2, Share::Exclusive, &at(11 + TURN)).is_some());
    record.skip_idle(Some(id(3)), &at(11 + TURN));
    assert!(ask(&mut record, 3, Share::Exclusive, &at(11 + TURN)).is_some());
}

#[test]
fn c9_a_clock_that_was_set_back_gives_a_stopped_waiter_no_more_time() {
    let mut record = Record::new(&name());
    for number in 1..=3 {
        ask(&mut record, number, Share::Exclusive, &early());
    }
    frees(&mut record, 1);
    let back = at(WALL / 2);
    record.skip_idle(Some(id(3)), &back);
    assert_eq!(ask(&mut record, 3, Share::Exclusive, &back), None);
    let later = at(WALL / 2 + TURN + 1);
    record.skip_idle(Some(id(3)), &later);
    assert!(ask(&mut record, 3, Share::Exclusive, &later).is_some());
}

#[test]
fn c9_the_next_grant_depends_only_on_the_front() {
    let mut record = Record::new(&name());
    for (number, share) in
        [(1, Share::Shared), (2, Share::Exclusive), (3, Share::Shared), (4, Share::Shared)]
    {
        ask(&mut record, number, share, &early());
    }
    assert_eq!(record.front(), [id(1), id(2)]);
    record.without(&[id(2)]);
    assert_eq!((record.first(), record.front()), (vec![id(3), id(4)], vec![id(1), id(3), id(4)]));
}

#[test]
fn c14_only_the_grant_with_that_token_is_freed() {
    let mut record = Record::new(&name());
    let first = ask(&mut record, 1, Share::Shared, &early()).unwrap();
    let second = ask(&mut record, 2, Share::Shared, &early()).unwrap();
    assert_eq!(record.force_release(FencingToken::new(second + 1)), Released::NotHeld);
    assert_eq!(record.force_release(FencingToken::new(first)), Released::Freed);
    assert!(!record.is_held_by(id(1), id(1)) && record.is_held_by(id(2), id(2)));
}

#[test]
fn c11_the_record_of_another_name_is_never_shared() {
    let mine = Record::new(&name());
    let bytes = mine.to_bytes().unwrap();
    assert_eq!(Record::parse(&bytes, &name()), Ok(mine));
    for (kind, text) in [(Kind::Mutex, "orders/43"), (Kind::RwLock, "orders/42")] {
        let reason = Record::parse(&bytes, &LockName::new(kind, text).unwrap()).unwrap_err();
        assert!(reason.contains("belongs to the mutex \"orders/42\""), "{reason}");
    }
}

#[test]
fn c13_torn_or_foreign_data_is_no_record() {
    let mut record = Record::new(&name());
    ask(&mut record, 1, Share::Exclusive, &early());
    let bytes = record.to_bytes().unwrap();
    assert_eq!(Record::parse(b"", &name()), Ok(Record::new(&name())));
    for at in 1..bytes.len() {
        Record::parse(&bytes[..at], &name()).unwrap_err();
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        Record::parse(&changed, &name()).unwrap_err();
    }
    assert!(Record::is_rest(&bytes[..40]) && Record::is_rest(&[0; 40]));
    assert!(!Record::is_rest(b"4711\n"));
    for (text, may_be) in [
        ("{\n  \"lockkit\":", true),
        ("{\n  \"lockkit\": 1,", true),
        ("{\n  \"lockkit\": 2,\n  \"mo", false),
        ("{\n  \"lockkit\": 10", false),
        ("{\n  \"lockkit\": 1", false),
    ] {
        assert_eq!(Record::is_rest(text.as_bytes()), may_be, "{text}");
    }
    // These bytes are of another program.
    assert_eq!(Record::newer(b"[2]"), None);
    assert_eq!(Record::newer(b"{\"lockkit\": 2}\nend\n"), Some(2));
    // A later format may have more fields, and another end.
    for newer in ["{\"lockkit\": 2, \"more\": []}", "{\"lockkit\": 2}\nend\n"] {
        let reason = Record::parse(newer.as_bytes(), &name()).unwrap_err();
        assert!(reason.contains("the format 2"), "{reason}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(u128, Share),
    Die(u128),
    Release(u128),
    Try(u128, Share),
}

fn step() -> impl Strategy<Value = Step> {
    let share = prop_oneof![
        Just(Share::Exclusive),
        Just(Share::Shared),
        (1_u32..=3).prop_map(|n| permits(n, 3))
    ];
    let who = 1_u128..8;
    prop_oneof![
        4 => (who.clone(), share.clone()).prop_map(|(who, share)| Step::Ask(who, share)),
        1 => (who.clone(), share).prop_map(|(who, share)| Step::Try(who, share)),
        2 => who.clone().prop_map(Step::Release),
        1 => who.prop_map(Step::Die),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c1_c4_whatever_is_asked_the_holders_fit_together_and_tokens_rise(steps in prop::collection::vec(step(), 1..60)) {
        let mut record = Record::new(&name());
        let mut last = 0;
        let mut given = HashSet::new();
        for step in steps {
            let (who, share, wait) = match step {
                Step::Ask(who, share) => (who, share, Wait::Queue),
                Step::Try(who, share) => (who, share, Wait::No),
                Step::Release(who) => {
                    // The owner may hold nothing.
                    let _ = record.release(&[id(who)]);
                    continue;
                }
                Step::Die(who) => {
                    record.without(&[id(who)]);
                    continue;
                }
            };
            let held = record.is_held_by(id(who), id(who));
            let waited = record.is_awaited_by(id(who));
            if let Attempt::Granted(grant) = record.attempt(&asker(who, share), wait, &early()).unwrap() && !held {
                prop_assert!(grant.token.get() > last && given.insert(grant.token));
                last = grant.token.get();
                prop_assert!(waited || record.queue.is_empty() || !record.first().is_empty());
            }
            let mut held = record.holders.iter().map(|holding| holding.mode.mode());
            let fit = held.try_fold(Occupancy::Free, Occupancy::with);
            prop_assert!(fit.is_some(), "{:?}", record.holders);
            prop_assert_eq!(Record::parse(&record.to_bytes().unwrap(), &name()), Ok(record.clone()));
        }
    }
}
