//! Knows which node of a cluster has which slot, and the way to each node.
//!
//! This module routes the requests, and not the client library's cluster connection. That one
//! repeats requests and changes connections by itself. A claim must know on which connection each
//! of its requests was sent.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use lockkit_core::{Clock, Tick};
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, RedisResult, Value};
use tokio::time;

use super::{connect::connect, endpoint::Endpoint, link::Link, node::Node};
use crate::{config::Address, error::OpenError, keys::SLOTS, shared::Shared};

/// While a node is dead, each request for its slots doubts the map. lockkit asks for the map no
/// more often than this.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(200);

pub(crate) struct Cluster {
    shared: Arc<Shared>,
    seeds: Vec<Address>,
    map: Mutex<Map>,
    /// The caller that asks for the map holds this lock.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Map {
    nodes: HashMap<Address, Arc<Node>>,
    /// By slot; empty until lockkit has asked for the map.
    slots: Vec<Option<Arc<Node>>>,
    /// When lockkit last asked for the map because a node was suspect.
    asked: Option<Tick>,
    closed: bool,
}

impl Cluster {
    pub(crate) fn new(shared: Arc<Shared>, seeds: Vec<Address>) -> Self {
        Self { shared, seeds, map: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// The node that has a slot.
    pub(crate) async fn node_of(&self, slot: u16) -> Result<Arc<Node>, OpenError> {
        if let Some(node) = self.known(slot)?.filter(|node| !node.is_suspect()) {
            return Ok(node);
        }
        let asked = self.ask_for_the_map().await;
        // If no node told us the map, the suspect node may still serve its slots.
        match self.known(slot)? {
            Some(node) => Ok(node),
            None => Err(asked.err().unwrap_or(OpenError::NoNode(slot))),
        }
    }

    fn known(&self, slot: u16) -> Result<Option<Arc<Node>>, OpenError> {
        let map = self.lock();
        if map.closed {
            return Err(OpenError::Closed);
        }
        Ok(map.slots.get(usize::from(slot)).cloned().flatten())
    }

    /// One slot of each node that has any.
    pub(crate) async fn slot_of_each(&self) -> Result<Vec<u16>, OpenError> {
        // This makes sure that there is a map.
        self.node_of(0).await?;
        let mut seen: Vec<(&Arc<Node>, u16)> = Vec::new();
        let map = self.lock();
        for (slot, node) in (0..SLOTS).zip(&map.slots) {
            let Some(node) = node else { return Err(OpenError::NoNode(slot)) };
            if !seen.iter().any(|(known, _)| Arc::ptr_eq(known, node)) {
                seen.push((node, slot));
            }
        }
        Ok(seen.into_iter().map(|(_, slot)| slot).collect())
    }

    /// A node that the cluster named.
    pub(crate) fn node_at(&self, address: &Address) -> Arc<Node> {
        self.lock().node(&self.shared, address)
    }

    /// Records that a slot has moved.
    pub(crate) fn moved(&self, slot: u16, address: &Address) {
        let mut map = self.lock();
        let node = map.node(&self.shared, address);
        if let Some(entry) = map.slots.get_mut(usize::from(slot)) {
            *entry = Some(node);
        }
    }

    /// Marks the node of this slot as suspect. It could not be reached, or refuses, so another one
    /// may have its slots by now. lockkit asks for the map before it uses them again. Requests for
    /// the slots of other nodes continue.
    pub(crate) fn mark_suspect(&self, slot: u16) {
        if let Some(Some(node)) = self.lock().slots.get(usize::from(slot)) {
            node.mark_suspect();
        }
    }

    pub(crate) fn retire(&self, link: &Arc<Link>) {
        let nodes: Vec<_> = self.lock().nodes.values().cloned().collect();
        for node in nodes {
            node.retire(link);
        }
    }

    pub(crate) fn close(&self) {
        let mut map = self.lock();
        map.closed = true;
        map.slots.clear();
        let nodes: Vec<_> = map.nodes.drain().map(|(_, node)| node).collect();
        drop(map);
        for node in nodes {
            node.close();
        }
    }

    /// Asks the nodes, on the connections that requests use. Asks the seeds only if no node
    /// answers.
    async fn ask_for_the_map(&self) -> Result<(), OpenError> {
        let _turn = self.asking.lock().await;
        let Some(nodes) = self.lock().nodes_to_ask() else { return Ok(()) };
        let known = nodes
            .into_iter()
            .map(|((host, _), node)| async move { slots_known_to(&node, &host).await });
        let mut told =
            time::timeout(self.shared.config.connect_timeout / 2, first_told(known)).await;
        if !matches!(told, Ok(Ok(_))) {
            let seeds = self.seeds.iter().cloned();
            told = Ok(first_told(seeds.map(|address| slots_told_by(&self.shared, address))).await);
        }
        let mut map = self.lock();
        map.asked = map.asked.map(|_| Clock::Boot.now());
        map.redraw(&self.shared, told.unwrap_or(Err(OpenError::Silent))?);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    /// `None` if lockkit need not ask for the map: it has just asked, or the cluster is closed.
    fn nodes_to_ask(&mut self) -> Option<Vec<(Address, Arc<Node>)>> {
        if self.closed {
            return None;
        }
        let now = Clock::Boot.now();
        if !self.slots.is_empty() {
            if self.asked.is_some_and(|asked| asked.after(BETWEEN_QUESTIONS) > now) {
                return None;
            }
            self.asked = Some(now);
        }
        Some(self.nodes.iter().map(|(address, node)| (address.clone(), Arc::clone(node))).collect())
    }

    fn node(&mut self, shared: &Arc<Shared>, address: &Address) -> Arc<Node> {
        let node = self.nodes.entry(address.clone()).or_insert_with(|| {
            Arc::new(Node::new(
                Arc::clone(shared),
                Endpoint::At(shared.config.address_of(&address.0, address.1)),
            ))
        });
        if self.closed {
            // An answer named the node after the cluster was closed.
            node.close();
        }
        Arc::clone(node)
    }

    fn redraw(&mut self, shared: &Arc<Shared>, ranges: Vec<Range>) {
        if self.closed {
            return;
        }
        self.nodes.retain(|address, _| ranges.iter().any(|range| range.primary == *address));
        self.slots = vec![None; usize::from(SLOTS)];
        for Range { first, last, primary } in ranges {
            let node = self.node(shared, &primary);
            for entry in
                self.slots.get_mut(usize::from(first)..=usize::from(last)).unwrap_or_default()
            {
                *entry = Some(Arc::clone(&node));
            }
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    primary: Address,
}

/// The first map that an answer holds.
async fn first_told(
    questions: impl Iterator<Item = impl Future<Output = Result<Vec<Range>, OpenError>>>,
) -> Result<Vec<Range>, OpenError> {
    let mut answers: FuturesUnordered<_> = questions.collect();
    let mut trouble = OpenError::Silent;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(ranges) if !ranges.is_empty() => return Ok(ranges),
            Ok(_) => trouble = OpenError::NoSlots,
            Err(error) => trouble = error,
        }
    }
    Err(trouble)
}

/// Asks a node on the connection that requests use.
async fn slots_known_to(node: &Node, host: &str) -> Result<Vec<Range>, OpenError> {
    let (link, _) = node.links(false).await?;
    Ok(ranges(link.ask(&question()).await?, host)?)
}

/// Asks one server, for no longer than opening a connection may take, because others wait for the
/// same answer.
async fn slots_told_by(shared: &Shared, address: Address) -> Result<Vec<Range>, OpenError> {
    let answer =
        time::timeout(shared.config.connect_timeout, ask_for_slots(shared, &address)).await;
    answer.unwrap_or(Err(OpenError::Silent))
}

/// Asks on a connection of its own, which need not go to a primary: a replica knows the map, too.
async fn ask_for_slots(shared: &Shared, (host, port): &Address) -> Result<Vec<Range>, OpenError> {
    let settings =
        AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let endpoint = shared.config.address_of(host, *port);
    let mut connection =
        connect(&shared.config, &endpoint, ProtocolVersion::RESP2, settings).await?;
    let answer = connection.send_packed_command(&question()).await?.extract_error()?;
    Ok(ranges(answer, host)?)
}

fn question() -> Cmd {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    question
}

/// Reads `[first, last, [host, port, …], replicas…]` of each range. A node that does not know its own
/// address leaves the host empty.
fn ranges(answer: Value, asked: &str) -> RedisResult<Vec<Range>> {
    let rows: Vec<Vec<Value>> = redis::from_redis_value(answer)?;
    rows.into_iter().map(|row| range(row, asked)).collect()
}

fn range(row: Vec<Value>, asked: &str) -> RedisResult<Range> {
    let strange = || {
        (redis::ErrorKind::UnexpectedReturnType, "an answer to CLUSTER SLOTS that makes no sense")
    };
    let mut row = row.into_iter();
    let (Some(first), Some(last), Some(Value::Array(primary))) =
        (row.next(), row.next(), row.next())
    else {
        return Err(strange().into());
    };
    let mut primary = primary.into_iter();
    let (Some(host), Some(port)) = (primary.next(), primary.next()) else {
        return Err(strange().into());
    };
    let host: Option<String> = redis::from_redis_value(host)?;
    let host =
        host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.to_owned());
    // A smaller type would turn a number out of its range into another number.
    let number = |value: Value| {
        let number: i64 = redis::from_redis_value(value)?;
        u16::try_from(number).map_err(|_| redis::RedisError::from(strange()))
    };
    Ok(Range { first: number(first)?, last: number(last)?, primary: (host, number(port)?) })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn slot() -> impl Strategy<Value = Value> {
        prop_oneof![8 => (0..=20_000i64).prop_map(Value::Int), 1 => any::<i64>().prop_map(Value::Int), 1 => Just(Value::Nil)]
    }

    fn row() -> impl Strategy<Value = Value> {
        let host = prop_oneof![
            "[a-z.?]{0,6}".prop_map(|host| Value::BulkString(host.into_bytes())),
            vec(any::<u8>(), 0..3).prop_map(Value::BulkString),
            Just(Value::Nil),
        ];
        let node = (vec(host, 0..2), vec(slot(), 0..2))
            .prop_map(|(host, port)| Value::Array([host, port].concat()));
        (vec(slot(), 1..3), vec(node, 0..3))
            .prop_map(|(slots, nodes)| Value::Array([slots, nodes].concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c13_a_map_is_read_or_an_error(rows in vec(row(), 0..3)) {
            let Ok(ranges) = ranges(Value::Array(rows.clone()), "asked") else { return Ok(()) };
            prop_assert_eq!(ranges.len(), rows.len());
            for (range, row) in ranges.iter().zip(rows) {
                let Value::Array(row) = row else { unreachable!() };
                prop_assert_eq!(&row[..2], [Value::Int(range.first.into()), Value::Int(range.last.into())]);
                prop_assert!(!range.primary.0.is_empty());
            }
        }
    }
}
