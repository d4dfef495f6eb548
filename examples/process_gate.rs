//! Many tasks in one process want one lock. The tasks queue in the process, in order. If the store
//! supports it, one request transfers the lock from one task to the next.
//!
//! * `cargo run --example process_gate` runs on the embedded memory store.
//! * `cargo run --features redis --example process_gate -- redis://127.0.0.1/` runs on Redis. Other
//!   stores run with their URLs.

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lockkit::{Event, Observer, Result, What};
use tokio::{task::JoinSet, time::sleep};

const TASKS: usize = 64;

/// Counts the requests that the tasks sent to get the lock. A transferred lock needs none.
#[derive(Debug, Default)]
struct Requests(Mutex<u32>);

impl Observer for Requests {
    fn on_event(&self, event: &Event<'_>) {
        if let What::Acquired { attempts, .. } = event.what {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) += attempts;
        }
    }
}

async fn crowd(url: &str, gated: bool, what: &str) -> Result<Vec<usize>> {
    let requests = Arc::new(Requests::default());
    let observer: Arc<Requests> = Arc::clone(&requests);
    let locker = lockkit::builder(url).await?.observer(observer).build();
    let mutex = locker.with_process_gate(gated).mutex("crowded")?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let mutex = mutex.clone();
        let served = Arc::clone(&served);
        tasks.spawn(async move {
            let guard = mutex.lock().await?;
            served.lock().unwrap_or_else(PoisonError::into_inner).push((n, guard.fencing_token()));
            sleep(Duration::from_millis(1)).await;
            guard.release().await
        });
        tokio::task::yield_now().await;
    }
    for released in tasks.join_all().await {
        released?;
    }
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(served.windows(2).all(|pair| pair[0].1 < pair[1].1), "a token fell");
    let asked = *requests.0.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{what:<16} {TASKS} grants in {:?} with {asked} requests", start.elapsed());
    Ok(served.iter().map(|(n, _)| *n).collect())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let order = crowd(&url, true, "with the gate").await?;
    assert!(order.is_sorted(), "not in the order of the requests: {order:?}");
    crowd(&url, false, "without the gate").await?;
    Ok(())
}
