//! Tests of tickets: a hold ends here and continues elsewhere, with its token.

use std::sync::Arc;

use tokio::time;

use super::{TTL, World, manual, ms, options, secs};
use crate::{
    Clock, FencingToken, LockGuard, Locker, LockerBuilder, LossReason,
    error::{ErrorKind, ErrorStatus},
    fake::{Fake, Fault, Kind, Op},
    options::LockOptions,
    spi::{Capabilities, Descriptor, Released},
};

fn with_tickets(fake: Fake) -> Fake {
    fake.described(|it| Descriptor {
        capabilities: Capabilities { tickets: true, labels: true, ..it.capabilities },
        ..it
    })
}

fn world() -> World {
    World::tuned(Kind::Ttl, with_tickets)
}

/// The locker of another process.
fn another(world: &World, choose: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Locker {
    let fake = with_tickets(Fake::new(Arc::clone(&world.store), Kind::Ttl));
    let locker = choose(Locker::builder(Arc::new(fake)).clock(Clock::Tokio)).build();
    locker.with_defaults(options().with_label("the next")).unwrap()
}

/// A ticket of the mutex `a`, and its token.
async fn ticket(world: &World) -> (String, u64) {
    let guard = world.mutex("a").lock().await.unwrap();
    let token = guard.fencing_token().get();
    (guard.into_ticket().await.unwrap(), token)
}

async fn refused(locker: &Locker, ticket: &str) {
    let error = locker.resume(ticket).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Lost, Some("resume")));
    assert!(error.to_string().contains("stale"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c2_a_ticket_moves_a_hold_with_its_token() {
    let world = world();
    let next = another(&world, |builder| builder);
    let guard = world.mutex_with("a", options().with_label("the first")).lock().await.unwrap();
    let hold = guard.hold();
    let lost = tokio::spawn(guard.lost().into_future());
    time::sleep(TTL).await;
    let token = guard.fencing_token();
    let first = guard.owner();
    let ticket = guard.into_ticket().await.unwrap();
    assert!(!hold.is_held() && hold.remaining().is_zero());
    assert_eq!(world.sizes(), (0, 0), "nothing is left to renew or to release");
    assert_eq!(hold.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(world.store.holder("a"), Some(first), "it stays taken");
    assert!(world.mutex("a").try_lock().await.unwrap().is_none());

    world.store.forget_log();
    let guard = next.resume(&ticket).await.unwrap();
    assert_eq!(world.store.ops(), [Op::Attempt]);
    assert_eq!(guard.fencing_token(), token);
    assert_eq!(world.store.holder("a"), Some(guard.owner()));
    assert_ne!(guard.owner(), first);
    let seen = next.inspect(guard.name()).await.unwrap();
    assert_eq!(seen.holders[0].label.as_deref(), Some("the next"));
    time::sleep(TTL * 5).await;
    assert!(guard.is_held(), "the next holder renews");
    assert_eq!(world.store.owners(Op::Release), []);
    guard.release().await.unwrap();
    assert!(!lost.is_finished(), "the former holder has lost nothing");
    lost.abort();
    let _ = lost.await;
    drop((hold, next));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c2_a_ticket_works_once() {
    let world = world();
    let (ticket, token) = ticket(&world).await;
    let lockers = [(); 5].map(|()| another(&world, |builder| builder));
    let resuming = lockers.map(|locker| {
        let ticket = ticket.clone();
        tokio::spawn(async move { locker.resume(&ticket).await })
    });
    let mut guards: Vec<LockGuard> = Vec::new();
    for resumed in resuming {
        match resumed.await.unwrap() {
            Ok(guard) => guards.push(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost),
        }
    }
    assert_eq!(guards.len(), 1);
    assert_eq!(guards[0].fencing_token().get(), token);
    refused(&world.locker, &ticket).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    refused(&world.locker, &ticket).await;
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c2_a_stale_ticket_takes_nothing() {
    let world = world();
    let (late, _) = ticket(&world).await;
    time::sleep(TTL).await;
    refused(&world.locker, &late).await;
    assert_eq!(world.store.holders(), 0, "it must not take a free lock");
    let next = world.mutex("a").lock().await.unwrap();
    refused(&world.locker, &late).await;
    assert!(next.is_held());
    next.release().await.unwrap();

    let (freed, token) = ticket(&world).await;
    let mutex = world.mutex("a");
    let token = FencingToken::new(token);
    assert_eq!(mutex.force_release(token).await.unwrap(), Released::Freed);
    refused(&world.locker, &freed).await;
    drop(mutex);
    world.clean("").await;
}

/// Fails if a lost reply uses the ticket up.
#[tokio::test(start_paused = true)]
async fn c5_a_resume_without_an_answer_is_repeated() {
    for fault in [Fault::LoseReply, Fault::HangAfter, Fault::Hang, Fault::DOWN] {
        let world = world();
        let (ticket, token) = ticket(&world).await;
        world.store.once(Op::Attempt, [fault]);
        let resumed = world.locker.resume(&ticket).await;
        let guard = resumed.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(guard.fencing_token().get(), token, "{fault:?}");
        assert_eq!(world.store.count(Op::Attempt), 3, "{fault:?}");
        guard.release().await.unwrap();
        world.clean(&format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_gives_up_after_the_lease_and_frees_what_it_may_have() {
    let world = world();
    let (ticket, _) = ticket(&world).await;
    world.store.once(Op::Attempt, [Fault::LoseReply]);
    world.store.always(Op::Attempt, Fault::DOWN);
    let begun = time::Instant::now();
    let error = world.locker.resume(&ticket).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Persistent));
    assert!(error.is_outcome_unknown());
    assert!((TTL..TTL * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    world.store.heal();
    world.clean("").await;
}

/// Fails if a dropped call leaves the lock to no holder until its lease ends.
#[tokio::test(start_paused = true)]
async fn c6_a_dropped_resume_leaves_nothing() {
    for fault in [Fault::HangAfter, Fault::SlowReply(ms(100)), Fault::SlowRequest(ms(100))] {
        let world = world();
        let (ticket, _) = ticket(&world).await;
        world.store.once(Op::Attempt, [fault]);
        time::timeout(ms(10), world.locker.resume(&ticket)).await.unwrap_err();
        time::sleep(ms(1_500)).await;
        assert_eq!(world.store.holders(), 0, "{fault:?}");
        world.clean(&format!("{fault:?}")).await;
    }
}

/// An attempt without an answer may still arrive. Fails if the ticket is made before that, because
/// the attempt could take the lock after the next holder's release.
#[tokio::test(start_paused = true)]
async fn c5_a_ticket_waits_until_no_attempt_can_arrive() {
    for (fault, waits) in [(Fault::LoseReply, true), (Fault::DOWN, false)] {
        let world = world();
        world.store.once(Op::Attempt, [fault]);
        let guard = world.mutex("a").lock().await.unwrap();
        let begun = time::Instant::now();
        let ticket = guard.into_ticket().await.unwrap();
        let waited = begun.elapsed();
        assert_eq!(waited >= ms(990), waits, "{fault:?}: {waited:?}");
        world.locker.resume(&ticket).await.unwrap().release().await.unwrap();
        world.clean(&format!("{fault:?}")).await;
    }
}

/// A renewal is under way. Fails if the ticket is made beside it.
#[tokio::test(start_paused = true)]
async fn c10_a_ticket_waits_for_a_renewal() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(500))]);
    time::sleep(ms(1_050)).await;
    let begun = time::Instant::now();
    let ticket = guard.into_ticket().await.unwrap();
    assert!(begun.elapsed() >= ms(300), "{:?}", begun.elapsed());
    world.store.forget_log();
    time::sleep(TTL - secs(1)).await;
    assert_eq!(world.store.ops(), [], "nothing is renewed");
    world.locker.resume(&ticket).await.unwrap().release().await.unwrap();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_ticket_behind_a_silent_renewal_is_refused_and_the_lock_stays_held() {
    let world = world();
    let guard = world.mutex_with("a", options().with_op_timeout(secs(1))).lock().await.unwrap();
    let hold = guard.hold();
    // As a request that is not polled any more.
    let slot = hold.held().slot.lock().await;
    let refused = guard.into_ticket().await.unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Unavailable);
    assert_eq!(refused.error().operation(), Some("make ticket"));
    drop(slot);
    let (guard, error) = refused.into_parts();
    assert!(error.is_temporary() && guard.is_held());
    time::sleep(TTL * 2).await;
    assert!(guard.is_held(), "it is renewed as before");
    drop((guard, hold));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_a_store_without_tickets_refuses_them_before_anything_changes() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.forget_log();
    let (guard, error) = guard.into_ticket().await.unwrap_err().into_parts();
    assert_eq!((error.kind(), error.backend()), (ErrorKind::Unsupported, Some("fake")));
    assert!(guard.is_held());
    let text = "lockkit1.mutex.x.000000000000000000000000000000ff.7.3000000.a";
    let error = world.locker.resume(text).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(world.store.ops(), []);
    guard.release().await.unwrap();
    // As by `?`.
    let guard = world.mutex("a").lock().await.unwrap();
    let error = guard.into_ticket().await.unwrap_err().into_error();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_lost_lock_makes_no_ticket() {
    let world = world();
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    time::sleep(TTL).await;
    let (guard, error) = guard.into_ticket().await.unwrap_err().into_parts();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.lost().await, LossReason::Expired);
    drop(guard);
    world.clean("").await;
}

/// The ticket has the token of the store. Each locker adds its own number.
#[tokio::test(start_paused = true)]
async fn c4_the_token_base_is_added_to_a_resumed_token() {
    let world = world();
    let based = another(&world, |builder| builder.token_base(1_000));
    let (there, token) = ticket(&world).await;
    let guard = based.resume(&there).await.unwrap();
    assert_eq!(guard.fencing_token().get(), token + 1_000);
    let back = guard.into_ticket().await.unwrap();
    let guard = world.locker.resume(&back).await.unwrap();
    assert_eq!(guard.fencing_token().get(), token);
    drop((guard, based));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_resumed_hold_has_the_ttl_of_its_ticket_and_the_other_options_of_its_locker() {
    let world = world();
    let long = TTL * 4;
    let guard = world.mutex_with("a", manual().with_ttl(long)).lock().await.unwrap();
    let ticket = guard.into_ticket().await.unwrap();
    let capped = LockOptions::new().with_max_hold(TTL * 8);
    let next = another(&world, |builder| builder).with_defaults(capped).unwrap();
    time::sleep(secs(5)).await;
    let guard = next.resume(&ticket).await.unwrap();
    let left = guard.remaining();
    assert!(left > long - ms(200) && left <= long, "{left:?}");
    let begun = time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    let lasted = begun.elapsed();
    assert!(lasted > TTL * 8 - ms(50) && lasted <= TTL * 8, "counted from the resume: {lasted:?}");
    drop((guard, next));
    world.clean("").await;
}

/// A task of the former process waits at the gate.
#[tokio::test(start_paused = true)]
async fn c8_the_gate_opens_when_a_ticket_is_made() {
    let mut world = world();
    world.locker = world.locker.with_process_gate(true);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(50)).await;
    let ticket = guard.into_ticket().await.unwrap();
    let resumed = world.locker.resume(&ticket).await.unwrap();
    time::sleep(TTL).await;
    assert!(!waiting.is_finished(), "C1: it is held");
    let token = resumed.fencing_token();
    resumed.release().await.unwrap();
    let next = time::timeout(secs(5), waiting).await.expect("a free lock").unwrap();
    assert!(next.fencing_token() > token);
    drop(next);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c2_a_leadership_continues_with_its_term_and_another_value() {
    let world = world();
    let election = world.locker.election("e").unwrap();
    let leadership = election.campaign("anna").await.unwrap();
    let term = leadership.term();
    let ticket = leadership.into_guard().into_ticket().await.unwrap();
    let error = world.locker.resume(&ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("Election::resume"), "{error}");
    let other = world.locker.election("f").unwrap();
    let error = other.resume("ben", &ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert_eq!(election.leader().await.unwrap().unwrap().value, "anna");
    let leadership = election.resume("ben", &ticket).await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((leader.value.as_str(), leader.term), ("ben", term));
    assert_eq!((leadership.value(), leadership.term()), ("ben", term));
    leadership.resign().await.unwrap();
    drop((election, other));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_shutdown_neither_waits_for_a_ticket_nor_frees_its_lock() {
    let world = world();
    let next = another(&world, |builder| builder);
    let (ticket, token) = ticket(&world).await;
    let begun = time::Instant::now();
    world.locker.shutdown().await.unwrap();
    assert!(begun.elapsed() < ms(100), "{:?}", begun.elapsed());
    let guard = next.resume(&ticket).await.unwrap();
    assert_eq!(guard.fencing_token().get(), token);
    guard.release().await.unwrap();
    assert_eq!(world.locker.resume(&ticket).await.unwrap_err().kind(), ErrorKind::Closed);
    drop(next);
    world.clean("").await;
}
