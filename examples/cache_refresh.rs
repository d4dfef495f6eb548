//! One cached page and a slow source: readers share the lock, and only one refreshes the page.
//!
//! `cargo run --example cache_refresh` runs on the embedded memory store, or on the store of its
//! argument, a URL. MySQL's row locks (`strategy=pessimistic`) and quorums have no read/write
//! locks.

use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering::SeqCst};
use std::{env, time::Duration};

use lockkit::{Locker, Result};
use tokio::{task::JoinSet, time::sleep};

/// Represents a cache on another server. A write has two parts, and no reader may read between
/// them.
#[derive(Default)]
struct Cache {
    head: AtomicU64,
    body: AtomicU64,
    asked_source: AtomicU64,
}

impl Cache {
    async fn read(&self) -> u64 {
        let head = self.head.load(SeqCst);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(head, self.body.load(SeqCst), "a reader saw half of a page");
        head
    }

    async fn refresh(&self, version: u64) {
        self.asked_source.fetch_add(1, SeqCst);
        self.head.store(version, SeqCst);
        sleep(Duration::from_millis(20)).await; // the source is slow
        self.body.store(version, SeqCst);
    }
}

/// Returns the page, no older than `wanted`.
async fn page(locker: &Locker, cache: &Cache, wanted: u64) -> Result<u64> {
    let lock = locker.rw_lock("example/page")?;
    let guard = lock.read().await?;
    let version = cache.read().await;
    guard.release().await?;
    if version >= wanted {
        return Ok(version);
    }
    // A shared lock cannot become exclusive, because two readers would wait for each other. So
    // check again under the exclusive lock.
    let guard = lock.write().await?;
    if cache.read().await < wanted {
        guard.run(cache.refresh(wanted)).await?;
        println!("version {wanted} was fetched under token {}", guard.fencing_token());
    }
    let version = cache.read().await;
    guard.release().await?;
    Ok(version)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let cache = Arc::new(Cache::default());
    let mut readers = JoinSet::new();
    for reader in 0..30 {
        let (locker, cache) = (locker.clone(), Arc::clone(&cache));
        readers.spawn(async move {
            let version = page(&locker, &cache, 1 + reader / 10).await?;
            assert!(version > reader / 10, "reader {reader} got the old version {version}");
            Ok::<_, lockkit::Error>(())
        });
    }
    while let Some(read) = readers.join_next().await {
        read.expect("no reader panics")?;
    }
    let asked = cache.asked_source.load(SeqCst);
    println!("30 readers on {} sent {asked} requests to the source", locker.descriptor().name);
    assert!((1..=3).contains(&asked), "at most one request for each version");
    locker.shutdown().await
}
