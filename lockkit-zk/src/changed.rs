//! Waits for a change of the holders without a claim, by a watch that fires once.

use std::{future::pending, panic::AssertUnwindSafe};

use futures_util::FutureExt as _;
use lockkit_core::Kind;
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher};

use crate::{
    queue::Queue,
    session::{HELD, PathBytes, Pool, Reservation},
};

/// The most bytes that lockkit and the servers add to the name of a node in a queue:
/// `_c_<id>-lock-<sequence>`.
const NODE_BYTES: usize = 64;

/// The node whose change shows a change of the holders.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// The first node of a queue.
    First,
    /// Any node of the folder, because several claims may hold the lock together.
    Folder,
    /// The node at the fixed path.
    UnfairNode,
}

/// Completes when the holders may have changed since the call. Never completes if the watch cannot
/// be set.
///
/// # Cancel safety
/// Cancel safe: any watch that was set or requested is removed from the server.
pub(crate) async fn changed(pool: &Pool, folder: &str, subject: Subject) {
    let bytes = PathBytes { watched: folder.len() + NODE_BYTES, in_nodes: 0 };
    let Ok(reservation) = pool.reservation(bytes).await else {
        return pending().await;
    };
    match arm(&reservation, folder, subject).await {
        Some(Armed::Set(watcher)) => {
            // The watch also fires at the end of the session. The client's future panics if the
            // client's task ended with its runtime.
            let _ = AssertUnwindSafe(watcher.changed()).catch_unwind().await;
        }
        Some(Armed::Gone) => {}
        None => pending().await,
    }
}

enum Armed {
    Set(OneshotWatcher),
    /// The node or folder changed between the read and the watch.
    Gone,
}

/// Returns `None` if the server does not answer. The client is not kept, because it would keep the
/// session from ending.
async fn arm(reservation: &Reservation, folder: &str, subject: Subject) -> Option<Armed> {
    let client = reservation.session().client().ok()?;
    match subject {
        Subject::UnfairNode => {
            // This watch also fires when the node is made.
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

/// Watches the children of a folder, or its creation if the folder does not exist.
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

/// The name of the first holder's node.
fn first(children: Vec<String>) -> Option<String> {
    let queue = Queue::new(Kind::Election, children).ok()?;
    queue.holders().0.first().map(|member| member.name.clone())
}
