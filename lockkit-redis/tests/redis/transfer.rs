//! Tests transfers inside the process: their cost, and their leftovers when they fail half-way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, OwnerId,
    spi::{
        Backend as _, Claim, ClaimSpec, Grant, Mode, QueuePolicy, Released, RenewalOutcome,
        Transferred, Wait,
    },
};
use tokio::{task::JoinSet, time::timeout};

use crate::{proxy::Proxy, support::*};

async fn transferred(claim: &mut Box<dyn Claim>, to: &ClaimSpec) -> u64 {
    match claim.transfer(to, QueuePolicy::TransferFirst).await.unwrap() {
        Transferred::Granted(grant) => {
            assert_eq!(lasts(grant.lease), to.ttl);
            grant.token.get()
        }
        other => panic!("{other:?}"),
    }
}

/// Sends a transfer whose answer does not come in time.
async fn lost(claim: &mut Box<dyn Claim>, policy: QueuePolicy) -> ClaimSpec {
    let to = spec("a");
    assert!(timeout(MOMENT, claim.transfer(&to, policy)).await.is_err());
    to
}

async fn owner(store: &Store) -> String {
    store.admin.ask(&["GET", &lock_key("a")]).await
}

#[tokio::test]
async fn c1_a_transfer_costs_one_request_with_any_waiters() {
    for length in [0, 2] {
        let store = Store::start().await;
        let mut claim = holder(&store, "a").await;
        let mut waiters = queue(&store, "a", length).await;
        store.admin.reset_calls().await;
        let mut last = 0;
        for _ in 0..100 {
            let token = transferred(&mut claim, &spec("a")).await;
            assert!(token > last);
            last = token;
        }
        assert_eq!((store.admin.requests().await, store.admin.calls("evalsha").await), (100, 100));
        assert_eq!(wakes(&waiters), vec![0; length]);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        for (waiter, signal) in &mut waiters {
            lock(waiter, signal).await;
            assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        }
        assert_clean(&store).await;
    }
}

#[tokio::test]
async fn c2_after_a_transfer_the_lease_is_that_of_the_new_owner() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    assert!(
        matches!(claim.renew(Some(TTL * 4)).await.unwrap(), RenewalOutcome::Alive(lease) if lasts(lease) == TTL * 4)
    );
    let to = spec_for("a", TTL * 2, OP_TIMEOUT);
    transferred(&mut claim, &to).await;
    let left = Duration::from_millis(store.admin.ask(&["PTTL", &lock_key("a")]).await);
    assert!(left > TTL && left <= to.ttl, "{left:?}");
    assert!(
        matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(lease) if lasts(lease) == to.ttl)
    );
    assert_eq!(lasts(granted(claim.attempt(Wait::No).await).lease), to.ttl);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c5_a_transfer_whose_reply_is_lost_leaves_nothing() {
    let store = Store::start_with_clock().await;
    for round in 0..10 {
        let policy =
            if round % 2 == 0 { QueuePolicy::TransferFirst } else { QueuePolicy::QueueFirst };
        let mut claim = holder(&store, "a").await;
        store.server.pause().unwrap();
        lost(&mut claim, policy).await;
        store.server.resume().unwrap();
        if round > 4 {
            // The transfer is applied for sure, and then the connection breaks.
            store.settle().await;
            kill_clients(&store).await;
            // No request can arrive any more.
            store.pass(OP_TIMEOUT);
        }
        let released = finally_released(&mut claim).await;
        assert!(round > 4 || released == Released::Freed);
        assert_eq!(store.admin.keys().await, [counter_key()]);
    }
}

#[tokio::test]
async fn c5_a_transfer_whose_connection_is_cut_is_unknown_and_undone_at_once() {
    let store = Store::start_with_clock().await;
    for (cut, policy) in [
        (false, QueuePolicy::TransferFirst),
        (true, QueuePolicy::TransferFirst),
        (true, QueuePolicy::QueueFirst),
    ] {
        let proxy = Proxy::to(store.server.port()).await;
        let redis = connect(&proxy.url("")).await.unwrap();
        let mut claim = redis.claim(spec("a")).unwrap();
        granted(claim.attempt(Wait::No).await);
        proxy.cut.store(cut, Ordering::SeqCst);
        if !cut {
            // The connection breaks before the transfer is sent. The transfer is lost, or uses a
            // new connection.
            kill_clients(&store).await;
        }
        let to = spec("a");
        match claim.transfer(&to, policy).await {
            Err(error) => assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}"),
            Ok(Transferred::Granted(_)) if !cut => {}
            Ok(other) => panic!("{other:?}"),
        }
        // The first release frees the lock, though it is not final.
        let _ = claim.release().await;
        assert_eq!(store.admin.keys().await, [counter_key()]);
        store.pass(OP_TIMEOUT);
        // An earlier release may have freed the lock.
        let _ = finally_released(&mut claim).await;
        redis.close().await.unwrap();
    }
}

