//! Tests arbitrary answers: those of our scripts are read, and all others are errors.

use lockkit_core::{
    FencingToken, Kind, OwnerId,
    spi::{Inspection, Lease, Mode},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::{
    family::Family,
    inspect,
    waiting::{ClockReading, Handover, answers},
};

const KINDS: [(Kind, Family); 4] = [
    (Kind::Election, Family::Exclusive),
    (Kind::Mutex, Family::Exclusive),
    (Kind::RwLock, Family::Counted),
    (Kind::Semaphore, Family::Counted),
];

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-2..6i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX), Just(1 << 53)]
}

/// A piece of an answer, mostly of the right type.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => number().prop_map(Value::Int),
        1 => Just(Value::Nil),
        1 => vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
        1 => owner().prop_map(|owner| Value::BulkString(owner.into_bytes())),
        1 => number().prop_map(|number| Value::BulkString(number.to_string().into_bytes())),
        1 => ".{0,5}".prop_map(Value::SimpleString),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => any::<f64>().prop_map(Value::Double),
        1 => Just(Value::Okay),
    ]
}

fn reply() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 8, |inner| {
        prop_oneof![
            6 => vec(inner.clone(), 0..10).prop_map(Value::Array),
            1 => vec(inner.clone(), 0..4).prop_map(Value::Set),
            1 => vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}

/// The text of an owner: lockkit's own, with or without a label, or a similar one.
fn owner() -> impl Strategy<Value = String> {
    prop_oneof![
        (any::<u128>(), option::of("\\PC{0,6}")).prop_map(|(id, label)| {
            let label = label.map(|label| format!(":{label}")).unwrap_or_default();
            format!("{}{label}", OwnerId::new(id))
        }),
        "[0-9A-Fa-f:+]{0,40}",
    ]
}

fn ints(numbers: &[i64]) -> Value {
    Value::Array(numbers.iter().copied().map(Value::Int).collect())
}

fn acquired(answer: Acquired) -> Value {
    ints(&match answer {
        Acquired::Busy { now, ttl } => vec![0, now, ttl],
        Acquired::Granted { now, lease, token } => vec![1, now, lease, token],
        Acquired::Late { now } => vec![2, now],
        Acquired::Exhausted { now } => vec![3, now],
        Acquired::Mismatch { now, limit } => vec![4, now, limit],
        Acquired::Newer { now } => vec![5, now],
    })
}

fn transferred(answer: TransferReply) -> Value {
    ints(&match answer {
        TransferReply::NotHeld { now } => vec![0, now],
        TransferReply::Granted { now, lease, token } => vec![1, now, lease, token],
        TransferReply::Late { now } => vec![2, now],
        TransferReply::Exhausted { now } => vec![3, now],
        TransferReply::Yielded { now } => vec![4, now],
        TransferReply::Newer { now } => vec![5, now],
    })
}

fn written(answer: Written) -> Value {
    ints(&match answer {
        Written::NotHeld { now } => [0, now],
        Written::Yes { now } => [1, now],
        Written::Late { now } => [2, now],
        Written::Outdated { now } => [3, now],
        Written::Newer { now } => [4, now],
    })
}

/// Each owner in the inspection must be in the answer.
fn check(seen: &Inspection, fields: &[Value]) -> Result<(), TestCaseError> {
    if let Some(waiters) = seen.waiters {
        prop_assert!(i64::try_from(waiters).is_ok(), "{waiters} of {fields:?}");
    }
    for holder in &seen.holders {
        let says = |text: &str| {
            let known = |field: &Value| matches!(field, Value::BulkString(owner) if owner.windows(text.len()).any(|part| part == text.as_bytes()));
            fields.iter().any(known)
        };
        if let Some(owner) = holder.owner {
            prop_assert!(says(&owner.to_string()), "{holder:?} in {fields:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c13_an_answer_to_an_attempt_is_parsed_exactly_or_refused(reply in prop_oneof![reply(), vec(number(), 0..6).prop_map(|numbers| ints(&numbers))]) {
        let in_full = if let Value::Int(now) = reply {
            ints(&[1, now, 7, now])
        } else {
            reply.clone()
        };
        if let Ok(answer) = Acquired::from_reply(&reply, 7) {
            if let Acquired::Granted { lease, token, .. } = answer {
                prop_assert!(lease >= 0 && token >= 0, "{:?}", answer);
            }
            prop_assert_eq!(acquired(answer), in_full.clone());
        }
        if let Ok(answer) = TransferReply::from_reply(&reply, 7) {
            if let TransferReply::Granted { lease, token, .. } = answer {
                prop_assert!(lease >= 0 && token >= 0, "{:?}", answer);
            }
            prop_assert_eq!(transferred(answer), in_full);
        }
        if let Ok(answer) = Written::from_reply(&reply) {
            prop_assert_eq!(written(answer), reply.clone());
        }
        if let Ok(number) = script::number(&reply) {
            prop_assert_eq!(Value::Int(number), reply);
        }
    }

    #[test]
    fn c13_an_inspection_is_parsed_or_an_error(
        fields in prop_oneof![
            vec(scalar(), 0..14),
            (number(), number(), owner(), number(), 0..9i64).prop_map(|(now, ttl, owner, token, waiters)| vec![
                Value::Int(now),
                Value::Int(ttl),
                Value::BulkString(format!("{token}:{owner}").into_bytes()),
                Value::BulkString(token.to_string().into_bytes()),
                Value::Int(waiters),
            ]),
        ],
        wrapped: bool,
        (kind, family) in select(KINDS.to_vec()),
    ) {
        let reply = if wrapped { Value::Array(fields.clone()) } else { fields.first().cloned().unwrap_or(Value::Nil) };
        if let Ok(seen) = inspect::seen(reply, kind, family) {
            check(&seen, &fields)?;
        }
    }

    #[test]
    fn c14_holders_are_seen_as_the_store_has_them(
        now in 0..i64::MAX,
        limit in 1..=u32::MAX,
        waiters in 0..1_000i64,
        holders in vec((any::<u128>(), option::of("\\PC{0,6}"), 0..i64::MAX, 1..=u32::MAX, 0..i64::MAX), 0..4),
        less in 0..4usize,
    ) {
        let mut fields = vec![Value::Int(now), Value::Int(limit.into()), Value::Int(0), Value::Int(waiters)];
        for (id, label, end, count, token) in &holders {
            let label = label.as_ref().map(|label| format!(":{label}")).unwrap_or_default();
            let owner = format!("{}{label}", OwnerId::new(*id));
            fields.extend([Value::BulkString(owner.into_bytes()), Value::Int(*end), Value::Int((*count).into()), Value::Int(*token)]);
        }
        let less = less.min(fields.len() - 4);
        fields.truncate(fields.len() - less);
        let seen = inspect::seen(Value::Array(fields), Kind::Semaphore, Family::Counted);
        if less > 0 {
            prop_assert!(seen.is_err(), "a part of a holder");
            return Ok(());
        }
        let seen = seen.unwrap();
        prop_assert_eq!((seen.waiters, seen.holders.len()), (u64::try_from(waiters).ok(), holders.len()));
        for (seen, (id, label, _, count, token)) in seen.holders.iter().zip(&holders) {
            let token = u64::try_from(*token).map(FencingToken::new).unwrap();
            prop_assert_eq!((seen.owner, seen.token, &seen.label), (Some(OwnerId::new(*id)), Some(token), label));
            let mode = Mode::Permits { count: (*count).try_into().unwrap(), limit: limit.try_into().unwrap() };
            prop_assert_eq!(seen.mode, mode);
        }
    }

    #[test]
    fn c13_an_answer_about_waiters_has_one_for_each(reply in reply(), waiters in vec(0..4usize, 0..4)) {
        if let Some((now, read)) = answers(&reply, &waiters) {
            let groups = read.iter().map(|(ttl, waits)| {
                Value::Array([&[Value::Int(*ttl)], *waits].concat())
            });
            prop_assert_eq!(Value::Array([Value::Int(now)].into_iter().chain(groups).collect()), reply.clone());
            prop_assert_eq!(read.iter().map(|(_, waits)| waits.len()).collect::<Vec<_>>(), waiters.clone());
        }
        let whole = waiters.iter().map(|count| ints(&vec![1; count + 1]));
        let whole = Value::Array([Value::Int(7)].into_iter().chain(whole).collect());
        prop_assert!(answers(&whole, &waiters).is_some());
    }

    #[test]
    fn c13_a_message_is_parsed_exactly_or_refused(
        message in prop_oneof![
            vec(any::<u8>(), 0..60),
            (owner(), vec(number(), 0..5)).prop_map(|(owner, numbers)| {
                let words: Vec<_> = numbers.iter().map(|number| format!(" {number}")).collect();
                format!("{owner}{}", words.concat()).into_bytes()
            }),
        ],
        server_time in number(),
    ) {
        let Some((owner, handover)) = Handover::from_message(&message, 1) else { return Ok(()) };
        let text = String::from_utf8(message).unwrap();
        prop_assert!(text.starts_with(&owner.to_string()));
        let Some(handover) = handover else {
            prop_assert_eq!(text, owner.to_string());
            return Ok(());
        };
        let earlier = ClockReading { link: 1, sent: lockkit_core::Clock::Boot.now(), server_time };
        if let Some(Lease::Proven { at, .. }) = handover.proved_by(earlier) {
            prop_assert_eq!(at, earlier.sent);
        }
        prop_assert_eq!(text.split(' ').nth(1), Some(&*handover.token.to_string()));
    }
}
