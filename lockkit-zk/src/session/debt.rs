//! What has to be undone in the tree, and how: by the claim's release, or by the session's actor if that is given up.

use lockkit_core::spi::Released;
use zookeeper_client::{Client, Error, MultiWriteError, Stat};

/// The node of an unfair mutex in its folder. Its data ends with the id of the try that made it.
pub(crate) const HELD: &str = "held";

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
    /// The node of an unfair mutex, and the one beside it whose name proves whose it is.
    Single { folder: String, id: String },
}

impl Debt {
    pub(super) fn folder(&self) -> &str {
        let (Self::Place { folder, .. } | Self::Single { folder, .. }) = self;
        folder
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
            Self::Single { folder, id } => {
                let path = format!("{folder}/{HELD}");
                let (synced, read) = (client.sync(folder), client.get_data(&path));
                synced.await?;
                match read.await {
                    Ok((data, stat)) if data.ends_with(id.as_bytes()) => Ok(Some((path, stat))),
                    Ok(_) | Err(Error::NoNode) => Ok(None),
                    Err(error) => Err(error),
                }
            }
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
            Self::Single { folder, id } => delete_single(client, folder, id).await,
        }
    }
}

/// Looks for the name that begins with `stem`. A server that lags behind would hide it: sync first.
async fn look_for(client: &Client, folder: &str, stem: &str) -> Result<Option<String>, Error> {
    let (synced, listed) = (client.sync(folder), client.list_children(folder));
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

/// Deletes the node of an unfair mutex together with the one that proves whose it is, or neither.
pub(crate) async fn delete_single(client: &Client, folder: &str, id: &str) -> Result<Released, Error> {
    let proof = format!("{folder}/{HELD}-{id}");
    let mut writer = client.new_multi_writer();
    writer.add_delete(&proof, None)?;
    writer.add_delete(&format!("{folder}/{HELD}"), None)?;
    match writer.commit().await {
        Ok(_) => Ok(Released::Freed),
        // Somebody has deleted the node alone.
        Err(MultiWriteError::OperationFailed { index: 1, source: Error::NoNode }) => {
            match client.delete(&proof, None).await {
                Ok(()) | Err(Error::NoNode) => Ok(Released::NotHeld),
                Err(error) => Err(error),
            }
        }
        Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => Ok(Released::NotHeld),
        Err(MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source }) => {
            Err(source)
        }
    }
}
