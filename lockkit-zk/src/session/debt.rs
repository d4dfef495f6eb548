//! What has to be undone in the tree, and how: by the claim's release, or by the session's actor if that is given up.

use lockkit_core::spi::Released;
use zookeeper_client::{Client, Error, MultiWriteError, Stat};

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
    /// The one node of an unfair mutex, which is ours for as long as the folder says so.
    Single {
        folder: String,
        path: String,
        /// The folder's data of our grant, which no other grant writes.
        record: Vec<u8>,
        /// The folder's version by our grant, once it is known.
        version: Option<i32>,
    },
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
            Self::Single { folder, path, record, version } => {
                let Some(folder) = written(client, folder, record).await? else { return Ok(None) };
                *version = Some(folder.version);
                let stat = client.check_stat(path).await?;
                Ok(stat.filter(|stat| stat.czxid == folder.mzxid).map(|stat| (path.clone(), stat)))
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
            Self::Single { folder, path, record, version } => {
                if version.is_none() {
                    *version = written(client, folder, record).await?.map(|stat| stat.version);
                }
                let Some(version) = *version else { return Ok(Released::NotHeld) };
                delete_single(client, folder, path, version).await
            }
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

/// The folder's version and when it was written, if its data is still `record`.
async fn written(client: &Client, folder: &str, record: &[u8]) -> Result<Option<Stat>, Error> {
    let (synced, read) = (client.sync(folder), client.get_data(folder));
    let data = match synced.await {
        Ok(()) => read.await,
        Err(error) => Err(error),
    };
    match data {
        Ok((data, stat)) => Ok((data == record).then_some(stat)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the node of an unfair mutex, unless the folder was written by a later grant.
pub(crate) async fn delete_single(
    client: &Client,
    folder: &str,
    path: &str,
    version: i32,
) -> Result<Released, Error> {
    let mut writer = client.new_multi_writer();
    writer.add_check_version(folder, version)?;
    writer.add_delete(path, None)?;
    match writer.commit().await {
        Ok(_) => Ok(Released::Freed),
        Err(MultiWriteError::OperationFailed { source: Error::BadVersion | Error::NoNode, .. }) => {
            Ok(Released::NotHeld)
        }
        Err(MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source }) => {
            Err(source)
        }
    }
}
