//! A service that allows three calls at a time, and three calls in each tenth of a second, to all
//! workers together. A semaphore counts the calls of all hosts.
//!
//! `cargo run --example rate_limit` runs on the embedded memory store, or on the store of its
//! argument, a URL. MySQL's row locks (`strategy=pessimistic`) and quorums have no semaphores.

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lockkit::{Locker, Result};
use tokio::{task::JoinSet, time::sleep};

const LIMIT: u32 = 3;
const WINDOW: Duration = Duration::from_millis(100);
const WORKERS: u32 = 6;
const CALLS_EACH: u32 = 2;

/// The service, as its owner sees it.
#[derive(Default)]
struct Service {
    present: u32,
    most: u32,
    starts: Vec<Instant>,
}

type Shared = Arc<Mutex<Service>>;

fn with<T>(service: &Shared, work: impl FnOnce(&mut Service) -> T) -> T {
    work(&mut service.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn call(service: &Shared) {
    with(service, |service| {
        service.starts.push(Instant::now());
        service.present += 1;
        service.most = service.most.max(service.present);
    });
    sleep(Duration::from_millis(20)).await;
    with(service, |service| service.present -= 1);
}

async fn worker(number: u32, locker: Locker, service: Shared) -> Result<()> {
    // All clients must name the same limit. lockkit refuses another limit while a permit is in use.
    let permits = locker.semaphore("example/calls", LIMIT)?;
    for _ in 0..CALLS_EACH {
        let permit = permits.acquire().await?;
        permit.run(call(&service)).await?;
        // The worker keeps the permit for a window after the call, so the limit becomes a rate.
        sleep(WINDOW).await;
        println!("worker {number} called with token {}", permit.fencing_token());
        permit.release().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let service = Shared::default();
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(worker(number, locker.clone(), Arc::clone(&service)));
    }
    while let Some(worker) = workers.join_next().await {
        worker.expect("no worker panics")?;
    }
    with(&service, |service| {
        let calls = service.starts.len();
        let store = locker.descriptor().name;
        println!("{calls} calls on {store}, at most {} at a time", service.most);
        assert!(service.most <= LIMIT, "more calls at a time than permits");
        let fourth = service.starts.windows(4).map(|starts| starts[3] - starts[0]).min();
        assert!(fourth.is_some_and(|gap| gap >= WINDOW), "four calls within {fourth:?}");
    });
    locker.shutdown().await
}
