//! The removal of a node from the tree. The claim's release runs it, or the session's actor if the
//! release is given up.

use std::sync::Arc;

use lockkit_core::spi::Released;
use zookeeper_client::{Client, Error, Stat};

use super::unfair_node::UnfairNode;

/// A node of a claim that is or may be in the tree, and must be removed. The task can run any
/// number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CleanupTask {
    /// A node in a queue, which may have been made. No other node's name begins with the stem.
    Requested { folder: Arc<str>, stem: Box<str> },
    /// A node in a queue that was seen. A program may hold very many of these, so they are small.
    Queued { path: Arc<str> },
    /// The node of an unfair mutex, and the proof of its owner.
    UnfairNode(Box<UnfairNode>),
}

impl CleanupTask {
    pub(super) fn folder(&self) -> &str {
        match self {
            Self::Requested { folder, .. } => folder,
            Self::Queued { path } => folder_of(path),
            Self::UnfairNode(unfair_node) => unfair_node.folder(),
        }
    }

    /// Whether the node was never seen. Its request may still be under way.
    pub(super) fn is_unseen(&self) -> bool {
        match self {
            Self::Requested { .. } => true,
            Self::Queued { .. } => false,
            Self::UnfairNode(unfair_node) => unfair_node.is_unseen(),
        }
    }

    /// Whether one of these names belongs to the node.
    pub(super) fn is_among(&self, children: &[String]) -> bool {
        children.iter().any(|name| match self {
            Self::Requested { stem, .. } => name.starts_with(&**stem),
            Self::Queued { path } => path.rsplit('/').next() == Some(name),
            Self::UnfairNode(unfair_node) => unfair_node.is_beside(name),
        })
    }

    /// Looks for the node that a request without an answer may have made.
    ///
    /// # Errors
    /// The server does not answer; the state is still unknown.
    pub(super) async fn find(
        &mut self,
        client: &Client,
    ) -> Result<Option<(Arc<str>, Stat)>, Error> {
        if let Self::UnfairNode(unfair_node) = self {
            let found = unfair_node.find(client).await?;
            return Ok(found.map(|(path, stat)| (path.into(), stat)));
        }
        if let Self::Queued { path } = self {
            // A server that lags behind would still show a node that was deleted.
            client.sync(folder_of(path)).await?;
        }
        let Some(path) = self.look(client).await? else { return Ok(None) };
        Ok(client.check_stat(&path).await?.map(|stat| (path, stat)))
    }

    /// The path of a node in a queue. Looks for the node of a request without an answer.
    async fn look(&mut self, client: &Client) -> Result<Option<Arc<str>>, Error> {
        match self {
            Self::Requested { folder, stem } => {
                let Some(path) = look_for(client, folder, stem).await? else { return Ok(None) };
                let path: Arc<str> = path.into();
                *self = Self::Queued { path: Arc::clone(&path) };
                Ok(Some(path))
            }
            Self::Queued { path } => Ok(Some(Arc::clone(path))),
            Self::UnfairNode(_) => Ok(None),
        }
    }

    /// Removes the node. Returns [`Released::NotHeld`] if there is or was none.
    ///
    /// # Errors
    /// The error of the server. Unless it is final, the removal may have been applied.
    pub(crate) async fn run(&mut self, client: &Client) -> Result<Released, Error> {
        if let Self::UnfairNode(unfair_node) = self {
            return unfair_node.free(client).await;
        }
        let Some(path) = self.look(client).await? else { return Ok(Released::NotHeld) };
        match client.delete(&path, None).await {
            Ok(()) => Ok(Released::Freed),
            Err(Error::NoNode) => Ok(Released::NotHeld),
            Err(error) => Err(error),
        }
    }
}

/// The folder of a node.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Looks for the name that begins with `stem`. The `sync` comes first, because a server that lags
/// behind would not show the node.
async fn look_for(client: &Client, folder: &str, stem: &str) -> Result<Option<String>, Error> {
    let synced = client.sync(folder);
    let listed = client.list_children(folder);
    let children = match synced.await {
        Ok(()) => listed.await,
        Err(error) => Err(error),
    };
    match children {
        Ok(children) => Ok(children
            .into_iter()
            .find(|name| name.starts_with(stem))
            .map(|name| format!("{folder}/{name}"))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}
