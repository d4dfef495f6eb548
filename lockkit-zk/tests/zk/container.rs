//! Servers that delete the folders of idle names.

use std::time::Duration;

use lockkit_core::{
    Kind,
    spi::{Released, Wait},
};
use tokio::task::JoinSet;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_tokens_rise_over_the_deletion_of_an_idle_name() {
    let bed = Bed::eager();
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    for query in ["", "fair=false"] {
        let bed = Bed { prefix: format!("{}{}", bed.prefix, query.len()), ..bed.clone() };
        let folder = bed.folder(Kind::Mutex, "a");
        let zk = bed.connect(query).await;
        let mut before = 0;
        for _ in 0..4 {
            let mut claim = claim(&zk, "a");
            let token = granted(claim.attempt(Wait::Queue).await).token.get();
            assert!(token > before, "{token} after {before}");
            before = token;
            let node = admin.children(&folder).await.pop().unwrap();
            assert!(
                node.ends_with("-lock-0000000000") || query == "fair=false",
                "{node}: the count restarts"
            );
            assert_eq!(claim.release().await.unwrap(), Released::Freed);
            until("the folder is deleted", async || !admin.exists(&folder).await).await;
        }
        drop(zk);
        bed.assert_clean().await;
    }
    assert!(!admin.exists(&folder).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_names_work_while_their_folders_are_deleted() {
    let bed = Bed::eager();
    for query in ["", "fair=false"] {
        let bed = Bed { prefix: format!("{}{}", bed.prefix, query.len()), ..bed.clone() };
        let mut tasks = JoinSet::new();
        let zk = std::sync::Arc::new(bed.connect(query).await);
        for task in 0..8_u64 {
            let zk = std::sync::Arc::clone(&zk);
            tasks.spawn(async move {
                let name = format!("name {}", task / 2);
                for round in 0..25_u64 {
                    let mut claim = claim(&zk, &name);
                    lock(&mut claim).await;
                    assert_eq!(claim.release().await.unwrap(), Released::Freed);
                    // Close to the interval of the reaper.
                    tokio::time::sleep(Duration::from_millis(80 + (round * 7 + task * 3) % 40))
                        .await;
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        drop(zk);
        bed.assert_clean().await;
    }
}
