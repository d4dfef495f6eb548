//! C9: a lock of a dead process is free within its lease and a known delay. Other tests kill real
//! processes.

use lockkit_core::{LockOptions, spi::LeaseScope};
use tokio::time::timeout;

use crate::{
    case::{Needs, cases},
    doomed::doomed,
    env::{Env, SHORT, give_back, long, take},
    wait::within,
};

cases! {
    c9_a_dead_holder_frees_within_its_lease: Needs::EXCLUSIVE.lease(),
        "a lock without a lease; a lock that the server renews for a dead client";
    c9_a_dead_waiter_does_not_block_the_queue: Needs::MUTEX.lease(),
        "a queue that waits for ever for a dead first waiter";
}

fn options(env: &Env) -> LockOptions {
    LockOptions::new().with_ttl(env.ttl(SHORT))
}

async fn c9_a_dead_holder_frees_within_its_lease(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let inner = env.clone();
    let options = options(&env);
    let ttl = options.ttl();
    let (token, guard) = doomed(move |process| {
        process.block_on(async {
            let locker = inner.locker().await;
            let guard = take(&inner.lock(&locker, "x", options)).await;
            // The keeper of this locker renews the lock until the process dies.
            tokio::time::sleep(ttl / 2).await;
            let token = guard.fencing_token();
            (token, guard)
        })
    })
    .await;
    // The guard keeps the socket open, as for a machine that vanished. Where a lock is a connection,
    // the server first ends that connection, and with strict leases the next owner then waits for
    // the lease.
    let leases = if env.descriptor().lease_scope == LeaseScope::Connection { 2 } else { 1 };
    let bound = ttl * leases + env.descriptor().takeover_delay + env.poll();
    let next = within(bound, "the grant after a crash", lock.lock()).await.unwrap();
    assert!(next.fencing_token() > token, "C4: token {} follows {token}", next.fencing_token());
    assert!(!guard.is_held(), "C3: the dead holder would still think that it has it");
    give_back(next).await;
}

async fn c9_a_dead_waiter_does_not_block_the_queue(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let held = take(&lock).await;
    let inner = env.clone();
    let options = options(&env);
    let ttl = options.ttl();
    // While the store does not answer, the waiter waits for three times as long as this.
    let options = options.with_op_timeout(ttl / 2);
    let waiting = doomed(move |process| {
        process.block_on(async {
            let locker = inner.locker().await;
            let lock = inner.lock(&locker, "x", options);
            let mut waiting = Box::pin(async move { lock.lock().await });
            timeout(inner.patience(), &mut waiting).await.expect_err("a grant of a held lock");
            Abandoned(waiting)
        })
    })
    .await;
    give_back(held).await;
    let bound = ttl + env.descriptor().takeover_delay + env.poll() * 4;
    let next = within(bound, "the grant behind a dead waiter", lock.lock()).await.unwrap();
    give_back(next).await;
    drop(waiting);
}

/// A future that must not be awaited.
struct Abandoned<F>(F);
