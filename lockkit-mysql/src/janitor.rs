//! Cleans up now and then.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinHandle, time};

use crate::backend::Kept;

/// How often in a retention.
const ROUNDS: u32 = 24;
/// How long a close waits for the task: a runtime that nobody drives never drops it.
const LAST_TURN: Duration = Duration::from_secs(1);

/// The task that removes the rows of unused names. It ends with the backend.
#[derive(Debug)]
pub(crate) struct Janitor(Mutex<Option<JoinHandle<()>>>);

impl Janitor {
    pub(crate) fn start(strategy: &Arc<dyn Kept>, retention: Duration) -> Self {
        let (strategy, round) = (Arc::downgrade(strategy), retention / ROUNDS);
        let task = Handle::try_current().ok().map(|runtime| {
            #[expect(clippy::disallowed_methods, reason = "one task for each backend, which ends with it")]
            runtime.spawn(work(strategy, round))
        });
        Self(Mutex::new(task))
    }

    pub(crate) async fn stop(&self) {
        let task = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // It says that it was cancelled.
            let _ = time::timeout(LAST_TURN, task).await;
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if let Some(task) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Processes that started together shall not all clean up together.
async fn work(strategy: Weak<dyn Kept>, round: Duration) {
    let mut pause = round.mul_f64(rand::random());
    loop {
        time::sleep(pause).await;
        pause = round;
        let Some(strategy) = strategy.upgrade() else { return };
        if let Err(error) = strategy.collect_garbage().await {
            tracing::debug!(target: "lockkit", %error, "the rows of unused names stay for now");
        }
    }
}
