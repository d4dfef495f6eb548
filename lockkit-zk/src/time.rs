//! The servers' clock. No request returns the time, so the client writes a node and reads its
//! modification time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkit_core::{ErrorKind, Result};
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::{
    config::Config,
    error::{self, Phase},
    session::Session,
};

/// How often the node is made again after another client deleted it.
const MOST_STARTS: u32 = 3;

/// The wall clock of the leader, in ms.
///
/// # Errors
/// The server does not answer.
pub(crate) async fn time(session: &Session, config: &Config) -> Result<SystemTime> {
    let client = session.client()?;
    let path = config.layout().clock();
    let failed = |error| session.failed(error, Phase::Write, "writing to", &path);
    for _ in 0..MOST_STARTS {
        match client.set_data(&path, b"", None).await {
            Ok(stat) => {
                let since = u64::try_from(stat.mtime).ok().map(Duration::from_millis);
                let time = since.and_then(|since| UNIX_EPOCH.checked_add(since));
                return time.ok_or_else(|| {
                    error::ours(
                        ErrorKind::Unexpected,
                        "the server's clock shows a time before 1970; set it",
                    )
                });
            }
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(failed(error)),
        }
        match client.create(&path, b"", &CreateMode::Persistent.with_acls(config.acl.acls())).await
        {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(error::ours(
        ErrorKind::Unavailable,
        format!(
            "another client deletes the node {path:?} as soon as lockkit creates it; stop that \
             client"
        ),
    ))
}
