//! C4: tokens strictly rise over the grants of a name.

use lockkit_core::{ErrorKind, FencingToken, Renewal};

use crate::{
    case::{Needs, cases},
    env::{Env, becomes_free, free_by_force, give_back, lock_briefly, long, take},
    harness::Hook,
};

cases! {
    c4_tokens_rise_over_releases: Needs::EXCLUSIVE,
        "a constant token, a token per connection, or a token that repeats after an idle time";
    c4_tokens_rise_over_expiry: Needs::EXCLUSIVE.lease(),
        "a token in the record of the lease, which expires";
    c4_tokens_rise_over_eviction: Needs::EXCLUSIVE,
        "a store that deletes the token with the lock";
    c4_tokens_rise_over_data_loss: Needs::EXCLUSIVE.hook(Hook::Flush),
        "a plain counter, which starts again at 1 after the store lost its data";
    c4_tokens_rise_over_a_restart: Needs::EXCLUSIVE.hook(Hook::Restart),
        "a counter only in memory";
    c4_the_token_base_is_added: Needs::EXCLUSIVE,
        "a backend that ignores token_base, or a forced release that does";
}

async fn c4_tokens_rise_over_releases(env: Env) {
    let lockers = [env.locker().await, env.locker().await];
    let mut last = FencingToken::new(0);
    for round in 0..30 {
        for locker in &lockers {
            let guard = take(&env.lock(locker, "x", long())).await;
            rises(&mut last, guard.fencing_token());
            if round % 2 == 0 {
                // A neighbour must not use up or reset this name's tokens.
                give_back(take(&env.lock(locker, "y", long())).await).await;
            }
            give_back(guard).await;
        }
    }
}

async fn c4_tokens_rise_over_expiry(env: Env) {
    let locker = env.locker().await;
    let mut last = FencingToken::new(0);
    for _ in 0..env.rounds(4) {
        let guard = lock_briefly(&env, &locker, "x", Renewal::Manual).await;
        rises(&mut last, guard.fencing_token());
        guard.lost().wait().await;
    }
}

async fn c4_tokens_rise_over_eviction(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", env.unrenewed());
    let mut last = FencingToken::new(0);
    for _ in 0..5 {
        let guard = take(&lock).await;
        rises(&mut last, guard.fencing_token());
        env.harness().expire_now(guard.name()).await.unwrap();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

async fn c4_tokens_rise_over_data_loss(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", env.unrenewed());
    let mut last = FencingToken::new(0);
    for round in 0..6 {
        let guard = take(&lock).await;
        rises(&mut last, guard.fencing_token());
        if round % 2 == 0 {
            give_back(guard).await;
            env.harness().flush().await.unwrap();
        } else {
            env.harness().flush().await.unwrap();
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        }
    }
}

async fn c4_tokens_rise_over_a_restart(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let mut last = FencingToken::new(0);
    let guard = take(&lock).await;
    rises(&mut last, guard.fencing_token());
    give_back(guard).await;
    env.harness().restart().await.unwrap();
    rises(&mut last, becomes_free(&lock).await);
}

async fn c4_the_token_base_is_added(env: Env) {
    const BASE: u64 = 1 << 40;
    let plain = env.locker().await;
    let moved = env.built_locker(|builder| builder.token_base(BASE)).await;
    let guard = take(&env.lock(&plain, "x", long())).await;
    let first = guard.fencing_token().get();
    give_back(guard).await;

    let lock = env.lock(&moved, "x", long());
    let guard = take(&lock).await;
    assert!(
        guard.fencing_token().get() > first + BASE,
        "C4: {} is not above the base",
        guard.fencing_token()
    );
    let seen = lock.inspect().await.unwrap();
    assert_eq!(
        seen.holders.first().unwrap().token,
        Some(guard.fencing_token()),
        "C14: shown as the holder has it"
    );
    free_by_force(async || lock.force_release(guard.fencing_token()).await).await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

fn rises(last: &mut FencingToken, token: FencingToken) {
    assert!(token > *last, "C4: token {token} follows {last}");
    *last = token;
}
