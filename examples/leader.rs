//! Three nodes and one leader. The leader gives orders until it crashes. Then another node takes
//! over.
//!
//! `cargo run --example leader` runs on the embedded memory store, or on the store of its argument.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::{env, time::Duration};

use lockkit::{FencingToken, Hold, LeaderWatch, LockOptions, Locker, Memory, Result};
use tokio::{runtime::Runtime, sync::oneshot, time::sleep};

const ELECTION: &str = "example/orders";

/// The resource that the leader writes to. It refuses leaders that precede the latest leader.
fn give_order(term: FencingToken) -> bool {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    LATEST.fetch_max(term.get(), SeqCst) <= term.get()
}

async fn give_five(name: &str, hold: &Hold) {
    println!("{name:<4} leads in term {}", hold.fencing_token());
    for _ in 0..5 {
        sleep(Duration::from_millis(100)).await;
        // The check is exact and sends no request. A leader without its lease must not even try.
        assert!(!hold.is_held() || give_order(hold.fencing_token()), "two leaders");
    }
}

/// Creates a node's own locker, for the embedded store of this process or for the store of a URL.
async fn connect(url: Option<&str>, memory: &Memory) -> Result<Locker> {
    let locker = match url {
        Some(url) => lockkit::connect(url).await?,
        None => Locker::new(memory.clone()),
    };
    let ttl = Duration::from_secs(2).max(locker.descriptor().min_ttl);
    locker.with_defaults(LockOptions::new().with_ttl(ttl))
}

/// Leads, and then crashes with its tasks and connections. It releases nothing, as after a kill.
fn anna(url: Option<&str>, memory: &Memory, leads: oneshot::Sender<()>) -> Result<FencingToken> {
    let runtime = Runtime::new().expect("a separate runtime");
    let leadership = runtime.block_on(async {
        let leadership = connect(url, memory).await?.election(ELECTION)?.campaign("anna").await?;
        leads.send(()).expect("the other nodes wait for this");
        give_five("anna", &leadership.hold()).await;
        Result::Ok(leadership)
    })?;
    runtime.shutdown_background();
    Ok(leadership.term())
}

/// Observes the leaders without a lock. It sees each leader that leads for a while.
async fn observer(mut watch: LeaderWatch) {
    while let Ok(leader) = watch.changed().await {
        println!("seen: {:?}", leader.map(|leader| leader.value));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1);
    let memory = Memory::new();
    let locker = connect(url.as_deref(), &memory).await?;
    let election = locker.election(ELECTION)?;
    let (leads, led) = oneshot::channel();
    let anna = tokio::task::spawn_blocking(move || anna(url.as_deref(), &memory, leads));
    led.await.expect("anna leads first");
    tokio::spawn(observer(election.watch()));
    // They campaign while anna leads; `lead` repeats the work until a leader has done all of it.
    let work = async |name, hold: Hold| (give_five(name, &hold).await, hold.fencing_token()).1;
    let lead = async |name| election.lead(name, |hold| work(name, hold)).await;
    let (ben, cleo) = tokio::try_join!(lead("ben"), lead("cleo"))?;
    let first = anna.await.expect("anna does not panic")?;
    let store = locker.descriptor().name;
    println!("three leaders on {store}, in the terms {first}, {ben} and {cleo}");
    assert!(first < ben && first < cleo && ben != cleo, "each term is above those before");
    assert!(!give_order(first), "the resource refuses an order of a past leader");
    locker.shutdown().await
}
