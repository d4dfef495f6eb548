//! One heartbeat: proof by way of the leader, and a look at every node of the session behind it.

use std::sync::{Arc, atomic::Ordering::Release};

use zookeeper_client::{Client, CreateMode, Error, MultiReadResult};

use super::{Node, Shared, lock};
use crate::config::Acl;

/// Paths per request: a server takes 1 MiB, and answers other requests in between.
const PATHS_PER_READ: usize = 500;

/// How a heartbeat reaches the leader.
#[derive(Clone, Debug)]
pub(super) enum Pulse {
    Sync,
    /// Writes to this node, which belongs to the session.
    Write {
        folder: String,
        path: String,
        acl: Acl,
    },
}

/// Sends one heartbeat and waits for all of its answers.
///
/// # Errors
/// One was not answered.
pub(super) async fn beat(client: Arc<Client>, pulse: Pulse, shared: Arc<Shared>) -> Result<(), Error> {
    let nodes: Vec<_> = lock(&shared.nodes).values().cloned().collect();
    // All requests are queued before the first is awaited, the proof first: the looks are never older than it.
    let proof = async {
        match &pulse {
            Pulse::Sync => client.sync("/").await,
            Pulse::Write { folder, path, acl } => write(&client, folder, path, *acl).await,
        }
    };
    let looks = async {
        let mut reads = Vec::with_capacity(nodes.len().div_ceil(PATHS_PER_READ));
        for nodes in nodes.chunks(PATHS_PER_READ) {
            let mut reader = client.new_multi_reader();
            for node in nodes {
                reader.add_get_data(&node.path)?;
            }
            reads.push((nodes, reader.commit()));
        }
        for (nodes, read) in reads {
            compare(nodes, &read.await?);
        }
        Ok(())
    };
    // Polled in this order.
    let (proof, looks) = futures_util::future::join(proof, looks).await;
    proof.and(looks)
}

async fn write(client: &Client, folder: &str, path: &str, acl: Acl) -> Result<(), Error> {
    match client.set_data(path, b"", None).await {
        Ok(_) => Ok(()),
        // Somebody has deleted it.
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
            // It can't be read, which proves nothing.
            _ => true,
        };
        if !there && !node.gone.swap(true, Release) {
            node.hint.ring();
        }
    }
}
