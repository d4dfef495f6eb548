//! Lists the names of locks that are in use.

use lockkit_core::{Kind, LockName, Result};
use zookeeper_client::{Error as ZkError, MultiReadResult};

use crate::{
    error::Phase,
    path::{Layout, unescape},
    session::{HELD, Session},
};

/// How many names one request reads. The servers answer other clients between two requests.
const NAMES_PER_READ: usize = 500;

/// The names of a kind that begin with `prefix` and have a holder or a waiter, in the state that
/// the leader knows. The folder of an idle lock may still exist.
///
/// # Errors
/// The server does not answer.
pub(crate) async fn in_use(
    session: &Session,
    layout: &Layout,
    kind: Kind,
    prefix: &str,
    is_single: bool,
) -> Result<Vec<LockName>> {
    let client = session.client()?;
    let folder = layout.kind(kind);
    let failed = |error| session.failed(error, Phase::Read, "listing", &folder);
    let synced = client.sync(&folder);
    let listed = client.list_children(&folder);
    synced.await.map_err(failed)?;
    let children = match listed.await {
        Ok(children) => children,
        Err(ZkError::NoNode) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let names = children.iter().filter_map(|child| {
        let name = unescape(child).filter(|name| name.starts_with(prefix))?;
        LockName::new(kind, &name).ok()
    });
    let names: Vec<_> = names.collect();
    let mut in_use = Vec::with_capacity(names.len());
    for names in names.chunks(NAMES_PER_READ) {
        let mut reader = client.new_multi_reader();
        for name in names {
            let folder = layout.lock(name);
            let path = if is_single { format!("{folder}/{HELD}") } else { folder };
            reader.add_get_data(&path).map_err(failed)?;
        }
        for (name, read) in names.iter().zip(reader.commit().await.map_err(failed)?) {
            // Each node in a queue is a holder or a waiter.
            if let MultiReadResult::Data { stat, .. } = read
                && (is_single || stat.num_children > 0)
            {
                in_use.push(name.clone());
            }
        }
    }
    Ok(in_use)
}
