//! A process gives its lock to another process, which finishes the work. The fencing token stays
//! the same, and at no instant is the lock free.
//!
//! `cargo run --example ticket redis://127.0.0.1` uses the store of this URL, and starts itself
//! again as the other process. Without a URL it runs on the embedded memory store, which no other
//! process can use.

use std::{env, process::Command};

use lockkit::{ErrorKind, Locker, Result, TicketError};
use tokio::task::spawn_blocking;

/// The environment variable with the ticket. Other users could read it among the arguments.
const TICKET: &str = "EXAMPLE_TICKET";

/// The other process: it continues the lock, and releases it at the end of its work.
async fn worker(locker: &Locker, ticket: &str) -> Result<()> {
    let guard = locker.resume(ticket).await?;
    println!("worker: it has the lock, with the token {}", guard.fencing_token());
    let error = locker.resume(ticket).await.expect_err("a ticket works once");
    assert_eq!(error.kind(), ErrorKind::Lost);
    guard.release().await
}

/// Starts this program again, as the other process, and waits for its end.
async fn start_worker(url: String, ticket: String) {
    let mut worker = Command::new(env::current_exe().expect("this program has a path"));
    worker.arg(url).env(TICKET, ticket);
    let ended = spawn_blocking(move || worker.status()).await.expect("no panic");
    assert!(ended.expect("the worker starts").success());
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1);
    let locker = lockkit::connect(url.as_deref().unwrap_or("memory://")).await?;
    if let Ok(ticket) = env::var(TICKET) {
        worker(&locker, &ticket).await?;
        return locker.shutdown().await;
    }

    let mutex = locker.mutex("example/ticket")?;
    let guard = mutex.lock().await?;
    println!("parent: it has the lock, with the token {}", guard.fencing_token());
    let hold = guard.hold();
    // An error on ZooKeeper and on files.
    let ticket = guard.into_ticket().await.map_err(TicketError::into_error)?;
    assert!(!hold.is_held(), "this process is no holder any more");
    assert!(mutex.try_lock().await?.is_none(), "but the lock is not free");

    match url {
        Some(url) => start_worker(url, ticket).await,
        None => worker(&locker, &ticket).await?,
    }
    let guard = mutex.lock().await?;
    println!("parent: it has the lock again, with the token {}", guard.fencing_token());
    guard.release().await?;
    locker.shutdown().await
}
