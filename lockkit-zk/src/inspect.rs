//! Inspection of a lock for an operator, and the forced release.

use lockkit_core::{Kind, Result, spi::Released};
use zookeeper_client::{Error as ZkError, MultiReadResult};

use crate::{
    error::{self, Phase},
    queue::{Queue, Role},
    record::Record,
    session::{HELD, Session, UnfairNode},
    version,
};

/// How many holders one request reads. A read/write lock may have many.
const NODES_PER_READ: usize = 500;

/// A node that holds a lock.
#[derive(Debug)]
pub(crate) struct HolderNode {
    pub(crate) node: String,
    /// `None` for a mutex without a queue.
    pub(crate) role: Option<Role>,
    pub(crate) created: i64,
    pub(crate) data: Vec<u8>,
    /// `None` for a foreign client's node.
    pub(crate) record: Option<Record>,
}

/// The state of a queue at one read.
#[derive(Debug, Default)]
pub(crate) struct QueueSnapshot {
    pub(crate) holders: Vec<HolderNode>,
    pub(crate) waiters: usize,
}

/// Reads a queue in the state that the leader knows.
///
/// # Errors
/// The server does not answer, or the folder contains a foreign node.
pub(crate) async fn queue(session: &Session, folder: &str, kind: Kind) -> Result<QueueSnapshot> {
    let client = session.client()?;
    let failed = |error| session.failed(error, Phase::Read, "listing", folder);
    let synced = client.sync(folder);
    let listed = client.list_children(folder);
    synced.await.map_err(failed)?;
    let children = match listed.await {
        Ok(children) => children,
        Err(ZkError::NoNode) => return Ok(QueueSnapshot::default()),
        Err(error) => return Err(failed(error)),
    };
    let queue = Queue::new(kind, children).map_err(|name| error::stranger(folder, &name))?;
    let (members, waiters) = queue.holders();
    let mut holders = Vec::with_capacity(members.len());
    for members in members.chunks(NODES_PER_READ) {
        let mut reader = client.new_multi_reader();
        for member in members {
            reader.add_get_data(&format!("{folder}/{}", member.name)).map_err(failed)?;
        }
        for (member, read) in members.iter().zip(reader.commit().await.map_err(failed)?) {
            // A node that was deleted meanwhile is not a holder.
            let MultiReadResult::Data { data, stat } = read else { continue };
            if version::is_newer(&data) {
                return Err(error::newer(&format!("{folder}/{}", member.name)));
            }
            let record = Record::parse(&data);
            let node = member.name.clone();
            let role = Some(member.role);
            holders.push(HolderNode { node, role, created: stat.czxid, data, record });
        }
    }
    Ok(QueueSnapshot { holders, waiters })
}

/// The holder of a mutex without a queue.
///
/// # Errors
/// The server does not answer.
pub(crate) async fn unfair_holder(session: &Session, folder: &str) -> Result<Option<HolderNode>> {
    let client = session.client()?;
    let path = format!("{folder}/{HELD}");
    let failed = |error| session.failed(error, Phase::Read, "reading", &path);
    let synced = client.sync(folder);
    let read = client.get_data(&path);
    synced.await.map_err(failed)?;
    match read.await {
        Ok((data, _)) if version::is_newer(&data) => Err(error::newer(&path)),
        Ok((data, stat)) => {
            // The last line is the id of the attempt, which differs for each attempt.
            let record = data.rsplitn(2, |byte| *byte == b'\n').nth(1).and_then(Record::parse);
            Ok(Some(HolderNode {
                node: HELD.to_owned(),
                role: None,
                created: stat.czxid,
                data,
                record,
            }))
        }
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Frees a mutex without a queue if this zxid granted it.
///
/// # Errors
/// The server does not answer: the mutex may have been freed.
pub(crate) async fn free_single(session: &Session, folder: &str, created: i64) -> Result<Released> {
    let Some(seen) = unfair_holder(session, folder).await? else { return Ok(Released::NotHeld) };
    let grant = UnfairNode::of(folder, &seen.data)
        .filter(|_| seen.created == created && seen.record.is_some());
    let Some(mut grant) = grant else { return Ok(Released::NotHeld) };
    let freed = grant.free(&*session.client()?).await;
    freed.map_err(|error| session.failed(error, Phase::Write, "freeing", folder))
}

/// Deletes a holder's node. No other claim ever has a node of this name.
///
/// # Errors
/// The server does not answer: the node may have been deleted.
pub(crate) async fn delete(session: &Session, path: &str) -> Result<Released> {
    match session.client()?.delete(path, None).await {
        Ok(()) => Ok(Released::Freed),
        Err(ZkError::NoNode) => Ok(Released::NotHeld),
        Err(error) => Err(session.failed(error, Phase::Write, "deleting", path)),
    }
}
