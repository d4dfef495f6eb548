//! The memory store behind a slow connection, or behind one that pauses now and then.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use lockkit_conformance::{
    BoxError, Faults, Harness, Hook, Link as _, Store,
    faulty::{Faulty, Line},
    stores::MemoryStore,
};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
};
use tokio::{task::JoinHandle, time::sleep};

/// How a connection to a right store is slow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slowness {
    /// Each request and each reply takes this long.
    Always(Duration),
    /// Every second, no request arrives for this long.
    NowAndThen(Duration),
}

#[derive(Debug)]
pub(crate) struct SlowStore(pub(crate) Slowness);

#[async_trait]
impl Store for SlowStore {
    fn name(&self) -> &str {
        "slow"
    }

    fn descriptor(&self) -> Descriptor {
        MemoryStore::new().descriptor()
    }

    fn hooks(&self) -> Vec<Hook> {
        Vec::new()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let memory = MemoryStore::new().open().await?;
        let lines = Arc::<Mutex<Vec<Arc<Line>>>>::default();
        let stalls = match self.0 {
            Slowness::Always(_) => None,
            Slowness::NowAndThen(length) => Some(tokio::spawn(stall(Arc::clone(&lines), length))),
        };
        Ok(Box::new(SlowHarness { memory, slowness: self.0, lines, stalls: Mutex::new(stalls) }))
    }
}

async fn stall(lines: Arc<Mutex<Vec<Arc<Line>>>>, length: Duration) {
    let set_all = |faults| lines.lock().unwrap().iter().for_each(|line| line.set(faults));
    loop {
        sleep(Duration::from_secs(1).mul_f64(rand::random_range(0.5..1.5))).await;
        set_all(Faults { hold_requests: true, ..Faults::NONE });
        sleep(length).await;
        set_all(Faults::NONE);
    }
}

#[derive(Debug)]
struct SlowHarness {
    memory: Box<dyn Harness>,
    slowness: Slowness,
    lines: Arc<Mutex<Vec<Arc<Line>>>>,
    stalls: Mutex<Option<JoinHandle<()>>>,
}

#[async_trait]
impl Harness for SlowHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let faulty = Faulty::new(self.memory.connect().await?);
        let line = faulty.line();
        if let Slowness::Always(delay) = self.slowness {
            line.set(Faults { request_delay: delay, reply_delay: delay, ..Faults::NONE });
        }
        self.lines.lock().unwrap().push(line);
        Ok(Arc::new(faulty))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        self.memory.expire_now(name).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        self.memory.leaks().await
    }

    async fn close(&self) {
        let stalls = self.stalls.lock().unwrap().take();
        if let Some(stalls) = stalls {
            stalls.abort();
            // The task reports that it was cancelled.
            let _ = stalls.await;
        }
        self.lines.lock().unwrap().iter().for_each(|line| line.heal());
        self.memory.close().await;
    }
}
