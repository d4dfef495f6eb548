//! Three nodes, one leader: it gives orders until it is gone without a word, and another one takes
//! over within the lease.
//!
//! `cargo run --example leader` runs on the embedded memory store; give the URL of another one as
//! its argument.

use std::{
    env, sync::Arc, sync::atomic::AtomicU64, sync::atomic::Ordering::SeqCst, time::Duration,
};

use lockkit::{FencingToken, LeaderWatch, Leadership, LockOptions, Locker, Memory, Result};
use tokio::{runtime::Runtime, sync::oneshot::Sender, sync::oneshot::channel, time::sleep};

const ELECTION: &str = "example/orders";

/// What the leader writes to. It refuses whoever led before the latest one it knows.
#[derive(Clone, Default)]
struct Orders(Arc<AtomicU64>);

impl Orders {
    fn give(&self, term: FencingToken) -> bool {
        self.0.fetch_max(term.get(), SeqCst) <= term.get()
    }

    async fn give_five(&self, leadership: &Leadership) {
        println!("{:<4} leads in term {}", leadership.value(), leadership.term());
        for _ in 0..5 {
            sleep(Duration::from_millis(100)).await;
            // Exact, and no request: a leader that lost its lease must not even try.
            assert!(!leadership.is_leader() || self.give(leadership.term()), "two leaders");
        }
    }
}

/// A node's own locker. The embedded store is this process's; all others are told by their URL.
async fn connect(url: Option<&str>, memory: &Memory) -> Result<Locker> {
    let locker = if let Some(url) = url {
        lockkit::connect(url).await?
    } else {
        Locker::new(memory.clone())
    };
    let ttl = Duration::from_secs(2).max(locker.descriptor().min_ttl);
    locker.with_defaults(LockOptions::new().with_ttl(ttl))
}

/// Leads, and is gone all at once with its tasks and connections, as if it was killed: nothing is
/// given back.
fn anna(
    url: Option<&str>,
    memory: &Memory,
    orders: &Orders,
    leads: Sender<()>,
) -> Result<FencingToken> {
    let runtime = Runtime::new().expect("a runtime of its own");
    let leadership = runtime.block_on(async {
        let leadership = connect(url, memory).await?.election(ELECTION)?.campaign("anna").await?;
        leads.send(()).expect("the others wait for it");
        orders.give_five(&leadership).await;
        Result::Ok(leadership)
    })?;
    runtime.shutdown_background();
    Ok(leadership.term())
}

/// Needs no lock, and sees every leader that stands for a while.
async fn observer(mut watch: LeaderWatch) {
    while let Ok(leader) = watch.changed().await {
        println!("seen: {:?}", leader.map(|leader| leader.value));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1);
    let memory = Memory::new();
    let orders = Orders::default();
    let locker = connect(url.as_deref(), &memory).await?;
    let election = locker.election(ELECTION)?;
    let given = orders.clone();
    let (leads, led) = channel();
    let anna = tokio::task::spawn_blocking(move || anna(url.as_deref(), &memory, &given, leads));
    led.await.expect("anna leads first");
    tokio::spawn(observer(election.watch()));
    // They campaign while anna leads; `lead` begins again until the work was done by a leader.
    let lead = async |name| {
        election.lead(name, async |now| (orders.give_five(now).await, now.term()).1).await
    };
    let (ben, cleo) = tokio::try_join!(lead("ben"), lead("cleo"))?;
    let first = anna.await.expect("anna does not panic")?;
    println!(
        "three leaders on {}, in the terms {first}, {ben} and {cleo}",
        locker.descriptor().name
    );
    assert!(first < ben && first < cleo && ben != cleo, "each term is above those before");
    assert!(!orders.give(first), "an order of a past leader is refused");
    locker.shutdown().await
}
