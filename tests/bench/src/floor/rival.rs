//! One rival of lockkit on one store, and the clients that it keeps between measurements.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{Floor, FloorClient};
use crate::{Error, Result, report::Side};

type Clients = Vec<Box<dyn FloorClient>>;

/// One rival of lockkit on one store.
pub(crate) struct Rival {
    pub(crate) side: Side,
    /// The rival, or the reason why it cannot run.
    floor: Result<Arc<dyn Floor>, String>,
    /// The clients of the previous measurement, and the number of its tasks.
    kept: Mutex<(u32, Clients)>,
}

impl Rival {
    /// If the rival could not open, the error becomes the reason why it cannot run.
    pub(super) fn new(side: Side, opened: Result<impl Floor + 'static>) -> Self {
        match opened {
            Ok(floor) => Self { side, floor: Ok(Arc::new(floor)), kept: Mutex::default() },
            Err(error) => Self::without(side, error.to_string()),
        }
    }

    pub(super) fn without(side: Side, reason: String) -> Self {
        Self { side, floor: Err(reason), kept: Mutex::default() }
    }

    /// The reason why the rival cannot run.
    pub(crate) fn absence(&self) -> Option<&str> {
        self.floor.as_ref().err().map(String::as_str)
    }

    /// Clients for the work of this many tasks: the kept ones, or new ones.
    pub(crate) async fn clients(&self, tasks: u32) -> Result<Clients> {
        let floor = self.floor.as_ref().map_err(|reason| Error::new(reason.clone()))?;
        let (for_tasks, kept) = std::mem::take(&mut *self.kept.lock().await);
        if for_tasks == tasks {
            return Ok(kept);
        }
        floor.clients(usize::try_from(tasks).unwrap_or(usize::MAX)).await
    }

    /// Keeps the clients for the next measurement. The clients of contenders end instead. On
    /// MySQL each of them has a connection, and a server does not allow enough connections for all
    /// sides at once.
    pub(crate) async fn keep(&self, tasks: u32, clients: Clients) {
        if self.side == Side::Floor {
            *self.kept.lock().await = (tasks, clients);
        }
    }

    pub(crate) async fn drop_clients(&self) {
        self.kept.lock().await.1.clear();
    }

    pub(crate) async fn close(&self) -> Result<()> {
        match &self.floor {
            Ok(floor) => floor.close().await,
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::{Duration, Instant},
    };

    use async_trait::async_trait;

    use super::*;

    /// Counts its living clients.
    #[derive(Debug, Default)]
    struct Counted(Arc<AtomicUsize>);

    struct Client(Arc<AtomicUsize>);

    impl Drop for Client {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[async_trait]
    impl FloorClient for Client {
        async fn pair(&mut self, _name: &str, _hold: Duration) -> Result<Instant> {
            Ok(Instant::now())
        }
    }

    #[async_trait]
    impl Floor for Counted {
        async fn clients(&self, tasks: usize) -> Result<Clients> {
            self.0.fetch_add(tasks, Ordering::SeqCst);
            let client = || -> Box<dyn FloorClient> { Box::new(Client(Arc::clone(&self.0))) };
            Ok((0..tasks).map(|_| client()).collect())
        }

        async fn close(&self) -> Result<()> {
            Ok(())
        }
    }

    /// A run on both strategies of one MySQL would otherwise need more than 150 connections.
    #[tokio::test]
    async fn contenders_keep_no_clients_between_measurements() {
        for (side, kept) in [(Side::Floor, 3), (Side::Classic, 0), (Side::RowLock, 0)] {
            let live = Arc::new(AtomicUsize::new(0));
            let rival = Rival::new(side, Ok(Counted(Arc::clone(&live))));
            for _ in 0..2 {
                let clients = rival.clients(3).await.unwrap();
                assert_eq!(live.load(Ordering::SeqCst), 3, "{side:?}");
                rival.keep(3, clients).await;
                assert_eq!(live.load(Ordering::SeqCst), kept, "{side:?}");
            }
            rival.drop_clients().await;
            assert_eq!(live.load(Ordering::SeqCst), 0, "{side:?}");
        }
    }
}
