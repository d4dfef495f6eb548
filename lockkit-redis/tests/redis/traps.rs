//! Tests servers that refuse requests for a while, while claims wait. No lock is handed over that
//! was not written, and no waiter loses its place.

use std::num::NonZeroU32;

use lockkit_core::{
    Error, ErrorKind, Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, QueuePolicy, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::RedisServer;
use lockkit_fixture::claims::given_up;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// The next look of a waiter that got no message.
async fn next_look(waiter: &mut Waiter) -> lockkit_core::Result<Attempt> {
    match waiter.0.attempt(Wait::Queue).await {
        Ok(Attempt::Busy { retry_after, .. }) => {
            sleep(retry_after.unwrap()).await;
            waiter.0.attempt(Wait::Queue).await
        }
        answer => answer,
    }
}

fn assert_heals(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
}

async fn serve_in_turn(waiters: Vec<Waiter>) {
    for (mut waiter, signal) in waiters {
        wait_for(&mut waiter, &signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c13_a_full_server_still_hands_the_lock_over() {
    let store = Store::start().await;
    let fill =
        async |limit: &str| store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", limit]).await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    fill("1mb").await;
    // A release frees memory, so its other writes are not refused. The waiter that gets the message
    // has the lock.
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let (first, signal) = &mut waiters[0];
    signal.heard().await;
    let lock: String = store.admin.ask(&["GET", &lock_key("a")]).await;
    let counter: String = store.admin.ask(&["GET", &counter_key()]).await;
    assert!(lock.starts_with(&format!("{counter}:")), "{lock} and {counter}");
    let grant = granted(first.attempt(Wait::Queue).await);
    assert_eq!(lasts(grant.lease), TTL);
    assert!(matches!(first.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(wakes(&waiters), [1, 0, 0]);

    // After a lapse the next waiter has the lock, and a newcomer is refused before that.
    store.admin.ask::<()>(&["DEL", &lock_key("a")]).await;
    let newcomer = store.claim("b").attempt(Wait::Queue).await.unwrap_err();
    assert_heals(&newcomer, ErrorKind::StoreFull);
    let (second, signal) = &mut waiters[1];
    wait_for(second, signal).await;
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    let newcomer = store.claim("a").attempt(Wait::Queue).await.unwrap_err();
    assert_heals(&newcomer, ErrorKind::StoreFull);
    fill("0").await;
    serve_in_turn(waiters.split_off(2)).await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn c13_a_loading_server_is_waited_for_and_keeps_the_queue() {
    let args = ["--enable-debug-command", "yes", "--key-load-delay", "4000"];
    let store = Store::start_with(
        &[&args[..], &["--loading-process-events-interval-bytes", "1024"]].concat(),
        "",
    )
    .await;
    let filler = "for i = 1, 1000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end";
    store.admin.ask::<()>(&["EVAL", filler, "0"]).await;
    let mut holder = holder(&store, "a").await;
    let waiters = queue(&store, "a", 2).await;
    let loader = Admin::to(&store.server).await;
    let reload = tokio::spawn(async move { loader.ask::<()>(&["DEBUG", "RELOAD"]).await });
    let refused = async {
        loop {
            if let Err(error) = holder.renew(None).await {
                return error;
            }
        }
    };
    assert_heals(&timeout(SOON, refused).await.unwrap(), ErrorKind::StoreLoading);
    reload.await.unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    store.admin.ask::<()>(&["FLUSHDB", "ASYNC"]).await;
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
    // After the flush, the waiters queue again, whichever looks first.
    serve_in_turn(waiters).await;
}

#[tokio::test]
async fn c13_a_primary_that_became_a_replica_of_a_dead_server_is_left_and_keeps_the_queue() {
    for stale in ["yes", "no"] {
        // With "no" the server answers MASTERDOWN, with "yes" READONLY.
        let store = Store::start_with(&["--replica-serve-stale-data", stale], "").await;
        let mut holder = holder(&store, "a").await;
        let mut waiters = queue(&store, "a", 2).await;
        store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let error = holder.release().await.unwrap_err();
        assert!(!error.is_outcome_unknown(), "{error}");
        assert!(matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Unavailable), "{error}");
        let error = next_look(&mut waiters[0]).await.unwrap_err();
        assert!(!error.is_outcome_unknown(), "{error}");
        store.admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        serve_in_turn(waiters).await;
        assert_clean(&store).await;
    }
}

#[tokio::test]
async fn c13_a_password_that_was_changed_under_way_is_an_authentication_error() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 1).await;
    store.admin.ask::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).await;
    kill_clients(&store).await;
    waiters[0].1.heard().await;
    let error = next_look(&mut waiters[0]).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_outcome_unknown()),
        (ErrorKind::Authentication, false),
        "{error}"
    );
    store.admin.ask::<()>(&["CONFIG", "SET", "requirepass", ""]).await;
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    serve_in_turn(waiters).await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn c13_a_helper_key_of_another_type_stops_the_waiters_of_its_name_alone() {
    let store = Store::start().await;
    for key in [queue_key("a"), live_key("a")] {
        let _past = holder(&store, "a").await;
        let mut waiters = queue(&store, "a", 1).await;
        let mut holder = holder(&store, "b").await;
        let mut others = queue(&store, "b", 2).await;
        store.admin.ask::<()>(&["DEL", &key, &lock_key("a")]).await;
        store.admin.ask::<()>(&["RPUSH", &key, "x"]).await;
        // This waiter looks after both names in one request.
        assert!(matches!(next_look(&mut others[1]).await.unwrap(), Attempt::Busy { .. }), "{key}");
        waiters[0].1.heard().await;
        let error = next_look(&mut waiters[0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{key}: {error}");
        assert_eq!(store.admin.ask::<u64>(&["EXISTS", &lock_key("a")]).await, 0, "{key}");
        given_up(holder.release()).await;
        serve_in_turn(others).await;
        store.admin.ask::<()>(&["DEL", &key]).await;
        serve_in_turn(waiters).await;
    }
}

#[tokio::test]
async fn c13_waiters_of_a_broken_name_get_its_error_although_other_names_are_read_first() {
    let store = Store::start().await;
    let _a = holder(&store, "a").await;
    let _b = holder(&store, "b").await;
    let others = queue(&store, "b", 3).await;
    let (mut waiter, signal) = queue(&store, "a", 1).await.remove(0);
    store.admin.ask::<()>(&["DEL", &live_key("a")]).await;
    store.admin.ask::<()>(&["RPUSH", &live_key("a"), "x"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for (mut other, signal) in others {
        tasks.spawn(async move { wait_for_long(&mut other, &signal).await });
    }
    let error = timeout(SOON, async {
        loop {
            match waiter.attempt(Wait::Queue).await {
                Err(error) => break error,
                Ok(Attempt::Busy { retry_after, .. }) => {
                    // Each time, this waiter comes a moment later than the others.
                    let _ = timeout(retry_after.unwrap() + MOMENT, signal.heard()).await;
                }
                Ok(granted) => panic!("{granted:?}"),
            }
        }
    });
    assert_eq!(error.await.expect("it hears nothing").kind(), ErrorKind::WrongType);
    assert!(tasks.try_join_next().is_none(), "another name's waiter ended");
}

/// A server that evicts keys may delete such a key.
#[tokio::test]
async fn c8_waiters_whose_queue_vanished_queue_again() {
    let store = Store::start().await;
    for key in [queue_key("a"), live_key("a")] {
        let mut holder = holder(&store, "a").await;
        let mut waiters = queue(&store, "a", 3).await;
        store.admin.ask::<()>(&["DEL", &key]).await;
        for waiter in &mut waiters {
            assert!(matches!(next_look(waiter).await.unwrap(), Attempt::Busy { .. }));
        }
        let places: u64 = store.admin.ask(&["ZCARD", &queue_key("a")]).await;
        let living: u64 = store.admin.ask(&["ZCARD", &live_key("a")]).await;
        assert_eq!((places, living), (3, 3), "{key}");
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        for (mut waiter, signal) in waiters {
            lock(&mut waiter, &signal).await;
            assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        }
        assert_clean(&store).await;
    }
}

/// The server restarts without its data. Its waiters continue, whichever comes first.
#[tokio::test]
async fn c8_a_server_that_forgot_everything_serves_its_waiters() {
    let mut store = Store::start().await;
    let past = holder(&store, "a").await;
    let waiters = queue(&store, "a", 3).await;
    store.server.restart().unwrap();
    for (_, signal) in &waiters {
        signal.heard().await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (mut waiter, signal) in waiters {
        tasks.spawn(async move {
            timeout(SOON, async {
                loop {
                    match waiter.attempt(Wait::Queue).await {
                        Ok(Attempt::Granted(_)) => break,
                        Ok(Attempt::Busy { retry_after, .. }) => {
                            let _ = timeout(retry_after.unwrap(), signal.heard()).await;
                        }
                        Err(error) => assert!(error.is_temporary(), "{error}"),
                    }
                }
            })
            .await
            .unwrap();
            assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        });
    }
    tasks.join_all().await;
    drop(past);
    let keys: Vec<String> = RedisServer::ask(&store.server, ["KEYS", "*"])
        .unwrap()
        .elements()
        .iter()
        .map(lockkit_fixture::RedisReply::text)
        .filter(|key| key != "lockkit:keys")
        .collect();
    assert_eq!(keys, [counter_key()]);
}

/// A primary that was demoted throws its data away before it has the new data. So its empty data do
/// not prove that a lock is gone.
#[tokio::test]
async fn c10_an_empty_demoted_primary_reports_no_loss() {
    let permit = NonZeroU32::MIN;
    let semaphore = (Kind::Semaphore, Mode::Permits { count: permit, limit: permit });
    for (kind, mode) in [(Kind::Mutex, Mode::Exclusive), (Kind::RwLock, Mode::Shared), semaphore] {
        for call in ["keep alive", "release", "raise", "hand over"] {
            if call == "hand over" && kind != Kind::Mutex {
                continue;
            }
            let store = Store::start().await;
            let name = LockName::new(kind, "a").unwrap();
            let spec = ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT);
            let mut claim = store.redis.claim(spec).unwrap();
            let token = granted(claim.attempt(Wait::No).await).token;
            store.admin.ask::<()>(&["FLUSHALL"]).await;
            // No server listens there.
            store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
            let answer = match call {
                "keep alive" => claim.renew(None).await.map(drop),
                "release" => claim.release().await.map(drop),
                "raise" => claim.raise_token(token).await.map(drop),
                _ => claim
                    .transfer(&crate::support::spec("a"), QueuePolicy::QueueFirst)
                    .await
                    .map(drop),
            };
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{mode:?}, {call}: {error}");
            assert!(error.is_temporary(), "{error}");
        }
    }
}
