//! Tests claims that share a busy connection, so that their requests go together.

use std::{collections::BTreeSet, num::NonZeroU32, sync::atomic::Ordering, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use lockkit_core::{
    Error, ErrorKind, Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Mode, Released, RenewalOutcome, Wait},
};
use lockkit_redis::redis::Script;
use tokio::time::timeout;

use crate::{proxy::Proxy, scripts::exclusive, support::*};

/// How many claims ask at the same time.
const CLAIMS: usize = 100;

/// Each name has characters that lockkit escapes in a key.
fn name(at: usize) -> String {
    format!("a/{{b}}%{at}")
}

fn claims(store: &Store, family: Kind) -> Vec<Box<dyn Claim>> {
    (0..CLAIMS).map(|at| claim(store, family, &name(at), OP_TIMEOUT)).collect()
}

/// A claim for a mutex, for reading, or for one of two permits.
fn claim(store: &Store, family: Kind, name: &str, patience: Duration) -> Box<dyn Claim> {
    let limit = NonZeroU32::new(2).unwrap();
    let mode = match family {
        Kind::Mutex => Mode::Exclusive,
        Kind::RwLock => Mode::Shared,
        _ => Mode::Permits { count: NonZeroU32::MIN, limit },
    };
    let name = LockName::new(family, name).unwrap();
    store.redis.claim(ClaimSpec::new(name, OwnerId::random(), mode, TTL, patience)).unwrap()
}

/// Mutexes have a script of their own for batches.
const FAMILIES: [Kind; 3] = [Kind::Mutex, Kind::RwLock, Kind::Semaphore];

async fn acquire_all(claims: &mut [Box<dyn Claim>]) -> BTreeSet<u64> {
    let answers = join_all(claims.iter_mut().map(|claim| claim.attempt(Wait::No))).await;
    answers.into_iter().map(|answer| granted(answer).token.get()).collect()
}

async fn release_all(claims: &mut [Box<dyn Claim>]) -> Vec<Released> {
    join_all(claims.iter_mut().map(finally_released)).await
}

async fn assert_only_counter(store: &Store) {
    store.settle().await;
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn c4_many_claims_at_once_get_tokens_of_their_own_with_few_requests() {
    let store = Store::start().await;
    let mut last = 0;
    for family in FAMILIES {
        let mut all = claims(&store, family);
        // The server learns the script of batches.
        acquire_all(&mut all).await;
        assert_eq!(release_all(&mut all).await, [Released::Freed; CLAIMS]);
        for _ in 0..5 {
            store.admin.reset_calls().await;
            let tokens = acquire_all(&mut all).await;
            assert_eq!(tokens.len(), CLAIMS, "two have the same token");
            assert!(tokens.first().is_some_and(|first| *first > last));
            last = *tokens.last().unwrap();
            assert_eq!(release_all(&mut all).await, [Released::Freed; CLAIMS]);
            let requests = store.admin.requests().await;
            // A batch at the end of a second grants nothing, and its claims ask alone.
            let most = 50 + 32;
            assert!(requests < most, "{requests} requests for {CLAIMS} pairs");
            assert_only_counter(&store).await;
        }
    }
}

#[tokio::test]
async fn c1_batches_never_grant_more_permits_than_there_are() {
    let store = Store::start().await;
    let permit = |_| claim(&store, Kind::Semaphore, "a", OP_TIMEOUT);
    let mut all: Vec<_> = (0..CLAIMS).map(permit).collect();
    let mut others = claims(&store, Kind::Mutex);
    for _ in 0..5 {
        let permits = join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No)));
        let (permits, tokens) = tokio::join!(permits, acquire_all(&mut others));
        let is_granted = |answer: &_| matches!(answer, Ok(Attempt::Granted(_)));
        assert_eq!(permits.iter().filter(|answer| is_granted(answer)).count(), 2);
        assert_eq!(tokens.len(), CLAIMS);
        let (released, freed) = tokio::join!(release_all(&mut all), release_all(&mut others));
        assert_eq!(released.iter().filter(|answer| **answer == Released::Freed).count(), 2);
        assert_eq!(freed, [Released::Freed; CLAIMS]);
        assert_only_counter(&store).await;
    }
}

