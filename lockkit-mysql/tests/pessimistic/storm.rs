//! Tests with many tasks at once.

use std::time::Duration;

use crate::support::*;

on_both! {
    c1_64_tasks_of_two_processes_take_64_fresh_names_at_once,
}

async fn c1_64_tasks_of_two_processes_take_64_fresh_names_at_once(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=40").await;
    let lockers = [store.locker().await, store.locker().await];
    let mut tasks = Vec::new();
    for name in 0..32 {
        for locker in &lockers {
            let locker = locker.clone();
            tasks.push(tokio::spawn(async move {
                let guard = locker.mutex(&format!("n{name}")).unwrap().lock().await.unwrap();
                let token = guard.fencing_token();
                guard.release().await.unwrap();
                (name, token)
            }));
        }
    }
    let mut seen = std::collections::HashSet::new();
    for task in tasks {
        let grant = tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
        assert!(seen.insert(grant), "{grant:?} twice");
    }
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
}
