//! C2: a ticket moves a hold to another process. The token stays, the owner changes, and it works
//! once.

use std::slice;

use lockkit_core::{
    ErrorKind, LockGuard, LockOptions, Locker, OwnerId,
    spi::{Attempt, Backend, Claim, ClaimSpec, Grant, GrantId, Released, RenewalOutcome, Wait},
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, OP_TIMEOUT, SHORT, becomes_free, give_back, is_refused, long, take},
    harness::Faults,
    judge::{judged, loss_of},
    lock::AnyLock,
    wait::{eventually, soon, within},
};

const TICKET: Needs = Needs::EXCLUSIVE.ability(Ability::Tickets);

cases! {
    c2_a_ticket_moves_the_hold_with_its_token: TICKET,
        "a resume that gives another token, or that frees the lock on the way";
    c2_a_ticket_works_once: TICKET,
        "a resume that does not compare the owner, so two processes hold the lock";
    c2_the_former_owner_can_do_nothing_after_a_resume: TICKET,
        "a resume that leaves the former owner in the store";
    c2_a_stale_ticket_takes_nothing: TICKET,
        "a resume that takes a free lock, or the grant of another claim";
    c5_a_resume_whose_reply_is_lost_is_repeated: TICKET,
        "a repeated resume that does not recognise its own grant";
    c6_a_dropped_resume_leaves_nothing: TICKET,
        "a cancelled resume that does not give back what it got";
    c9_a_lost_ticket_frees_within_its_lease: TICKET.lease(),
        "a former holder that still renews, or a ticket that keeps the lock for ever";
    c10_a_resumed_hold_is_renewed: TICKET,
        "a resume that does not begin a lease, or that no renewal extends";
    c1_a_resumed_reader_shares_as_before: Needs::READ_WRITE.ability(Ability::Tickets),
        "a resumed reader that excludes readers, or admits a writer";
    c1_resumed_permits_count_once: Needs::PERMITS.ability(Ability::Tickets),
        "a resume that counts the permits twice, or not at all";
    c13_a_ticket_is_refused_before_anything_changes: Needs::MUTEX,
        "a refused ticket that gives the lock up, or any text that passes for a ticket";
}

/// A claim that resumes a grant.
fn heir(env: &Env, backend: &dyn Backend, owner: OwnerId, grant: Grant) -> Box<dyn Claim> {
    let mode = env.flavor().mode();
    let own = OwnerId::random();
    let mut spec = ClaimSpec::new(env.name("x"), own, mode, long().ttl(), OP_TIMEOUT);
    let owner = grant.owner.unwrap_or(owner);
    spec.resumes = Some(Box::new(GrantId { owner, token: grant.token }));
    backend.claim(spec).expect("a claim that the capabilities allow")
}

fn granted(answer: Attempt) -> Grant {
    match answer {
        Attempt::Granted(grant) => grant,
        busy => panic!("not granted: {busy:?}"),
    }
}

async fn refused(claim: &mut dyn Claim) {
    let answer = claim.attempt(Wait::No).await.unwrap();
    assert!(matches!(answer, Attempt::Busy { queued: false, .. }), "C2: {answer:?}");
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

async fn ticket_of(guard: LockGuard) -> String {
    guard.into_ticket().await.unwrap_or_else(|refused| panic!("no ticket: {refused}"))
}

/// The ticket was used.
async fn is_stale(locker: &Locker, ticket: &str) {
    let error = locker.resume(ticket).await.expect_err("C2: a ticket that was used before");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
}

async fn c2_a_ticket_moves_the_hold_with_its_token(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let other = env.lock(&env.locker().await, "x", long());
    let guard = take(&env.lock(&a, "x", long())).await;
    let token = guard.fencing_token();
    let hold = guard.hold();
    let ticket = ticket_of(guard).await;
    assert!(!hold.is_held(), "C2: the former holder believes that it has the lock");
    a.shutdown().await.unwrap();
    is_refused(async || other.try_lock().await).await;
    let guard = b.resume(&ticket).await.unwrap();
    assert_eq!(guard.fencing_token(), token, "C4: the grant continues with another token");
    assert!(guard.is_held() && guard.remaining() > long().ttl() / 2, "{:?}", guard.remaining());
    is_refused(async || other.try_lock().await).await;
    let seen = other.inspect().await.unwrap();
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    let holder = &seen.holders[0];
    assert_eq!((holder.owner, holder.token), (Some(guard.owner()), Some(token)), "C14");
    assert_eq!(holder.mode, guard.mode());
    give_back(guard).await;
    assert!(becomes_free(&other).await > token);
    is_stale(&b, &ticket).await;
}

async fn c2_a_ticket_works_once(env: Env) {
    let a = env.locker().await;
    let guard = take(&env.lock(&a, "x", long())).await;
    let token = guard.fencing_token();
    let ticket = ticket_of(guard).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let locker = env.locker().await;
        let ticket = ticket.clone();
        tasks.spawn(async move { locker.resume(&ticket).await });
    }
    let mut guards = Vec::new();
    for resumed in tasks.join_all().await {
        match resumed {
            Ok(guard) => guards.push(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}"),
        }
    }
    // Of several parts, each claim may have got some, and no claim enough of them.
    let least = usize::from(env.harness().parts().is_empty());
    assert!((least..=1).contains(&guards.len()), "C2: {} claims hold it", guards.len());
    is_stale(&a, &ticket).await;
    for guard in guards {
        assert_eq!(guard.fencing_token(), token);
        give_back(guard).await;
    }
    becomes_free(&env.lock(&a, "x", long())).await;
}

