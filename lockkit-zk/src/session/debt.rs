//! What has to be undone in the tree, and how: by the claim's release, or by the session's actor if
//! that is given up.

use lockkit_core::spi::Released;
use zookeeper_client::{Client, Error, Stat};

use super::single::Single;

/// Something of a claim that is or may be in the tree. Paying is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Debt {
    /// A node in a queue, which may have been made: nobody else's name begins with the stem.
    Place {
        folder: String,
        stem: String,
        /// Once it is known.
        path: Option<String>,
    },
    /// The node of an unfair mutex, and what proves whose it is.
    Single(Single),
}

impl Debt {
    pub(super) fn folder(&self) -> &str {
        match self {
            Self::Place { folder, .. } => folder,
            Self::Single(single) => single.folder(),
        }
    }

    /// Whether it was never seen: its request may still be under way.
    pub(super) fn is_unseen(&self) -> bool {
        match self {
            Self::Place { path, .. } => path.is_none(),
            Self::Single(single) => single.is_unseen(),
        }
    }

    /// Whether it is one of these, by their names.
    pub(super) fn is_among(&self, children: &[String]) -> bool {
        children.iter().any(|name| match self {
            Self::Place { stem, .. } => name.starts_with(stem),
            Self::Single(single) => single.is_beside(name),
        })
    }

    /// Looks for what a request without an answer may have made.
    ///
    /// # Errors
    /// No answer; it is still unknown.
    pub(super) async fn find(&mut self, client: &Client) -> Result<Option<(String, Stat)>, Error> {
        match self {
            Self::Place { folder, stem, path } => {
                *path = look_for(client, folder, stem).await?;
                let Some(path) = path.clone() else { return Ok(None) };
                Ok(client.check_stat(&path).await?.map(|stat| (path, stat)))
            }
            Self::Single(single) => single.find(client).await,
        }
    }

    /// Undoes it: [`Released::NotHeld`] if nothing is or was there.
    ///
    /// # Errors
    /// What the server said. Unless that is final, it may have been applied.
    pub(crate) async fn pay(&mut self, client: &Client) -> Result<Released, Error> {
        match self {
            Self::Place { folder, stem, path } => {
                if path.is_none() {
                    *path = look_for(client, folder, stem).await?;
                }
                let Some(path) = path else { return Ok(Released::NotHeld) };
                match client.delete(path, None).await {
                    Ok(()) => Ok(Released::Freed),
                    Err(Error::NoNode) => Ok(Released::NotHeld),
                    Err(error) => Err(error),
                }
            }
            Self::Single(single) => single.free(client).await,
        }
    }
}

/// Looks for the name that begins with `stem`. A server that lags behind would hide it: sync first.
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
