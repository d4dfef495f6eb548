//! The folders that contain the locks. The folder of a lock is a container, which the servers
//! delete once it is idle.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use futures_util::future::join;
use lockkit_core::{ErrorKind, Kind, Result};
use zookeeper_client::{Client, CreateMode, Error};

use crate::{
    config::{Acl, Config},
    error::{self, Phase, from_zk},
    version,
};

/// The data of the folder of all mutexes, and of all elections, where they have no queue.
const UNFAIR: &[u8] = b"lockkit/1 unfair";

/// How many folders are remembered before half of them are forgotten. A forgotten folder costs one
/// more request at its next use.
const MOST_KNOWN: usize = 10_000;

/// The folders of locks that existed at their last use. Requests for other folders create the
/// folder in the same round trip.
#[derive(Debug, Default)]
pub(crate) struct KnownFolders(Mutex<HashSet<Box<str>>>);

impl KnownFolders {
    pub(crate) fn contains(&self, folder: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(folder)
    }

    pub(crate) fn insert(&self, folder: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(folder) {
            return;
        }
        if known.len() >= MOST_KNOWN {
            // Forgets every other folder. A program with more names than the limit does not start
            // again with all names at once.
            let mut keep = false;
            known.retain(|_| {
                keep = !keep;
                keep
            });
        }
        known.insert(folder.into());
    }

    /// Forgets a folder that the servers deleted because it was idle.
    pub(crate) fn remove(&self, folder: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
    }
}

/// Whether locks of this kind may have no queue.
pub(crate) fn can_be_unfair(kind: Kind) -> bool {
    matches!(kind, Kind::Election | Kind::Mutex)
}

/// Checks that all users of a prefix agree on whether its locks of this kind have queues (C1), and
/// on their format. A newer lockkit that changes a format marks the folder of all mutexes.
///
/// # Errors
/// The users disagree, or the server refuses.
pub(crate) async fn check_strategy(client: &Client, config: &Config, kind: Kind) -> Result<()> {
    let folder = config.layout().kind(kind);
    let record = if config.fair { &b""[..] } else { UNFAIR };
    let found = loop {
        match client.get_data(&folder).await {
            Ok((data, _)) => break data,
            Err(Error::NoNode) => {}
            Err(error) => return Err(from_zk(error, Phase::Read, "reading", &folder)),
        }
        make_with(client, &folder, record, config.acl).await?;
    };
    if version::is_newer(&found) {
        return Err(error::newer(&folder));
    }
    if config.fair == (found != UNFAIR) {
        return Ok(());
    }
    let (theirs, ours) = if config.fair { ("false", "true") } else { ("true", "false") };
    let reason = format!(
        "other programs use the locks under {folder:?} with fair={theirs}, and locks with \
         fair={ours} would not exclude theirs; use the same value, or use another prefix"
    );
    Err(error::ours(ErrorKind::InvalidOption, reason))
}

/// A request for a node in the folder of a lock.
pub(crate) trait InFolder: Sync {
    type Answer: Send;

    fn send(&self, client: &Client) -> impl Future<Output = Result<Self::Answer, Error>> + Send;
}

/// Sends a request. If the folder of the lock may be missing, sends a request that makes the folder
/// right before it. A folder is missing for a new name, and for a name that was idle for so long
/// that the servers deleted the folder.
///
/// This is not a transaction: in a transaction, servers of the 3.8 series do not report the zxid of
/// the nodes that they made (ZOOKEEPER-4026).
///
/// # Errors
/// The parent folders cannot be made. The inner error belongs to the request itself.
pub(crate) async fn send_into<R: InFolder>(
    request: &R,
    client: &Client,
    config: &Config,
    known: &KnownFolders,
    (kind, folder): (Kind, &str),
) -> Result<Result<R::Answer, Error>> {
    if kind == Kind::Election {
        check_elections(client, config, known).await?;
    }
    if known.contains(folder) {
        match request.send(client).await {
            Err(Error::NoNode) => known.remove(folder),
            answer => return Ok(answer),
        }
    }
    let mut answer = send_with_folder(request, client, config, folder).await;
    if matches!(answer, Err(Error::NoNode)) {
        match kind {
            kind if can_be_unfair(kind) => check_strategy(client, config, kind).await?,
            kind => make(client, &config.layout().kind(kind), config.acl).await?,
        }
        answer = send_with_folder(request, client, config, folder).await;
    }
    if answer.is_ok() {
        known.insert(folder);
    }
    Ok(answer)
}

/// Checks the strategy of elections before the first election. The check of mutexes is part of
/// opening a session. Few programs use elections.
async fn check_elections(client: &Client, config: &Config, known: &KnownFolders) -> Result<()> {
    let folder = config.layout().kind(Kind::Election);
    if !known.contains(&folder) {
        check_strategy(client, config, Kind::Election).await?;
        known.insert(&folder);
    }
    Ok(())
}

async fn send_with_folder<R: InFolder>(
    request: &R,
    client: &Client,
    config: &Config,
    folder: &str,
) -> Result<R::Answer, Error> {
    let container = CreateMode::Container.with_acls(config.acl.acls());
    // Both requests are polled in this order, and queued before either is awaited.
    let (made, sent) = join(client.create(folder, b"", &container), request.send(client)).await;
    match (made, sent) {
        (Err(error), Err(Error::NoNode)) if !matches!(error, Error::NodeExists | Error::NoNode) => {
            Err(error)
        }
        (_, sent) => sent,
    }
}

/// Makes a folder and its parents as persistent nodes, unless they exist.
///
/// # Errors
/// The error of the server.
pub(crate) async fn make(client: &Client, folder: &str, acl: Acl) -> Result<()> {
    make_with(client, folder, b"", acl).await
}

async fn make_with(client: &Client, folder: &str, data: &[u8], acl: Acl) -> Result<()> {
    let options = CreateMode::Persistent.with_acls(acl.acls());
    let Some((parents, name)) = folder.rsplit_once('/') else { return Ok(()) };
    let mut path = String::new();
    for parent in parents.split('/').skip(1) {
        path = format!("{path}/{parent}");
        create(client, &path, b"", &options).await?;
    }
    create(client, &format!("{path}/{name}"), data, &options).await
}

async fn create(
    client: &Client,
    path: &str,
    data: &[u8],
    options: &zookeeper_client::CreateOptions<'_>,
) -> Result<()> {
    match client.create(path, data, options).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        // Without the right to create, a server answers `NoAuth` even if the node exists. A node
        // that exists is enough.
        Err(Error::NoAuth) if matches!(client.check_stat(path).await, Ok(Some(_))) => Ok(()),
        Err(error) => Err(from_zk(error, Phase::Write, "creating", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_too_many_folders_stay_known() {
        let known = KnownFolders::default();
        let folders: Vec<_> = (0..=MOST_KNOWN).map(|n| format!("/lockkit/mutex/{n}")).collect();
        folders.iter().for_each(|folder| known.insert(folder));
        let left = folders.iter().filter(|folder| known.contains(folder)).count();
        assert_eq!(left, MOST_KNOWN / 2 + 1);
        assert!(known.contains(folders.last().unwrap()));
    }
}