async fn c2_the_former_owner_can_do_nothing_after_a_resume(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let owner = OwnerId::random();
    let mut former = env.claim_of(&*a, "x", &long(), owner, env.flavor().mode());
    let first = granted(former.attempt(Wait::No).await.unwrap());
    let mut heir = heir(&env, &*b, owner, first);
    let second = granted(heir.attempt(Wait::No).await.unwrap());
    assert_eq!(second.token, first.token);
    let renewed = former.renew(None).await.unwrap();
    assert!(matches!(renewed, RenewalOutcome::Lost(_)), "C2: the former owner: {renewed:?}");
    assert_eq!(former.release().await.unwrap(), Released::NotHeld);
    former.leave_grant();
    drop(former);
    let again = granted(heir.attempt(Wait::No).await.unwrap());
    assert_eq!(again.token, first.token, "C5: a repeated resume");
    let renewed = heir.renew(None).await.unwrap();
    assert!(matches!(renewed, RenewalOutcome::Alive(_)), "C2: the new owner: {renewed:?}");
    assert_eq!(heir.release().await.unwrap(), Released::Freed);
}

async fn c2_a_stale_ticket_takes_nothing(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let lock = env.lock(&env.locker().await, "x", long());
    let owner = OwnerId::random();
    let mut former = env.claim_of(&*a, "x", &long(), owner, env.flavor().mode());
    let grant = granted(former.attempt(Wait::No).await.unwrap());
    let forged = Grant { owner: None, ..grant };
    refused(&mut *heir(&env, &*b, OwnerId::random(), forged)).await;
    let renewed = former.renew(None).await.unwrap();
    assert!(matches!(renewed, RenewalOutcome::Alive(_)), "C2: a forged ticket: {renewed:?}");

    env.harness().expire_now(&env.name("x")).await.unwrap();
    refused(&mut *heir(&env, &*b, owner, grant)).await;
    let present = take(&lock).await;
    refused(&mut *heir(&env, &*b, owner, grant)).await;
    assert!(present.fencing_token() > grant.token);
    give_back(present).await;
    refused(&mut *heir(&env, &*b, owner, grant)).await;
    becomes_free(&lock).await;
    assert_eq!(former.release().await.unwrap(), Released::NotHeld);
}

/// Waits until the store has applied a resume whose reply is lost.
async fn applied(lock: &AnyLock, former: OwnerId) {
    eventually(soon(), async || match lock.inspect().await {
        Ok(seen) if seen.holders.iter().any(|holder| holder.owner == Some(former)) => {
            Err("it was not applied".to_owned())
        }
        Ok(seen) if seen.holders.is_empty() => Err("the lock is free".to_owned()),
        Ok(_) => Ok(()),
        // The parts of the store do not agree yet.
        Err(error) => Err(error.to_string()),
    })
    .await;
}

async fn c5_a_resume_whose_reply_is_lost_is_repeated(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.lock(&env.locker().await, "x", long());
    let guard = take(&healthy).await;
    let token = guard.fencing_token();
    let former = guard.owner();
    let ticket = ticket_of(guard).await;
    link.set(Faults::LOST_REPLIES);
    let resuming = tokio::spawn(async move { locker.resume(&ticket).await });
    applied(&healthy, former).await;
    link.cut();
    link.heal();
    let guard = within(soon(), "the repeated resume", resuming).await.unwrap().unwrap();
    assert_eq!(guard.fencing_token(), token);
    give_back(guard).await;
}