#[tokio::test]
async fn c5_a_transfer_that_arrives_after_the_release_does_nothing() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    granted(claim.attempt(Wait::No).await);
    proxy.hold.store(true, Ordering::SeqCst);
    let to = spec("a");
    assert!(timeout(TRUST, claim.transfer(&to, QueuePolicy::TransferFirst)).await.is_err());
    // The release frees the lock on another connection. It need not wait for the transfer.
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_eq!(store.admin.keys().await, [counter_key()]);
    let mut next = holder(&store, "a").await;
    let had = owner(&store).await;
    store.admin.reset_calls().await;
    proxy.let_go.notify_one();
    timeout(SOON, async { while store.admin.calls("evalsha").await == 0 {} }).await.unwrap();
    assert_eq!(owner(&store).await, had);
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c5_after_a_transfer_without_an_answer_the_next_one_frees_the_lock_of_both_owners() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    store.server.pause().unwrap();
    lost(&mut claim, QueuePolicy::TransferFirst).await;
    store.server.resume().unwrap();
    store.settle().await;
    let answer = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap();
    assert_eq!(answer, Transferred::Yielded);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c5_a_transfer_that_comes_after_its_time_does_nothing() {
    let store = Store::start_with_clock().await;
    let mut claim = holder(&store, "a").await;
    let had = owner(&store).await;
    store.server.pause().unwrap();
    lost(&mut claim, QueuePolicy::TransferFirst).await;
    store.pass(OP_TIMEOUT + WINDOW);
    store.server.resume().unwrap();
    store.settle().await;
    assert_eq!(owner(&store).await, had);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c5_a_forgotten_script_transfers_with_one_request_more() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    for policy in [QueuePolicy::TransferFirst, QueuePolicy::QueueFirst] {
        store.admin.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        store.admin.reset_calls().await;
        let answer = claim.transfer(&spec("a"), policy).await.unwrap();
        assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
        assert_eq!((store.admin.requests().await, store.admin.calls("eval").await), (2, 1));
    }
    store.admin.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c10_a_full_server_transfers_inside_the_process() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    for policy in [QueuePolicy::TransferFirst, QueuePolicy::QueueFirst] {
        let answer = claim.transfer(&spec("a"), policy).await.unwrap();
        assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_a_transfer_that_the_server_refuses_is_undone() {
    let store = Store::start().await;
    for (refusal, kind) in [
        (vec!["RPUSH", "lockkit:token", "x"], ErrorKind::WrongType),
        (vec!["SET", "lockkit:token", "9007199254740991"], ErrorKind::Unexpected),
    ] {
        for policy in [QueuePolicy::TransferFirst, QueuePolicy::QueueFirst] {
            let mut claim = holder(&store, "a").await;
            let had = owner(&store).await;
            store.admin.ask::<()>(&["DEL", &counter_key()]).await;
            store.admin.ask::<()>(&refusal).await;
            let error = claim.transfer(&spec("a"), policy).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(owner(&store).await, had, "{error}");
            assert_eq!(claim.release().await.unwrap(), Released::Freed);
            store.admin.ask::<()>(&["DEL", &counter_key()]).await;
            assert!(store.admin.keys().await.is_empty());
        }
    }
}

#[tokio::test]
async fn c12_dead_waiters_ahead_are_passed_and_dead_ones_alone_stop_nothing() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    let members: Vec<String> = store.admin.ask(&["ZRANGE", &queue_key("a"), "0", "-1"]).await;
    let kill = async |member: &str| {
        store.admin.ask::<()>(&["ZADD", &live_key("a"), "XX", "1", member]).await
    };
    kill(&members[0]).await;
    kill(&members[1]).await;
    assert_eq!(
        claim.transfer(&spec("a"), QueuePolicy::QueueFirst).await.unwrap(),
        Transferred::Yielded
    );
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    let (third, signal) = &mut waiters[2];
    lock(third, signal).await;
    // Only dead waiters are left.
    let (mut dead, _signal) = store.waiter("a");
    assert!(busy(dead.attempt(Wait::Queue).await).0);
    let members: Vec<String> = store.admin.ask(&["ZRANGE", &queue_key("a"), "0", "-1"]).await;
    let [member] = &members[..] else { panic!("{members:?}") };
    kill(member).await;
    let answer = third.transfer(&spec("a"), QueuePolicy::QueueFirst).await.unwrap();
    assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
    assert_eq!(third.release().await.unwrap(), Released::Freed);
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn c12_the_lock_is_freed_for_a_waiter_without_a_connection() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    let member = format!("nobody:3000:{}", OwnerId::random());
    for key in [queue_key("a"), live_key("a")] {
        store.admin.ask::<()>(&["ZADD", &key, "9000000000000000", &member]).await;
    }
    let answer = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap();
    assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
    assert_eq!(
        claim.transfer(&spec("a"), QueuePolicy::QueueFirst).await.unwrap(),
        Transferred::Yielded
    );
    assert_eq!(store.admin.keys().await, [live_key("a"), queue_key("a"), counter_key()]);
    // No other claim waits, so a newcomer may have the lock.
    assert_eq!(holder(&store, "a").await.release().await.unwrap(), Released::Freed);
}

/// An attempt of the previous owner that is still under way would take a place or the lock, and no
/// claim would use it.
#[tokio::test]
async fn c5_a_claim_with_an_unanswered_attempt_is_freed_and_not_transferred() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    proxy.hold.store(true, Ordering::SeqCst);
    assert!(timeout(TRUST, claim.attempt(Wait::Queue)).await.is_err());
    granted(claim.attempt(Wait::Queue).await);
    let error = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    proxy.let_go.notify_one();
    // An earlier release may have freed the lock.
    let _ = finally_released(&mut claim).await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn c13_other_modes_are_not_transferred_and_stay_held() {
    let store = Store::start().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let name = LockName::new(Kind::RwLock, "a").unwrap();
        let spec = || ClaimSpec::new(name.clone(), OwnerId::random(), mode, TTL, OP_TIMEOUT);
        let mut claim = store.redis.claim(spec()).unwrap();
        granted(claim.attempt(Wait::No).await);
        let error = claim.transfer(&spec(), QueuePolicy::TransferFirst).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unsupported, false));
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c4_a_transfer_rises_above_a_raised_token_that_the_server_has_lost() {
    // Nothing is left of the counter, or only an earlier token.
    for loss in [&["DEL"][..], &["GETSET", "1000000000000000"]] {
        let store = Store::start().await;
        let mut claim = holder(&store, "a").await;
        let token = granted(claim.attempt(Wait::No).await).token;
        let floor = FencingToken::new(token.get() + 3_600_000_000);
        assert_eq!(claim.raise_token(floor).await.unwrap(), Some(floor));
        let counter = counter_key();
        let words: Vec<_> =
            [loss[0], &counter].into_iter().chain(loss[1..].iter().copied()).collect();
        store.admin.ask::<redis::Value>(&words).await;
        let next = transferred(&mut claim, &spec("a")).await;
        assert!(next > floor.get(), "{next} after {floor}");
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert!(granted(store.claim("a").attempt(Wait::No).await).token.get() > next);
    }
}

