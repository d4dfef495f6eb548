//! Measures how slowly the store answers, independent of the locks of a case.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lockkit_core::spi::{Claim, Wait};
use tokio::{
    sync::oneshot::{self, Receiver, Sender},
    task::JoinHandle,
    time::timeout,
};

use crate::{env::Env, stall::Gaps, wait::soon};

const NAME: &str = "ping";

/// Takes a lock of its own and gives it back, again and again, on a connection of its own.
///
/// Both requests are writes, because a store with a slow disk may still answer a reader at once.
/// Neither request is a renewal: a backend whose renewals hang must not look like a store that
/// pauses.
pub(crate) struct Pinger {
    gaps: Arc<Mutex<Gaps>>,
    stop: Sender<()>,
    task: JoinHandle<()>,
}

impl Pinger {
    /// Begins once the store has answered, because connecting takes longer than later requests.
    pub(crate) async fn start(env: &Env, ttl: Duration) -> Self {
        let backend = env.backend().await;
        let options = env.fleeting(ttl);
        let claim = {
            let env = env.clone();
            move || env.claim(&*backend, NAME, &options)
        };
        let mut first = claim();
        // The case needs only the time of these answers, not their content.
        drop((first.attempt(Wait::No).await, first.release().await));
        drop(first);
        let gaps = Arc::new(Mutex::new(Gaps::new()));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(ping(claim, ttl / 20, Arc::clone(&gaps), stopped));
        Self { gaps, stop, task }
    }

    pub(crate) fn restart(&self) {
        *locked(&self.gaps) = Gaps::new();
    }

    /// The longest time between two answers since the last [`restart`](Self::restart). The present,
    /// unfinished gap counts too.
    pub(crate) fn slowest(&self) -> Duration {
        let mut gaps = *locked(&self.gaps);
        gaps.take_turn();
        gaps.longest
    }

    pub(crate) async fn end(self) {
        drop(self.stop);
        timeout(soon(), self.task)
            .await
            .expect("C6: a request on a connection of its own hangs")
            .unwrap();
    }
}

impl fmt::Debug for Pinger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinger").field(&self.gaps).finish()
    }
}

async fn ping(
    claim: impl Fn() -> Box<dyn Claim>,
    nap: Duration,
    gaps: Arc<Mutex<Gaps>>,
    mut stopped: Receiver<()>,
) {
    loop {
        let mut claim = claim();
        drop(claim.attempt(Wait::No).await);
        locked(&gaps).take_turn();
        let over = timeout(nap, &mut stopped).await.is_ok();
        drop(claim.release().await);
        locked(&gaps).take_turn();
        if over || timeout(nap, &mut stopped).await.is_ok() {
            return;
        }
    }
}

fn locked(gaps: &Mutex<Gaps>) -> MutexGuard<'_, Gaps> {
    gaps.lock().unwrap_or_else(PoisonError::into_inner)
}
