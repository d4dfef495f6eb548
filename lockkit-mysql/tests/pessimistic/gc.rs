//! Tests of the removal of the rows of unused names.

use lockkit_core::{
    FencingToken,
    spi::{Backend as _, Released, Wait},
};
use lockkit_fixture::claims::given_up;

use crate::support::*;

on_both! {
    c4_a_token_rises_above_that_of_a_deleted_row,
    c1_a_row_that_goes_under_a_waiter_is_made_anew,
}

const OLD: &str =
    "UPDATE lockkit_fence SET acquired_us=acquired_us-90000000000,fence=fence-90000000000";

async fn c4_a_token_rises_above_that_of_a_deleted_row(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut tokens = Vec::new();
    for index in 0..250 {
        let mut claim = store.claim(&format!("n{index}"));
        tokens.push(granted(claim.attempt(Wait::No).await).token);
        given_up(claim.release()).await;
    }
    assert_eq!(store.mysql.collect_garbage().await.unwrap(), 0, "all are young");
    store.admin.run(OLD).await;
    // A row that was held for long looks as idle as the others. A row whose token is ahead of the
    // clock must stay.
    let mut held = store.claim("n7");
    granted(held.attempt(Wait::No).await);
    store.admin.run("UPDATE lockkit_fence SET acquired_us=1,fence=1 WHERE name='n7'").await;
    store.admin.run("UPDATE lockkit_fence SET fence=9000000000000000000 WHERE name='n8'").await;
    assert_eq!(store.mysql.collect_garbage().await.unwrap(), 248);
    assert_eq!(
        (store.admin.count("lockkit_row").await, store.admin.count("lockkit_fence").await),
        (2, 2)
    );
    for (index, old) in [(0, tokens[0]), (8, FencingToken::new(9_000_000_000_000_000_000))] {
        let token = granted(store.claim(&format!("n{index}")).attempt(Wait::No).await).token;
        assert!(token > old, "{token} after {old}");
    }
    busy(store.claim("n7").attempt(Wait::No).await);
}

async fn c1_a_row_that_goes_under_a_waiter_is_made_anew(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    // No statement can run on the connection that has the row. So another connection gets the row
    // in between, and deletes it.
    let admin = store.admin.clone();
    let mut waiter = store.claim("a");
    let waiting = tokio::spawn(async move {
        let grant = granted(waiter.attempt(Wait::Block(SOON)).await);
        (waiter, grant)
    });
    until("it waits", || async { admin.waiting().await == 1 }).await;
    let deleting = admin.clone();
    let deleting = tokio::spawn(async move {
        deleting.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        deleting.run("DELETE FROM lockkit_row WHERE kind='mutex' AND name='a'").await;
    });
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let (mut waiter, _) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    waiter.renew(None).await.unwrap();
    busy(store.claim("a").attempt(Wait::No).await);
    given_up(waiter.release()).await;
    deleting.await.unwrap();
    // The row is missing now, whichever of the two came first.
    let mut last = store.claim("a");
    granted(last.attempt(Wait::No).await);
    busy(store.another().await.claim(spec_for("a", TTL)).unwrap().attempt(Wait::No).await);
}
