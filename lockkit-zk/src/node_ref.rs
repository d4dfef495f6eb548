//! A reference to a claim's node, for a few requests in a row.

use std::sync::Arc;

use lockkit_core::{Clock, Result, spi::RenewalOutcome};
use zookeeper_client::{Client, Error as ZkError};

use crate::{
    error::Phase,
    session::{ClaimNode, Session, folder_of},
};

/// A node that was made, its session, and the client that reaches it.
#[derive(Debug)]
pub(crate) struct NodeRef {
    pub(crate) session: Arc<Session>,
    pub(crate) client: Arc<Client>,
    pub(crate) path: Arc<str>,
    /// The zxid that made the node: the fencing token.
    pub(crate) created: i64,
}

impl NodeRef {
    /// Returns `None` until the node is known, and after the end of the session.
    pub(crate) fn of(claim_node: &ClaimNode) -> Option<Self> {
        let path = Arc::clone(claim_node.path()?);
        let created = claim_node.created_by()?;
        let session = Arc::clone(claim_node.session());
        let client = session.client().ok()?;
        Some(Self { session, client, path, created })
    }

    /// The name of the node in its folder.
    pub(crate) fn node(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The folder of the node.
    pub(crate) fn folder(&self) -> &str {
        folder_of(&self.path)
    }

    /// Whether the node is still there.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn is_there(&self) -> Result<bool> {
        match self.client.check_stat(&self.path).await {
            Ok(stat) => Ok(stat.is_some_and(|stat| stat.czxid == self.created)),
            Err(error) => Err(self.failed(error, "looking for", &self.path)),
        }
    }

    /// The children of the folder, or `None` if the folder does not exist.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn list(&self) -> Result<Option<Vec<String>>> {
        let folder = self.folder();
        match self.client.list_children(folder).await {
            Ok(children) => Ok(Some(children)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(self.failed(error, "listing", folder)),
        }
    }

    /// Checks whether the claim of this node still holds its lock, and returns `None` if not.
    ///
    /// # Errors
    /// The state is unknown: the server does not answer, or the leader does not confirm the
    /// session.
    pub(crate) async fn confirm(&self, clock: Clock) -> Result<Option<RenewalOutcome>> {
        if !self.is_there().await? {
            return Ok(None);
        }
        self.session.confirm(clock).map(Some)
    }

    /// Translates a failed request. The outcome for the claim is unknown, because its node may
    /// exist.
    pub(crate) fn failed(&self, error: ZkError, what: &str, path: &str) -> lockkit_core::Error {
        self.session.failed(error, Phase::Write, what, path)
    }
}
