//! The least that a store has to do for a lock, by its bare driver: what the figures of lockkit are compared with.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;

use crate::{Error, Result};

/// The least that a store has to do for a lock, by its bare driver: no retry, no renewal, no wait.
#[async_trait]
pub(crate) trait Floor: Send + Sync + Debug {
    /// Clients that together do the work of so many tasks: as many as lockkit's backend would use connections for it.
    /// Where a connection is shared by tasks, each gets a client of its own on it.
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>>;

    /// Frees connections, and removes what clients left in the store.
    async fn close(&self) -> Result<()>;
}

/// One task at work.
#[async_trait]
pub(crate) trait FloorClient: Send {
    /// Takes a name and gives it back. Nobody else uses the name.
    async fn pair(&mut self, name: &str) -> Result<()>;
}

/// The floor of a store; `None` where there is no driver under lockkit.
pub(crate) async fn open(url: &str) -> Result<Option<Arc<dyn Floor>>> {
    let _ = url;
    Err(Error::new("not yet"))
}