#[tokio::test]
async fn c1_a_batch_leaves_a_lock_with_its_holder_and_grants_the_others() {
    let store = Store::start().await;
    let mut all = claims(&store, Kind::Mutex);
    acquire_all(&mut all).await;
    release_all(&mut all).await;
    let mut holder = store.claim(&name(50));
    granted(holder.attempt(Wait::No).await);
    let answers = join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No))).await;
    for (at, answer) in answers.into_iter().enumerate() {
        let is_granted = matches!(answer.unwrap(), Attempt::Granted(_));
        assert_eq!(is_granted, at != 50, "{at}");
    }
    let released = release_all(&mut all).await;
    let freed = released.iter().filter(|released| **released == Released::Freed);
    assert_eq!(freed.count(), CLAIMS - 1);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert_only_counter(&store).await;
}

#[tokio::test]
async fn c6_claims_that_give_up_before_or_after_their_batch_was_sent_leave_no_lock() {
    for family in FAMILIES {
        claims_give_up(family).await;
    }
}

async fn claims_give_up(family: Kind) {
    let store = Store::start().await;
    let mut all = claims(&store, family);
    for knows_script in [false, true] {
        store.server.pause().unwrap();
        // The first ones are sent, and the others are collected.
        let (given_up, kept) = all.split_at_mut(CLAIMS / 2);
        let mut kept =
            Box::pin(join_all(kept.iter_mut().rev().map(|claim| claim.attempt(Wait::No))));
        assert!(timeout(MOMENT, &mut kept).await.is_err());
        let attempts = join_all(given_up.iter_mut().map(|claim| claim.attempt(Wait::No)));
        assert!(timeout(MOMENT, attempts).await.is_err());
        store.server.resume().unwrap();
        // Some give up while the batches are on their way.
        for claim in given_up.iter_mut() {
            let cut = timeout(Duration::ZERO, claim.attempt(Wait::No)).await;
            drop(cut);
        }
        let released = join_all(given_up.iter_mut().map(|claim| claim.release()));
        let (released, answers) = tokio::join!(released, kept);
        for released in released {
            let _ = released.expect("all was sent on one connection, so the release is final");
        }
        answers.into_iter().for_each(|answer| {
            granted(answer);
        });
        release_all(&mut all[CLAIMS / 2..]).await;
        assert_only_counter(&store).await;
        assert!(knows_script || store.admin.calls("eval").await > 0, "the script was known");
    }
}

/// Each reply is late. So the claims give up after the server has said that it doesn't know the
/// script, and before the client hears that.
#[tokio::test]
async fn c6_a_batch_that_the_server_did_not_know_is_not_sent_again_for_claims_that_gave_up() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url("")).await.unwrap();
    let claim = |at: usize| redis.claim(spec(&format!("name-{at}"))).unwrap();
    let mut all: Vec<_> = (0..CLAIMS).map(claim).collect();
    store.admin.reset_calls().await;
    proxy.slow.store(300, Ordering::SeqCst);
    let attempts = join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No)));
    let batch_is_refused = async {
        while !store.admin.ask::<String>(&["INFO", "errorstats"]).await.contains("NOSCRIPT") {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = batch_is_refused => {}
        _ = attempts => panic!("the server knew the script of batches"),
    }
    for released in join_all(all.iter_mut().map(|claim| claim.release())).await {
        let _ = released.expect("all was sent on one connection, so the release is final");
    }
    proxy.slow.store(0, Ordering::SeqCst);
    redis.inspect(&mutex("settle")).await.unwrap();
    let keys = store.admin.keys().await;
    assert!(keys.iter().all(|key| *key == counter_key()), "{keys:?}");
}

