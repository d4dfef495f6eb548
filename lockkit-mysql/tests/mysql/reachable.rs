//! Tests of ways to a server, and of few connections.

use std::{sync::Arc, time::Duration};

use lockkit_core::{
    ErrorKind,
    spi::{Claim, Wait},
};
use lockkit_fixture::SqlFlavor;
use tokio::{sync::Barrier, task::JoinSet, time::sleep};

use crate::support::*;

on_both!(
    a_unix_socket_will_do,
    c8_one_connection_serves_twenty_tasks,
    c13_the_error_of_an_exhausted_pool_names_the_cause,
    sixteen_lockers_make_the_tables_at_once,
);

async fn a_unix_socket_will_do(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (_, login) =
        bed.server.url().split_once("//").map(|(_, rest)| ((), rest.to_owned())).unwrap();
    let (login, _) = login.rsplit_once('@').unwrap();
    let socket = bed.server.socket();
    let url = bed.with_prefix(&format!("mysql+unix://{login}@{}", socket.display()), "db=lockkit");
    let backend = connect(&url).await.unwrap();
    let token = next_token(&backend, "a").await;
    // The socket leads to the same store as TCP.
    assert!(next_token(&bed.connect("").await, "a").await > token);
    let hosts: Vec<String> = bed
        .admin()
        .await
        .all("SELECT HOST FROM information_schema.PROCESSLIST WHERE USER='lockkit' AND HOST='localhost'")
        .await;
    assert!(!hosts.is_empty(), "it went by TCP");
    let error = refused(&url.replace("sql.sock", "no.sock")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no.sock"), "{error}");
    let error = refused(&url.replace("&db=lockkit", "")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
}

/// Catches a task that keeps the connection while it waits, and needs another one to continue.
async fn c8_one_connection_serves_twenty_tasks(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let locker = Arc::new(bed.locker("pool_size=1").await);
    let mut tasks = JoinSet::new();
    for task in 0..20 {
        let locker = Arc::clone(&locker);
        tasks.spawn(async move {
            for round in 0..5 {
                // All tasks want one name, and each task wants a name of its own.
                let common = locker.mutex("common").unwrap().lock().await.unwrap();
                let own =
                    locker.rw_lock(&format!("{task} {round}")).unwrap().write().await.unwrap();
                own.release().await.unwrap();
                common.release().await.unwrap();
            }
        });
    }
    within(SOON * 5, "twenty tasks", tasks.join_all()).await;
    locker.shutdown().await.unwrap();
}

async fn c13_the_error_of_an_exhausted_pool_names_the_cause(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("pool_size=1").await;
    let mut admin = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    next_token(&backend, "locked").await;
    admin.run("START TRANSACTION").await;
    admin
        .run(format!(
            "SELECT * FROM {} WHERE kind='mutex' AND name='locked' FOR UPDATE",
            bed.table("lock")
        ))
        .await;
    let mut slow = claim(&backend, "locked");
    let waiting = tokio::spawn(async move { (slow.attempt(Wait::No).await, slow) });
    let mut watcher = bed.admin().await;
    let waits = &bed.waiting();
    until("it waits for the row", async || watcher.one::<u64>(waits).await > 0).await;
    let mut spec = spec("b");
    spec.op_timeout = Duration::from_millis(400);
    let op_timeout = spec.op_timeout;
    let mut other = lockkit_core::spi::Backend::claim(&backend, spec).unwrap();
    // If this process is stopped, both timers are late, and the order of the two stays the same.
    let answer = tokio::select! {
        biased;
        answer = other.attempt(Wait::No) => answer,
        () = async { sleep(op_timeout).await } => panic!("it took longer than its op_timeout"),
    };
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.is_outcome_unknown(), "nothing was sent");
    assert!(error.to_string().contains("all 1 connections of the pool are in use"), "{error}");
    assert!(error.to_string().contains("pool_size"), "{error}");
    admin.run("ROLLBACK").await;
    let (_, _slow): (_, Box<dyn Claim>) = within(SOON, "the row", waiting).await.unwrap();
    next_token(&backend, "b").await;
}

/// Catches a creation that fails when other lockers make the same tables.
async fn sixteen_lockers_make_the_tables_at_once(flavor: SqlFlavor) {
    for _ in 0..2 {
        let bed = Bed::shared(flavor);
        let start = Arc::new(Barrier::new(16));
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let url = bed.url("pool_size=1");
            let start = Arc::clone(&start);
            tasks.spawn(async move {
                start.wait().await;
                let backend = connect_in_the_end(&url).await;
                matches!(
                    claim(&backend, "a").attempt(Wait::No).await.unwrap(),
                    lockkit_core::spi::Attempt::Granted(_)
                )
            });
        }
        let granted = within(SOON, "sixteen lockers", tasks.join_all()).await;
        assert_eq!(granted.into_iter().filter(|granted| *granted).count(), 1);
        let rows: u64 =
            bed.admin().await.one(format!("SELECT COUNT(*) FROM {}", bed.table("meta"))).await;
        assert_eq!(rows, 1);
    }
}
