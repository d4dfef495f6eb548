//! What a server is, how it is set up, and what it counts.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;

use crate::{
    Error, Result,
    report::{Guarantee, Setting},
};

/// What there is to say about a server in the report.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Such as `Redis`.
    pub(crate) product: String,
    /// Such as `7.0.15`.
    pub(crate) version: String,
    /// What was asked about durability and the like.
    pub(crate) settings: Vec<Setting>,
    /// What a lock is worth on it, never better than what was read.
    pub(crate) guarantee: Guarantee,
}

/// A server, or the servers behind one URL.
#[async_trait]
pub(crate) trait Server: Send + Sync + Debug {
    /// The facts for the report.
    async fn facts(&self) -> Result<Facts>;

    /// Requests of clients that the server has had so far, as it counts them, without those by which it was asked.
    /// `None`: it does not tell.
    async fn requests(&self) -> Result<Option<u64>>;
}

/// A server by its URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Server>> {
    let _ = url;
    Err(Error::new("not yet"))
}