#[tokio::test]
async fn c5_a_connection_that_breaks_under_a_batch_leaves_no_lock_and_nobody_waits() {
    for family in FAMILIES {
        break_a_connection(family).await;
    }
}

async fn break_a_connection(family: Kind) {
    let store = Store::start().await;
    let claims = |patience| {
        let claims = (0..CLAIMS).map(|at| claim(&store, family, &name(at), patience));
        claims.collect::<Vec<_>>()
    };
    let mut first = claims(OP_TIMEOUT);
    acquire_all(&mut first).await;
    release_all(&mut first).await;
    // A release is final once no attempt on the broken connection can arrive any more.
    let mut all = claims(MOMENT * 20);
    store.server.pause().unwrap();
    let mut attempts = Box::pin(join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No))));
    assert!(timeout(MOMENT, &mut attempts).await.is_err());
    store.server.resume().unwrap();
    let (answers, ()) = tokio::join!(timeout(SOON, attempts), kill_clients(&store));
    for answer in answers.expect("a claim waits for an answer that cannot come") {
        if let Err(error) = answer {
            assert!(error.is_temporary(), "{error}");
        }
    }
    release_all(&mut all).await;
    store.settle().await;
    let keys = store.admin.keys().await;
    assert!(keys.iter().all(|key| *key == counter_key()), "{keys:?}");
}

#[tokio::test]
async fn c13_a_name_that_the_server_forbids_does_not_harm_its_neighbours() {
    let store = Store::start().await;
    let rights = ["~lockkit:mutex:{name-1*", "~lockkit:token", "~lockkit:keys", "&*", "+@all"];
    let user = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2"];
    store.admin.ask::<()>(&[&user[..], &rights].concat()).await;
    let url = store.server.url().replace("://", "://u:hunter2@");
    let redis = connect(&url).await.unwrap();
    let claim = |at: usize| redis.claim(spec(&format!("name-{at}"))).unwrap();
    let mut all: Vec<_> = (0..CLAIMS).map(claim).collect();
    let answers = join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No))).await;
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.is_ok(), format!("name-{at}").starts_with("name-1"), "{at}");
    }
}

/// Renewals, which are in no batch, never stop. No mutex waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn c8_batches_are_sent_beside_many_other_requests() {
    let store = Store::start().await;
    let renews = |mut claim: Box<dyn Claim>| async move {
        granted(claim.attempt(Wait::No).await);
        loop {
            let renewed = claim.renew(None).await.unwrap();
            assert!(matches!(renewed, RenewalOutcome::Alive(_)), "{renewed:?}");
        }
    };
    let others = claims(&store, Kind::Mutex).into_iter().map(renews);
    let others: Vec<_> = others.map(tokio::spawn).collect();
    for _ in 0..20 {
        let mut claim = store.claim("a");
        granted(timeout(OP_TIMEOUT, claim.attempt(Wait::No)).await.expect("never sent"));
        let released = timeout(OP_TIMEOUT, claim.release()).await.expect("never sent");
        assert_eq!(released.unwrap(), Released::Freed);
    }
    for other in others {
        other.abort();
        let _ = other.await;
    }
}

/// Futures that are not polled keep their requests under way.
#[tokio::test]
async fn c8_claims_whose_callers_are_not_polled_hold_nobody_up() {
    let store = Store::start().await;
    let mut all = claims(&store, Kind::Mutex);
    let mut idle: Vec<_> = all.iter_mut().map(|claim| claim.attempt(Wait::No)).collect();
    for attempt in &mut idle {
        assert!(attempt.now_or_never().is_none());
    }
    for _ in 0..5 {
        let mut claim = store.claim("a");
        granted(timeout(OP_TIMEOUT, claim.attempt(Wait::No)).await.expect("never sent"));
        let released = timeout(OP_TIMEOUT, claim.release()).await.expect("never sent");
        assert_eq!(released.unwrap(), Released::Freed);
    }
    for attempt in idle {
        granted(attempt.await);
    }
}