async fn c6_a_dropped_resume_leaves_nothing(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.lock(&env.locker().await, "x", long());
    let guard = take(&healthy).await;
    let former = guard.owner();
    let ticket = ticket_of(guard).await;
    link.set(Faults::LOST_REPLIES);
    tokio::select! {
        resumed = locker.resume(&ticket) => panic!("a grant without a reply: {resumed:?}"),
        () = applied(&healthy, former) => {}
    }
    link.cut();
    link.heal();
    becomes_free(&healthy).await;
}

async fn c9_a_lost_ticket_frees_within_its_lease(env: Env) {
    let locker = env.locker().await;
    let options = LockOptions::new().with_ttl(env.ttl(SHORT));
    let ttl = options.ttl();
    let guard = take(&env.lock(&locker, "x", options)).await;
    let _lost = ticket_of(guard).await;
    let bound = ttl + env.descriptor().takeover_delay + env.poll();
    let lock = env.lock(&locker, "x", long());
    give_back(within(bound, "the grant after a lost ticket", lock.lock()).await.unwrap()).await;
}

async fn c10_a_resumed_hold_is_renewed(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = turn.locker().await;
        let other = turn.lock(&env.locker().await, long());
        let guard = turn.take(&turn.lock(&a, turn.renewed())).await?;
        let ticket = guard.into_ticket().await.map_err(|refused| loss_of(refused.into_error()))?;
        let guard = turn.answer(b.resume(&ticket)).await?;
        sleep(turn.ttl * 2).await;
        let held = guard.is_held();
        let granted = turn.is_granted_beside(slice::from_ref(&guard), other.try_lock()).await?;
        if granted || !held {
            return Err("C10: it was not renewed".to_owned());
        }
        guard.release().await.map_err(loss_of)
    })
    .await;
}

async fn c1_a_resumed_reader_shares_as_before(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let here = a.rw_lock("x").unwrap().with_options(long()).unwrap();
    let there = b.rw_lock("x").unwrap().with_options(long()).unwrap();
    env.will_be_free(here.name());
    let first = here.read().await.unwrap();
    let second = here.read().await.unwrap();
    let token = first.fencing_token();
    let ticket = ticket_of(first).await;
    is_refused(async || there.try_write().await).await;
    let first = b.resume(&ticket).await.unwrap();
    assert_eq!((first.fencing_token(), first.mode()), (token, second.mode()));
    give_back(second).await;
    is_refused(async || there.try_write().await).await;
    let third = there.read().await.unwrap();
    assert!(third.fencing_token() > token);
    give_back(first).await;
    give_back(third).await;
    give_back(there.write().await.unwrap()).await;
}

async fn c1_resumed_permits_count_once(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let here = a.semaphore("x", 3).unwrap().with_options(long()).unwrap();
    let there = b.semaphore("x", 3).unwrap().with_options(long()).unwrap();
    env.will_be_free(here.name());
    let two = here.acquire_many(2).await.unwrap();
    let mode = two.mode();
    let ticket = ticket_of(two).await;
    is_refused(async || there.try_acquire_many(2).await).await;
    give_back(there.acquire().await.unwrap()).await;
    let two = b.resume(&ticket).await.unwrap();
    assert_eq!(two.mode(), mode);
    is_refused(async || there.try_acquire_many(2).await).await;
    give_back(there.acquire().await.unwrap()).await;
    give_back(two).await;
    give_back(there.acquire_many(3).await.unwrap()).await;
}

async fn c13_a_ticket_is_refused_before_anything_changes(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let guard = take(&env.lock(&locker, "x", long())).await;
    drop(line.take_calls());
    let can = env.descriptor().capabilities.tickets;
    let bad = if can { ErrorKind::InvalidOption } else { ErrorKind::Unsupported };
    for text in ["", "x", "lockkit1.mutex.x", guard.name().as_str()] {
        assert_eq!(locker.resume(text).await.unwrap_err().kind(), bad, "{text:?}");
    }
    let guard = if can {
        guard
    } else {
        let (guard, error) = guard.into_ticket().await.unwrap_err().into_parts();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        guard
    };
    let calls = line.take_calls();
    assert!(calls.is_empty(), "the store was asked: {calls:?}");
    assert!(guard.is_held());
    give_back(guard).await;
}
