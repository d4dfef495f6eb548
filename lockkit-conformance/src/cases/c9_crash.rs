//! C9: what a dead process held is free within its lease and a known delay.
//!
//! A process is modelled by a runtime of its own that ends with all its tasks and connections, while its guard is
//! never dropped. Real processes are killed elsewhere.

use std::{mem, thread};

use lockkit_core::{FencingToken, LockOptions};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    time::timeout,
};

use crate::{
    case::{Needs, cases},
    env::{Env, long, take},
    wait::{ms, within},
};

cases! {
    c9_a_dead_holder_frees_within_its_lease: Needs::EXCLUSIVE.lease(),
        "a lock without a lease; one that the server renews for a dead client";
    c9_a_dead_waiter_does_not_block_the_queue: Needs::EXCLUSIVE.lease(),
        "a queue that waits for a dead head for ever";
}

const TTL: std::time::Duration = ms(700);

fn options() -> LockOptions {
    LockOptions::new().with_ttl(TTL)
}

async fn c9_a_dead_holder_frees_within_its_lease(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let inner = env.clone();
    let token = doomed(move |process| {
        process.block_on(async {
            let locker = inner.locker().await;
            let guard = take(&inner.lock(&locker, "x", options())).await;
            // Its keeper renews until the end.
            tokio::time::sleep(TTL / 2).await;
            let token = guard.fencing_token();
            mem::forget((guard, locker));
            token
        })
    })
    .await;
    let bound = TTL + env.descriptor().takeover_delay + env.poll();
    let next = within(bound, "the grant after a crash", lock.lock()).await.unwrap();
    assert!(next.fencing_token() > token, "C4: token {} follows {token}", next.fencing_token());
    next.release().await.unwrap();
}

async fn c9_a_dead_waiter_does_not_block_the_queue(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let held = take(&lock).await;
    let inner = env.clone();
    doomed(move |process| {
        process.block_on(async {
            let locker = inner.locker().await;
            let lock = inner.lock(&locker, "x", options());
            let mut waiting = Box::pin(async move { lock.lock().await });
            timeout(ms(150), &mut waiting).await.expect_err("a grant of a held lock");
            mem::forget((waiting, locker));
            FencingToken::new(0)
        })
    })
    .await;
    held.release().await.unwrap();
    let bound = TTL + env.descriptor().takeover_delay + env.poll() * 4;
    let next = within(bound, "the grant behind a dead waiter", lock.lock()).await.unwrap();
    next.release().await.unwrap();
}

/// Runs `life` on a runtime that dies with it.
async fn doomed(life: impl FnOnce(&Runtime) -> FencingToken + Send + 'static) -> FencingToken {
    let (token, death) = oneshot::channel();
    thread::spawn(move || {
        let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let last_words = life(&process);
        drop(process);
        token.send(last_words).unwrap();
    });
    death.await.expect("it lived until its end")
}