#[tokio::test]
async fn c13_a_counter_of_another_type_stays_as_it_is() {
    let store = Store::start().await;
    store.admin.ask::<()>(&["RPUSH", &counter_key(), "foreign"]).await;
    let mut all = claims(&store, Kind::Mutex);
    for _ in 0..2 {
        for answer in join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No))).await {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::WrongType);
        }
    }
    let left: Vec<String> = store.admin.ask(&["LRANGE", &counter_key(), "0", "-1"]).await;
    assert_eq!(left, ["foreign"]);
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

/// The user's rights are those of a lockkit without batches.
#[tokio::test]
async fn c13_a_user_without_the_right_for_batches_sends_each_request_alone() {
    let store = Store::start().await;
    let user = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2", "~*", "&*", "+@all", "-mget"];
    store.admin.ask::<()>(&user).await;
    let url = store.server.url().replace("://", "://u:hunter2@");
    let redis = connect(&url).await.unwrap();
    let claim = |at: usize| redis.claim(spec(&format!("name-{at}"))).unwrap();
    let mut all: Vec<_> = (0..CLAIMS).map(claim).collect();
    for _ in 0..3 {
        acquire_all(&mut all).await;
        assert_eq!(release_all(&mut all).await, [Released::Freed; CLAIMS]);
    }
    store.admin.reset_calls().await;
    acquire_all(&mut all).await;
    assert_eq!(store.admin.requests().await, u64::try_from(CLAIMS).unwrap());
}

/// The user may delete keys, and no longer set them. A batch with a release and an attempt is
/// refused.
#[tokio::test]
async fn c7_a_refused_batch_has_freed_no_lock() {
    let store = Store::start().await;
    let user = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2", "~*", "&*", "+@all"];
    store.admin.ask::<()>(&user).await;
    let url = store.server.url().replace("://", "://u:hunter2@");
    let redis = connect(&url).await.unwrap();
    let claim = |at: usize| redis.claim(spec(&name(at))).unwrap();
    let mut all: Vec<_> = (0..CLAIMS).map(claim).collect();
    acquire_all(&mut all).await;
    release_all(&mut all).await;
    let (held, others) = all.split_at_mut(CLAIMS / 2);
    acquire_all(held).await;
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", "-set"]).await;
    let attempts = join_all(others.iter_mut().map(|claim| claim.attempt(Wait::No)));
    let (released, refused) = tokio::join!(release_all(held), attempts);
    assert_eq!(released, [Released::Freed; CLAIMS / 2]);
    for answer in refused {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}

/// A user of the server, whose rights the test changes, and claims for one of two permits.
async fn user_with_permits(store: &Store) -> Vec<Box<dyn Claim>> {
    let user = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2", "~*", "&*", "+@all"];
    store.admin.ask::<()>(&user).await;
    let url = store.server.url().replace("://", "://u:hunter2@");
    let redis = connect(&url).await.unwrap();
    let limit = NonZeroU32::new(2).unwrap();
    let claim = |at: usize| {
        let name = LockName::new(Kind::Semaphore, &name(at / 2)).unwrap();
        let mode = Mode::Permits { count: NonZeroU32::MIN, limit };
        redis.claim(ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT)).unwrap()
    };
    let mut all: Vec<_> = (0..CLAIMS).map(claim).collect();
    acquire_all(&mut all).await;
    release_all(&mut all).await;
    all
}

async fn change_right(store: &Store, right: &str) {
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", right]).await;
}

#[tokio::test]
async fn c7_a_batch_frees_permits_beside_attempts_that_the_server_refuses() {
    let no_counter = ["ACL", "SETUSER", "u", "-set"];
    frees_and_refuses(&no_counter, ErrorKind::PermissionDenied).await;
    let no_memory = ["CONFIG", "SET", "maxmemory", "1"];
    frees_and_refuses(&no_memory, ErrorKind::StoreFull).await;
}

