//! The same code on several stores side by side. It needs only features that all stores have.
//!
//! * `cargo run --example swap_backend` runs on three embedded memory stores. With
//!   `--features file` it runs on a folder as well.
//! * `cargo run --features full --example swap_backend -- redis://127.0.0.1/ zk://127.0.0.1/
//! mysql://user:password@127.0.0.1/db`
//!   runs on those stores.

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use lockkit::{Locker, Result};
use tokio::task::JoinSet;

const TASKS: u64 = 10;
const TURNS: u64 = 5;

/// Uses any store. If the lock excludes, no turn is lost, and each turn has a larger token.
async fn count_up(locker: &Locker) -> Result<()> {
    // The number of turns so far, and the largest token.
    let shared = Arc::new(Mutex::new((0, 0)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mutex = locker.mutex("example/counter")?;
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = mutex.lock().await?;
                let token = guard.fencing_token().get();
                let (seen, largest) = *shared.lock().unwrap_or_else(PoisonError::into_inner);
                tokio::task::yield_now().await;
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = (seen + 1, token);
                assert!(largest < token, "the token {token} is not above earlier tokens");
                guard.release().await?;
            }
            Ok::<_, lockkit::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics")?;
    }
    let (turns, _) = *shared.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(turns, TASKS * TURNS, "turns were lost");
    Ok(())
}

/// The only lines that know a store. The rest of an application takes a `Locker`.
async fn try_store(url: &str) -> Result<()> {
    let locker = lockkit::connect(url).await?;
    let start = Instant::now();
    count_up(&locker).await?;
    let took = start.elapsed();
    // The capabilities say in advance what a store can't do.
    let can = locker.capabilities();
    println!("{:<8} {TASKS} tasks × {TURNS} turns in {took:>10.1?}", locker.descriptor().name);
    println!("         read/write locks {}, semaphores {}", can.shared, can.permits);
    locker.shutdown().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut urls: Vec<_> = env::args().skip(1).collect();
    let folder = tempfile::tempdir().expect("a folder");
    if urls.is_empty() {
        let memory = ["memory://", "memory://?ttl=5s", "memory://?process_gate=false"];
        urls.extend(memory.map(str::to_owned));
        if cfg!(feature = "file") {
            urls.push(format!("file://{}", folder.path().display()));
        }
    }
    for url in &urls {
        try_store(url).await?;
    }
    Ok(())
}
