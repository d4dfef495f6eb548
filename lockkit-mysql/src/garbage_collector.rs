//! Removes the rows of unused names from time to time.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinHandle, time};

use crate::strategy::Locking;

/// How many rounds there are in one retention.
const ROUNDS: u32 = 24;
/// How long a close waits for the task. A runtime that is not driven any more never drops the task.
const LAST_TURN: Duration = Duration::from_secs(1);

/// The task that removes the rows of unused names. It ends with the backend.
#[derive(Debug)]
pub(crate) struct GarbageCollector(Mutex<Option<JoinHandle<()>>>);

impl GarbageCollector {
    pub(crate) fn start(strategy: &Arc<dyn Locking>, retention: Duration) -> Self {
        let strategy = Arc::downgrade(strategy);
        let round = retention / ROUNDS;
        let task = Handle::try_current().ok().map(|runtime| {
            #[expect(
                clippy::disallowed_methods,
                reason = "one task for each backend, which ends with it"
            )]
            runtime.spawn(work(strategy, round))
        });
        Self(Mutex::new(task))
    }

    pub(crate) async fn stop(&self) {
        let task = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // The result only says that the task was cancelled.
            let _ = time::timeout(LAST_TURN, task).await;
        }
    }
}

impl Drop for GarbageCollector {
    fn drop(&mut self) {
        if let Some(task) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Begins with a random pause, so that processes that started together do not all clean up
/// together.
async fn work(strategy: Weak<dyn Locking>, round: Duration) {
    let mut pause = round.mul_f64(rand::random());
    loop {
        time::sleep(pause).await;
        pause = round;
        let Some(strategy) = strategy.upgrade() else { return };
        if let Err(error) = strategy.collect_garbage().await {
            tracing::debug!(target: "lockkit", %error, "could not delete the rows of unused names; \
                                                        lockkit tries again later");
        }
    }
}
