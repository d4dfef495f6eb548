//! Three nodes, one leader: it gives orders until it is gone without a word, and another one takes over within the lease.
//!
//! `cargo run --example leader` runs on the embedded memory store; give the URL of another one as its argument.

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lockkit::{FencingToken, Leadership, LockOptions, Locker, Memory, Result};
use tokio::{runtime::Runtime, time::sleep};

const ELECTION: &str = "example/orders";

/// What the leader writes to. It refuses whoever led before the latest one it knows.
#[derive(Clone, Default)]
struct Orders(Arc<Mutex<Vec<FencingToken>>>);

impl Orders {
    fn give(&self, term: FencingToken) -> bool {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = orders.last().is_none_or(|latest| term >= *latest);
        orders.extend(fresh.then_some(term));
        fresh
    }

    async fn give_five(&self, leadership: &Leadership) {
        println!("{:<4} leads in term {}", leadership.value(), leadership.term());
        for _ in 0..5 {
            sleep(Duration::from_millis(50)).await;
            // Exact, and no request: a leader that lost its lease must not even try.
            assert!(
                !leadership.is_leader() || self.give(leadership.term()),
                "a later leader was here before"
            );
        }
    }
}

/// A node's own locker. The embedded store is this process's; all others are told by their URL.
async fn connect(url: Option<&str>, memory: &Memory) -> Result<Locker> {
    let locker = if let Some(url) = url { lockkit::connect(url).await? } else { Locker::new(memory.clone()) };
    let ttl = Duration::from_secs(2).max(locker.descriptor().min_ttl);
    locker.with_defaults(LockOptions::new().with_ttl(ttl))
}

/// Leads, and is gone all at once with its tasks and connections, as if it was killed: nothing is given back.
fn anna(url: Option<&str>, memory: &Memory, orders: &Orders) -> Result<FencingToken> {
    let runtime = Runtime::new().expect("a runtime of its own");
    let leadership = runtime.block_on(async {
        let leadership = connect(url, memory).await?.election(ELECTION)?.campaign("anna").await?;
        orders.give_five(&leadership).await;
        Ok::<_, lockkit::Error>(leadership)
    })?;
    runtime.shutdown_background();
    Ok(leadership.term())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (url, memory, orders) = (env::args().nth(1), Memory::new(), Orders::default());
    let locker = connect(url.as_deref(), &memory).await?;
    let (election, given) = (locker.election(ELECTION)?, orders.clone());
    let anna = tokio::task::spawn_blocking(move || anna(url.as_deref(), &memory, &given));
    // Observers need no lock, and see every leader that stands for a while.
    let mut watch = election.watch();
    while watch.changed().await?.is_none() {}
    println!("an observer sees {:?}", watch.current().map(|leader| &leader.value));
    // They campaign while anna leads; `lead` begins again until the work was done by a leader.
    let follow =
        async |name: &str| election.lead(name, async |now| (orders.give_five(now).await, now.term()).1).await;
    let died = async { (anna.await.expect("anna does not panic"), Instant::now()) };
    let ((first, death), ben, cleo) = tokio::join!(died, follow("ben"), follow("cleo"));
    let (first, ben, cleo) = (first?, ben?, cleo?);
    println!("anna is gone, and {:?} later both have led", death.elapsed());
    assert!(first < ben && first < cleo && ben != cleo, "each term is above those before");
    assert!(!orders.give(first), "an order of a past leader is refused");
    locker.shutdown().await
}
