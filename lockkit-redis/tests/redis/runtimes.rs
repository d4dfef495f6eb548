//! Tests backends that several runtimes use, one after another or at once. Each `#[tokio::test]` of a
//! user has a runtime of its own, and all may share one locker.

use std::{
    sync::mpsc,
    task::{Context, Poll, Waker},
    thread,
};

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Released, RenewalOutcome, Wait},
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::support::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn c5_a_backend_continues_in_another_runtime() {
    let first = runtime();
    let (mut claim, server) = first.block_on(async {
        let Store { redis, server, .. } = Store::start().await;
        let mut claim = redis.claim(spec("a")).unwrap();
        granted(claim.attempt(Wait::No).await);
        (claim, server)
    });
    drop(first);
    // Outside any runtime, the call is an error, not a panic.
    let mut cx = Context::from_waker(Waker::noop());
    let mut outside = claim.renew(None);
    let Poll::Ready(result) = outside.as_mut().poll(&mut cx) else { panic!("it waits") };
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::NoRuntime | ErrorKind::Unavailable));
    drop(outside);
    runtime().block_on(async {
        let renewed = async {
            loop {
                match claim.renew(None).await {
                    // The renewal found the old connection.
                    Err(error) if error.is_temporary() => {}
                    renewed => break renewed.unwrap(),
                }
            }
        };
        assert!(matches!(renewed.await, RenewalOutcome::Alive(_)));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    });
    drop(server);
}

/// A runtime that ends drops all its tasks.
#[test]
fn c8_no_connection_is_opened_in_a_runtime_that_has_ended() {
    let live = runtime();
    let store = live.block_on(Store::start());
    let ended = runtime();
    let handle = ended.handle().clone();
    drop(ended);
    let url = store.server.url();
    let (done, end) = mpsc::channel();
    thread::spawn(move || {
        let _inside = handle.enter();
        let opened = futures_util::FutureExt::now_or_never(connect(&url));
        done.send(opened.is_none_or(|opened| opened.is_ok())).unwrap();
    });
    assert_eq!(end.recv_timeout(SOON), Ok(false), "the attempt to connect never ends");
    live.block_on(async { drop(store) });
}

/// The callers of two runtimes begin in turn.
#[test]
fn c8_each_runtime_opens_one_connection() {
    // Its threads work on the connection while the test does something else.
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let all = [runtime(), runtime()];
    let store = all[0].block_on(async {
        let store = Store::start().await;
        lose_the_connection(&store).await;
        store
    });
    let before = all[0].block_on(connections_made(&store));
    store.server.pause().unwrap();
    let mut claims: Vec<_> = (0..8).map(|at| store.claim(&format!("name-{at}"))).collect();
    let mut attempts: Vec<_> = claims.iter_mut().map(|claim| claim.attempt(Wait::No)).collect();
    for (at, attempt) in attempts.iter_mut().enumerate() {
        let given_up = async { timeout(MOMENT, attempt).await.is_err() };
        assert!(all[at % 2].block_on(given_up), "the connection was opened");
    }
    store.server.resume().unwrap();
    for (at, attempt) in attempts.into_iter().enumerate() {
        let answer = async { timeout(OP_TIMEOUT, attempt).await };
        granted(all[at % 2].block_on(answer).expect("it hangs"));
    }
    assert!(all[0].block_on(connections_made(&store)) <= before + 2);
    all[0].block_on(async { drop(store) });
}

/// The other runtime has ended, or nothing runs in it.
#[test]
fn c8_a_connection_that_another_runtime_began_to_open_holds_nobody_up() {
    for has_ended in [false, true] {
        let live = runtime();
        let store = live.block_on(async {
            let store = Store::start().await;
            lose_the_connection(&store).await;
            store
        });
        store.server.pause().unwrap();
        let other = runtime();
        let mut claim = store.claim("a");
        let given_up = async { timeout(MOMENT, claim.attempt(Wait::No)).await.is_err() };
        assert!(other.block_on(given_up), "the connection was opened");
        let idle = (!has_ended).then_some(other);
        store.server.resume().unwrap();
        let mut claim = store.claim("b");
        let attempt = async { timeout(OP_TIMEOUT, claim.attempt(Wait::No)).await };
        granted(live.block_on(attempt).expect("it waits for the other runtime"));
        drop(idle);
        live.block_on(async { drop(store) });
    }
}
