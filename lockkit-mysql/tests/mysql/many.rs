//! Tests of waiters of many names in one process: none is forgotten, and none delays another.

use std::time::Duration;

use lockkit_core::spi::Wait;
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::support::*;

on_both!(
    c8_of_a_thousand_names_each_is_looked_at,
    c8_with_one_connection_a_transfer_waits_for_no_timeout,
);

/// Catches a poller that takes only some of the due names, and always the same ones.
async fn c8_of_a_thousand_names_each_is_looked_at(flavor: SqlFlavor) {
    const NAMES: usize = 1_000;
    const FREED: usize = 20;
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let locker = bed.locker(QUIET).await;
    let table = bed.table("lock");
    locker.mutex("tables").unwrap().lock().await.unwrap().release().await.unwrap();
    let names: Vec<_> = (0..NAMES).map(|n| format!("n{n}")).collect();
    for some in names.chunks(500) {
        let row = |name: &String| format!("('mutex','{name}','other',{NOW},{NOW}+600000000,{NOW})");
        let rows = some.iter().map(row).collect::<Vec<_>>().join(",");
        let columns = "kind,name,owner,fence,expires_us,touched_us";
        admin.run(format!("INSERT INTO {table}({columns}) VALUES {rows}")).await;
    }
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut waiters = JoinSet::new();
    for name in &names {
        let mutex = locker.mutex(name).unwrap();
        let granted = granted.clone();
        waiters.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            granted.send(()).unwrap();
            guard.leak();
        });
    }
    // Long enough for each task to have asked, and for the pauses to have grown. A task that comes
    // later is the easier case.
    sleep(Duration::from_secs(5)).await;
    for name in names.iter().step_by(NAMES / FREED) {
        admin
            .run(format!("UPDATE {table} SET expires_us=0 WHERE kind='mutex' AND name='{name}'"))
            .await;
    }
    for n in 0..FREED {
        within(SOON, &format!("grant {n} of {FREED}"), grants.recv()).await;
    }
    waiters.shutdown().await;
}

/// Catches a process whose waiters keep its only connection from each other until a timeout.
async fn c8_with_one_connection_a_transfer_waits_for_no_timeout(flavor: SqlFlavor) {
    const ROUNDS: u64 = 10;
    let bed = Bed::shared(flavor);
    let other = bed.connect(QUIET).await;
    let (backend, proxy) = bed.behind_proxy(&format!("pool_size=1&{QUIET}")).await;
    let locker = locker(backend);
    // With this delay, a request is under way when the next one comes.
    proxy.set(|traffic| traffic.up.delay = Duration::from_millis(2));
    let transferring = async {
        for round in 0..ROUNDS {
            let mut held = claim(&other, "a");
            granted(held.attempt(Wait::No).await);
            let mutex = locker.mutex("a").unwrap();
            let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
            sleep(Duration::from_millis(100 + round * 7)).await;
            given_up(held.release()).await;
            waiting.await.unwrap().release().await.unwrap();
        }
    };
    // At three quarters of an op_timeout each, they would take more than three minutes.
    within(SOON, "ten transfers", transferring).await;
    proxy.heal();
}
