//! Tests of what operators see and do.

use lockkit_core::spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait};
use lockkit_fixture::claims::given_up;
use lockkit_mysql::mysql_async::{Conn, Opts, prelude::Queryable as _};

use crate::support::*;

on_both! {
    c14_inspect_shows_owner_label_token_and_age,
    c14_a_foreign_lock_of_a_row_is_a_holder_without_a_name,
    c14_force_release_ends_the_connection_of_a_holder_that_hangs,
    c14_looking_at_many_names_leaves_nothing_on_the_server,
    c14_concurrent_inspections_of_a_free_lock_show_no_holder,
}

async fn c14_inspect_shows_owner_label_token_and_age(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    for label in [None, Some("host 7: worker:3")] {
        assert!(store.mysql.inspect(&mutex("a")).await.unwrap().holders.is_empty());
        let mut spec = spec_for("a", TTL);
        spec.label = label.map(Into::into);
        let owner = spec.owner;
        let mut claim = store.mysql.claim(spec).unwrap();
        let grant = granted(claim.attempt(Wait::No).await);
        let seen = store.mysql.inspect(&mutex("a")).await.unwrap();
        let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!(
            (holder.owner, holder.token, holder.label.as_deref()),
            (Some(owner), Some(grant.token), label)
        );
        assert!(holder.age.unwrap() < SOON);
        given_up(claim.release()).await;
    }
    assert!(store.mysql.inspect(&mutex("a")).await.unwrap().holders.is_empty());
}

async fn c14_a_foreign_lock_of_a_row_is_a_holder_without_a_name(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    // The last grant left its token behind, and its owner does not have the row now.
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    given_up(claim.release()).await;
    let mut console = Conn::new(Opts::from_url(&store.server.url()).unwrap()).await.unwrap();
    console.query_drop("BEGIN").await.unwrap();
    console
        .query_drop("SELECT * FROM lockkit_row WHERE kind='mutex' AND name='a' FOR UPDATE")
        .await
        .unwrap();
    let seen = store.mysql.inspect(&mutex("a")).await.unwrap();
    let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
    assert_eq!((holder.owner, holder.token), (None, None));
    busy(store.claim("a").attempt(Wait::No).await);
    let free = store.mysql.force_release(&mutex("a"), token).await.unwrap();
    assert_eq!(free, Released::NotHeld);
    console.query_drop("ROLLBACK").await.unwrap();
    granted(store.claim("a").attempt(Wait::No).await);
}

async fn c14_force_release_ends_the_connection_of_a_holder_that_hangs(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let mut holder = store.claim("a");
    let token = granted(holder.attempt(Wait::No).await).token;
    // Another process, like an operator's.
    let operator = store.another().await;
    assert_eq!(operator.force_release(&mutex("a"), token).await.unwrap(), Released::Freed);
    assert_eq!(operator.force_release(&mutex("a"), token).await.unwrap(), Released::NotHeld);
    granted(store.claim("a").attempt(Wait::No).await);
    assert_eq!(holder.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
}

async fn c14_looking_at_many_names_leaves_nothing_on_the_server(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    given_up(claim.release()).await;
    for index in 0..100 {
        assert!(
            store.mysql.inspect(&mutex(&format!("n{index}"))).await.unwrap().holders.is_empty()
        );
    }
    granted(claim.attempt(Wait::No).await);
    let prepared: (String, u64) =
        store.admin.ask("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").await;
    assert!(prepared.1 < 20, "{prepared:?}");
}

async fn c14_concurrent_inspections_of_a_free_lock_show_no_holder(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    given_up(claim.release()).await;
    let mut looking = Vec::new();
    for _ in 0..4 {
        let other = store.another().await;
        looking.push(tokio::spawn(async move {
            for _ in 0..200 {
                assert!(other.inspect(&mutex("a")).await.unwrap().holders.is_empty());
            }
        }));
    }
    for looker in looking {
        looker.await.unwrap();
    }
}
