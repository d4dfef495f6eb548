//! C7: a holder that listens hears a request to release its lock.

use std::time::Duration;

use lockkit_core::Grants;
use tokio::time::timeout;

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, give_back, long, take},
    wait::{ms, slack, within},
};

cases! {
    c7_a_holder_hears_a_request_and_lets_go: Needs::EXCLUSIVE.ability(Ability::Labels),
        "a store that hides the request from the holder, or shows it after its end; a request that \
         reaches the next holder, too, or that is a lock of the user in lists";
}

/// The time from one look of a holder to the next.
const LOOKS: Duration = ms(1_000);

async fn c7_a_holder_hears_a_request_and_lets_go(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let guard = take(&env.lock(&a, "x", long())).await;
    let name = guard.name().clone();
    let token = guard.fencing_token();
    let holder = tokio::spawn(async move {
        let reason = guard.release_requested().await.unwrap();
        give_back(guard).await;
        reason
    });
    let request = b.request_release(&name, Grants::UpTo(token), "the disk is full").await.unwrap();
    let reason = within(LOOKS * 2 + slack(), "the end of the hold", holder).await.unwrap();
    assert_eq!(reason, "the disk is full");
    let next = take(&env.lock(&b, "x", long())).await;
    timeout(LOOKS * 5 / 2, next.release_requested())
        .await
        .expect_err("C2: the request reached the next holder");
    assert!(request.is_open());
    if env.descriptor().capabilities.names {
        assert_eq!(a.names("").await.unwrap(), std::slice::from_ref(&name));
    }
    request.withdraw().await.unwrap();
    let all = b.request_release(&name, Grants::All, "for all").await.unwrap();
    let reason =
        within(LOOKS * 2 + slack(), "a request to all", next.release_requested()).await.unwrap();
    assert_eq!(reason, "for all");
    all.withdraw().await.unwrap();
    give_back(next).await;
}
