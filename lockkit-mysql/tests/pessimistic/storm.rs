//! Many at once.

use std::{sync::Arc, time::Duration};

use lockkit_conformance::{Stay, Witness};

use crate::support::*;

on_both! {
    c1_64_tasks_of_two_processes_take_turns_on_one_name,
    c1_64_tasks_of_two_processes_take_64_fresh_names_at_once,
}

async fn c1_64_tasks_of_two_processes_take_turns_on_one_name(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let lockers = [store.locker().await, store.locker().await];
    let witness = Arc::new(Witness::default());
    let mut tasks = Vec::new();
    for task in 0..64 {
        let (locker, witness) = (lockers[task % 2].clone(), Arc::clone(&witness));
        tasks.push(tokio::spawn(async move {
            for _ in 0..4 {
                let guard = locker.mutex("a").unwrap().lock().await.unwrap();
                let mut stay = Stay::begin(&guard);
                tokio::task::yield_now().await;
                stay.look(&guard);
                witness.record(stay);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    assert_eq!(witness.verify(), 256);
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
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