/// Changes the server, and then asks it for releases and attempts at once.
async fn frees_and_refuses(change: &[&str], refusal: ErrorKind) {
    let store = Store::start().await;
    let mut all = user_with_permits(&store).await;
    let (held, others) = all.split_at_mut(CLAIMS / 2);
    acquire_all(held).await;
    store.admin.ask::<()>(change).await;
    let attempts = join_all(others.iter_mut().map(|claim| claim.attempt(Wait::No)));
    let (released, refused) = tokio::join!(release_all(held), attempts);
    assert_eq!(released, [Released::Freed; CLAIMS / 2]);
    let errors: Vec<_> = refused.into_iter().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|error| error.kind() == refusal), "{errors:?}");
    // The server does not say which part of a batch it has done.
    assert!(errors.iter().any(Error::is_outcome_unknown), "{errors:?}");
    assert_only_counter(&store).await;
}

/// The server does a part of each attempt, and refuses the rest.
#[tokio::test]
async fn c6_attempts_that_the_server_did_in_part_are_undone() {
    let store = Store::start().await;
    let mut all = user_with_permits(&store).await;
    for right in ["pexpire", "hset"] {
        change_right(&store, &format!("-{right}")).await;
        for answer in join_all(all.iter_mut().map(|claim| claim.attempt(Wait::No))).await {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.is_outcome_unknown(), "{error}");
        }
        change_right(&store, &format!("+{right}")).await;
        let _ = release_all(&mut all).await;
        acquire_all(&mut all).await;
        assert_eq!(release_all(&mut all).await, [Released::Freed; CLAIMS], "{right}");
        assert_only_counter(&store).await;
    }
}

#[tokio::test]
async fn c7_a_release_that_the_server_did_in_part_is_no_loss() {
    let store = Store::start().await;
    let mut all = user_with_permits(&store).await;
    acquire_all(&mut all).await;
    change_right(&store, "-hset").await;
    let (first, second): (Vec<_>, Vec<_>) =
        all.iter_mut().enumerate().partition(|(at, _)| at % 2 == 0);
    for (half, is_last) in [(first, false), (second, true)] {
        for answer in join_all(half.into_iter().map(|(_, claim)| claim.release())).await {
            match answer {
                Ok(released) => assert!(is_last && released == Released::Freed, "{released:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}"),
            }
        }
    }
}

#[tokio::test]
async fn c10_a_batch_without_an_answer_keeps_no_connection_of_a_backend_that_was_dropped() {
    let hash = Script::new(exclusive::BATCH).get_hash().to_owned();
    let unanswered = keeps_no_connection(hash.leak().as_bytes()).await;
    assert!(unanswered > CLAIMS / 2, "{unanswered} attempts were not answered");
}

/// The server does not know the script, and falls silent before it learns it.
#[tokio::test]
async fn c10_a_script_that_the_server_does_not_learn_keeps_no_connection_either() {
    keeps_no_connection(b"Several attempts and releases").await;
}

/// The requests with this text are lost. Returns how many attempts had no answer.
async fn keeps_no_connection(lost: &'static [u8]) -> usize {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    proxy.lose.set(lost).unwrap();
    let redis = connect(&proxy.url("")).await.unwrap();
    let patience = MOMENT * 4;
    let claim = |at: usize| redis.claim(spec_for(&format!("name-{at}"), TTL, patience)).unwrap();
    let mut all: Vec<_> = (0..CLAIMS).map(claim).collect();
    assert_eq!(proxy.open.load(Ordering::SeqCst), 1);
    // As the core does, the callers give up when their time is over.
    let attempts = join_all(all.iter_mut().map(|claim| timeout(patience, claim.attempt(Wait::No))));
    let unanswered = attempts.await.iter().filter(|answer| answer.is_err()).count();
    drop(all);
    drop(redis);
    let closed = async {
        while proxy.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, closed).await.expect("a connection is left");
    unanswered
}
