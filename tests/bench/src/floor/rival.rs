//! One rival of lockkit on one store, and its clients from one measurement to the next.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{Floor, FloorClient};
use crate::{Error, Result, report::Side};

type Clients = Vec<Box<dyn FloorClient>>;

/// One rival of lockkit on one store.
pub(crate) struct Rival {
    pub(crate) side: Side,
    /// The rival, or the reason why there is none.
    floor: Result<Arc<dyn Floor>, String>,
    /// The clients of the last time, and the number of tasks that they were for.
    kept: Mutex<(u32, Clients)>,
}

impl Rival {
    /// An error of the opening becomes the reason why there is no such rival.
    pub(super) fn new(side: Side, opened: Result<impl Floor + 'static>) -> Self {
        match opened {
            Ok(floor) => Self { side, floor: Ok(Arc::new(floor)), kept: Mutex::default() },
            Err(error) => Self::without(side, error.to_string()),
        }
    }

    pub(super) fn without(side: Side, reason: String) -> Self {
        Self { side, floor: Err(reason), kept: Mutex::default() }
    }

    /// The reason why there is no such rival.
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

    /// Keeps the clients for the next measurement.
    pub(crate) async fn keep(&self, tasks: u32, clients: Clients) {
        *self.kept.lock().await = (tasks, clients);
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
