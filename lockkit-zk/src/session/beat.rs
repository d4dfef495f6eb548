//! Sends one heartbeat: a proof that reaches the leader, and after it a check of some nodes of the
//! session.

use std::sync::{Arc, atomic::Ordering::Release};

use zookeeper_client::{Client, CreateMode, Error, MultiReadResult};

use super::{Shared, lock, node::Node};
use crate::config::Acl;

/// How many nodes one heartbeat checks. The nodes of a large session take turns, so that its
/// heartbeat costs no more than that of a small session.
pub(super) const MOST_NODES: usize = 500;

/// How a heartbeat reaches the leader.
#[derive(Clone, Debug)]
pub(super) enum HeartbeatRequest {
    Sync,
    /// Writes to this node, which belongs to the session.
    Write {
        folder: String,
        path: String,
        acl: Acl,
    },
}

/// Deletes the node of the heartbeats when it is dropped. A session of the program would keep the
/// node.
pub(super) struct NodeRemoval {
    client: Client,
    path: String,
}

impl NodeRemoval {
    /// Returns `None` if the heartbeats write to no node.
    pub(super) fn of(heartbeat: &HeartbeatRequest, client: &Client) -> Option<Self> {
        let HeartbeatRequest::Write { path, .. } = heartbeat else { return None };
        Some(Self { client: client.clone(), path: path.clone() })
    }
}

impl Drop for NodeRemoval {
    fn drop(&mut self) {
        // The call sends the request, and the client executes its requests in order.
        drop(self.client.delete(&self.path, None));
    }
}

impl HeartbeatRequest {
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

/// Sends one heartbeat and waits for all of its answers.
///
/// # Errors
/// A request was not answered.
pub(super) async fn beat(
    client: Arc<Client>,
    heartbeat: HeartbeatRequest,
    shared: Arc<Shared>,
) -> Result<(), Error> {
    let nodes = lock(&shared.nodes).next(MOST_NODES);
    // Both requests are queued before the first is awaited. The proof comes first, so that the
    // check of the nodes is never older than the proof.
    let proof = async {
        match &heartbeat {
            HeartbeatRequest::Sync => client.sync("/").await,
            HeartbeatRequest::Write { folder, path, acl } => {
                write(&client, folder, path, *acl).await
            }
        }
    };
    let look = async {
        if nodes.is_empty() {
            return Ok(());
        }
        let mut reader = client.new_multi_reader();
        for node in &nodes {
            reader.add_get_data(&node.path)?;
        }
        compare(&nodes, &reader.commit().await?);
        Ok(())
    };
    // The requests are polled in this order.
    let (proof, look) = futures_util::future::join(proof, look).await;
    proof.and(look)
}

async fn write(client: &Client, folder: &str, path: &str, acl: Acl) -> Result<(), Error> {
    match client.set_data(path, b"", None).await {
        Ok(_) => Ok(()),
        // Another client deleted the node.
        Err(Error::NoNode) => make(client, folder, path, acl).await,
        Err(error) => Err(error),
    }
}

async fn make(client: &Client, folder: &str, path: &str, acl: Acl) -> Result<(), Error> {
    client.mkdir(folder, &CreateMode::Persistent.with_acls(acl.acls())).await?;
    client.create(path, b"", &CreateMode::Ephemeral.with_acls(acl.acls())).await.map(drop)
}

fn compare(nodes: &[Arc<Node>], seen: &[MultiReadResult]) {
    for (node, seen) in nodes.iter().zip(seen) {
        let there = match seen {
            MultiReadResult::Data { stat, .. } => stat.czxid == node.created,
            MultiReadResult::Error { err: Error::NoNode } => false,
            // The node cannot be read, which proves nothing.
            _ => true,
        };
        if !there && !node.gone.swap(true, Release) {
            node.wake.wake();
        }
    }
}
