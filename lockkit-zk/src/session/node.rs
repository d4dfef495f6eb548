//! The nodes of the claims on a session.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
};

use lockkit_core::spi::Wake;

use super::CleanupTask;

/// A node of a claim.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) path: Arc<str>,
    pub(super) created: i64,
    pub(super) gone: AtomicBool,
    pub(super) wake: Wake,
    /// The removal of the node from the tree. Only a session of the program needs it.
    pub(super) cleanup: Option<Box<CleanupTask>>,
}

/// The nodes that heartbeats check.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_key: BTreeMap<u64, Arc<Node>>,
    next_key: u64,
    /// The first key that the next heartbeat checks.
    turn: u64,
}

impl Nodes {
    /// Adds a node, and returns the key that removes it.
    pub(super) fn insert(&mut self, node: Arc<Node>) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.by_key.insert(key, node);
        key
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<Arc<Node>> {
        self.by_key.remove(&key)
    }

    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.by_key.values().cloned().collect()
    }

    /// At most this many nodes, each once, beginning after the nodes of the last call.
    pub(super) fn next(&mut self, most: usize) -> Vec<Arc<Node>> {
        let in_turn =
            self.by_key.range(self.turn..).chain(self.by_key.range(..self.turn)).take(most);
        let (keys, nodes): (Vec<_>, Vec<_>) =
            in_turn.map(|(key, node)| (*key, Arc::clone(node))).unzip();
        self.turn = keys.last().map_or(0, |last| last + 1);
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(created: i64) -> Arc<Node> {
        Arc::new(Node {
            path: "".into(),
            created,
            gone: AtomicBool::new(false),
            wake: Wake::none(),
            cleanup: None,
        })
    }

    fn next(nodes: &mut Nodes, most: usize) -> Vec<i64> {
        nodes.next(most).iter().map(|node| node.created).collect()
    }

    #[test]
    fn c3_each_node_is_looked_at_once_per_round_while_others_come_and_go() {
        let mut nodes = Nodes::default();
        assert_eq!(next(&mut nodes, 3), []);
        let keys: Vec<_> = (0..5).map(|created| nodes.insert(node(created))).collect();
        assert_eq!(next(&mut nodes, 3), [0, 1, 2]);
        assert_eq!(next(&mut nodes, 3), [3, 4, 0]);
        nodes.remove(keys[1]);
        nodes.insert(node(5));
        assert_eq!(next(&mut nodes, 3), [2, 3, 4]);
        assert_eq!(next(&mut nodes, 3), [5, 0, 2]);
        assert_eq!(next(&mut nodes, 9), [3, 4, 5, 0, 2], "none twice");
    }
}
