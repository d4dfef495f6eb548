//! Waiting for another holder, as somebody who wants no lock: by a watch that fires once.

use std::{future::pending, panic::AssertUnwindSafe};

use futures_util::FutureExt as _;
use lockkit_core::Kind;
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher};

use crate::{
    queue::Queue,
    session::{HELD, Pool, WatchReservation},
};

/// What the servers add to the name of a node in a queue, and what we put before it:
/// `_c_<id>-lock-<sequence>`.
const NODE_BYTES: usize = 64;

/// What tells of the holder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// The first node of a queue.
    First,
    /// Any node: several hold it together.
    Folder,
    /// The node at the fixed path.
    UnfairNode,
}

/// Completes when the holders may have changed since it was called, or never, if the watch can't be
/// set.
///
/// # Cancel safety
/// Cancel safe: whatever watch is set, or was asked for, is removed from the server.
pub(crate) async fn changed(pool: &Pool, folder: &str, subject: Subject) {
    let Ok(reservation) = pool.reservation(folder.len() + NODE_BYTES).await else {
        return pending().await;
    };
    match arm(&reservation, folder, subject).await {
        Some(Armed::Set(watcher)) => {
            // It fires at the end of the session, too. The client's future panics if its task has
            // died with its runtime.
            let _ = AssertUnwindSafe(watcher.changed()).catch_unwind().await;
        }
        Some(Armed::Gone) => {}
        None => pending().await,
    }
}

enum Armed {
    Set(OneshotWatcher),
    /// It has changed since it was looked at.
    Gone,
}

/// `None` if there is no answer. The client is not kept: it would keep the session from its end.
async fn arm(reservation: &WatchReservation, folder: &str, subject: Subject) -> Option<Armed> {
    let client = reservation.session().client().ok()?;
    match subject {
        Subject::UnfairNode => {
            // It tells of a node that comes as well.
            let (_, watcher) =
                client.check_and_watch_stat(&format!("{folder}/{HELD}")).await.ok()?;
            Some(Armed::Set(watcher))
        }
        Subject::First => {
            let children = match client.list_children(folder).await {
                Ok(children) => children,
                Err(ZkError::NoNode) => Vec::new(),
                Err(_) => return None,
            };
            let Some(first) = first(children) else {
                return arm_folder(&client, folder, true).await;
            };
            match client.get_and_watch_data(&format!("{folder}/{first}")).await {
                Ok((_, _, watcher)) => Some(Armed::Set(watcher)),
                Err(ZkError::NoNode) => Some(Armed::Gone),
                Err(_) => None,
            }
        }
        Subject::Folder => arm_folder(&client, folder, false).await,
    }
}

/// Watches what is in a folder, or whether it comes to be.
async fn arm_folder(client: &Client, folder: &str, was_empty: bool) -> Option<Armed> {
    match client.get_and_watch_children(folder).await {
        Ok((children, _, _)) if was_empty && !children.is_empty() => Some(Armed::Gone),
        Ok((_, _, watcher)) => Some(Armed::Set(watcher)),
        Err(ZkError::NoNode) => match client.check_and_watch_stat(folder).await.ok()? {
            (None, watcher) => Some(Armed::Set(watcher)),
            (Some(_), _) => Some(Armed::Gone),
        },
        Err(_) => None,
    }
}

/// Who holds what a queue leads to.
fn first(children: Vec<String>) -> Option<String> {
    let queue = Queue::new(Kind::Election, children).ok()?;
    queue.holders().0.first().map(|member| member.name.clone())
}
