//! Where a claim's node stands, for a few requests in a row.

use std::sync::Arc;

use lockkit_core::{Clock, Result, spi::Pulse};
use zookeeper_client::{Client, Error as ZkError};

use crate::{
    error::Phase,
    session::{Place, Session},
};

/// A node that was made, its session, and the way to it.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) session: Arc<Session>,
    pub(crate) client: Arc<Client>,
    pub(crate) path: String,
    /// The zxid that made the node: the fencing token.
    pub(crate) created: i64,
}

impl Stand {
    /// `None` until the node is known, and after the end of the session.
    pub(crate) fn of(place: &Place) -> Option<Self> {
        let path = place.path()?.to_owned();
        let created = place.created_by()?;
        let session = Arc::clone(place.session());
        let client = session.client().ok()?;
        Some(Self { session, client, path, created })
    }

    /// The name of the node in its folder.
    pub(crate) fn node(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether the node still stands.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn is_there(&self) -> Result<bool> {
        match self.client.check_stat(&self.path).await {
            Ok(stat) => Ok(stat.is_some_and(|stat| stat.czxid == self.created)),
            Err(error) => Err(self.failed(error, "looking for", &self.path)),
        }
    }

    /// What is in the folder; `None` if that is gone.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn list(&self, folder: &str) -> Result<Option<Vec<String>>> {
        match self.client.list_children(folder).await {
            Ok(children) => Ok(Some(children)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(self.failed(error, "listing", folder)),
        }
    }

    /// Whether what it stands for is still held; `None` if not.
    ///
    /// # Errors
    /// It is unknown: no answer, or the leader does not confirm the session.
    pub(crate) async fn pulse(&self, clock: Clock) -> Result<Option<Pulse>> {
        if !self.is_there().await? {
            return Ok(None);
        }
        self.session.pulse(clock).map(Some)
    }

    /// A failed request leaves it open what becomes of the claim, whose node may be there.
    pub(crate) fn failed(&self, error: ZkError, what: &str, path: &str) -> lockkit_core::Error {
        self.session.failed(error, Phase::Write, what, path)
    }
}