/// Waits for the lock, and asks again after each temporary error.
async fn granted_at_last(claim: &mut Box<dyn Claim>, signal: &WakeSignal) -> Grant {
    loop {
        match timeout(SOON, wait_for_long_or_err(claim, signal)).await.expect("hangs") {
            Ok(grant) => return grant,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    }
}

/// Makes transfers that are answered, dropped midway or cut off, among claims that wait outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_c6_transfers_in_a_storm_keep_one_holder_and_leave_nothing() {
    let store = Arc::new(Store::start().await);
    let holders = Arc::new(AtomicUsize::new(0));
    let top = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..6_u64 {
        let store = Arc::clone(&store);
        let holders = Arc::clone(&holders);
        let top = Arc::clone(&top);
        tasks.spawn(async move {
            // This short op_timeout bounds the wait for requests that may still arrive. Each failed
            // call is tried again.
            let spec = || spec_for("a", TTL, PERIOD);
            let hold = async |token: u64| {
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                assert!(top.fetch_max(token, Ordering::SeqCst) < token, "the token fell");
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
            };
            for round in 0..40_u64 {
                let (mut claim, signal) = waiter_for(&store, spec());
                let grant = granted_at_last(&mut claim, &signal).await;
                hold(grant.token.get()).await;
                for turn in 0..round % 5 {
                    let policy = if turn == 3 {
                        QueuePolicy::QueueFirst
                    } else {
                        QueuePolicy::TransferFirst
                    };
                    let to = spec();
                    let patience =
                        if (round + task) % 3 == 0 { 150 + 97 * turn } else { 5_000_000 };
                    let answer =
                        timeout(Duration::from_micros(patience), claim.transfer(&to, policy)).await;
                    match answer {
                        Ok(Ok(Transferred::Granted(grant))) => hold(grant.token.get()).await,
                        Ok(Ok(_)) => break,
                        Ok(Err(error)) => {
                            assert!(error.is_temporary(), "{error}");
                            break;
                        }
                        Err(_) => break,
                    }
                }
                if (round + task) % 13 == 0 {
                    kill_clients(&store).await;
                }
                // An earlier release may have freed the lock.
                let _ = finally_released(&mut claim).await;
            }
        });
    }
    tasks.join_all().await;
    assert_clean(&store).await;
}
