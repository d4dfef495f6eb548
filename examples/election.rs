//! Three nodes elect a leader, which hands out numbered orders; each steps down in its turn, and an
//! observer sees all of them.
//!
//! * `cargo run --example election` runs on the embedded memory store.
//! * `cargo run --features redis --example election -- redis://127.0.0.1/` runs on Redis; so do others by their URLs.

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lockkit::{Election, FencingToken, LeaderWatch, Locker, Result};
use tokio::time::{sleep, timeout};

const NODES: [&str; 3] = ["anna", "ben", "cleo"];

/// What the leader writes to. It refuses whoever led before the latest leader that it has heard of.
#[derive(Clone, Default)]
struct Orders(Arc<Mutex<Vec<FencingToken>>>);

impl Orders {
    fn give(&self, term: FencingToken) -> bool {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = orders.last().is_none_or(|latest| term >= *latest);
        if fresh {
            orders.push(term);
        }
        fresh
    }
}

/// Leads once, for half a second. A node that must lead for ever would never return from its work.
async fn node(name: &'static str, election: Election, orders: Orders) -> Result<()> {
    let given = election.lead(name, async |leadership| {
        println!("{name:<5} leads in term {}", leadership.term());
        for _ in 0..5 {
            sleep(Duration::from_millis(100)).await;
            // Exact, and no request: a leader that lost its lease must not even try.
            assert!(leadership.is_leader() && orders.give(leadership.term()), "an order of a past leader");
        }
        orders.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    });
    println!("{name:<5} steps down after order {}", given.await?);
    Ok(())
}

/// Tells who leads until all have led.
async fn observer(mut watch: LeaderWatch) -> Result<Vec<String>> {
    let mut leaders = Vec::new();
    while leaders.len() < NODES.len() {
        if let Some(leader) = watch.changed().await? {
            println!("seen: {} in term {}", leader.value, leader.term);
            leaders.push(leader.value);
        }
    }
    Ok(leaders)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker: Locker = lockkit::connect(&url).await?;
    let (election, orders) = (locker.election("example/orders")?, Orders::default());
    let node = |name| node(name, election.clone(), orders.clone());
    let all = async {
        tokio::try_join!(observer(election.watch()), node(NODES[0]), node(NODES[1]), node(NODES[2]))
    };
    let (mut seen, ..) = timeout(Duration::from_secs(30), all).await.expect("three short terms")?;
    locker.shutdown().await?;
    seen.sort_unstable();
    assert_eq!(seen, NODES, "each leader is seen once");
    println!("{} orders on {}", orders.0.lock().unwrap_or_else(PoisonError::into_inner).len(), url);
    Ok(())
}
