//! One ZooKeeper server.

use libtest_mimic::Failed;
use lockkit_fixture::{ServerProcess, ZooKeeperOptions, ZooKeeperServer};
use lockkit_torture::site::{BoxError, Site};

use super::server::{Alone, Server, kill, stop};

/// Short, so that dead holders have successors soon; long enough for heartbeats on a busy machine.
pub(super) const SESSION: &str = "1500ms";
/// A line of `zoo.cfg`: the server grants sessions up to a minute. By default it grants at most 20
/// ticks.
pub(super) const LONGEST_SESSION: &str = "maxSessionTimeout=60000";

/// Whether waiters are served in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    Fair,
    Unfair,
}

/// A server that has every write on its disk before the answer.
#[derive(Debug)]
struct ZooKeeper {
    server: ZooKeeperServer,
    queue: Queue,
}

pub(super) fn start(queue: Queue) -> Result<Box<dyn Site>, Failed> {
    let server = ZooKeeperServer::start_with(
        ZooKeeperOptions::default().with_durable().with_config(LONGEST_SESSION),
    )?;
    let name = match queue {
        Queue::Fair => "zookeeper",
        Queue::Unfair => "zookeeper-unfair",
    };
    Ok(Box::new(Alone::new(name, ZooKeeper { server, queue }, vec![stop(), kill()])))
}

impl Server for ZooKeeper {
    fn url(&self, namespace: &str) -> String {
        let fair = matches!(self.queue, Queue::Fair);
        format!("{}?prefix={namespace}&session_timeout={SESSION}&fair={fair}", self.server.url())
    }

    fn leaks(&self, namespace: &str) -> Result<Vec<String>, BoxError> {
        leaks(&self.server, namespace)
    }

    fn process(&mut self) -> &mut ServerProcess {
        &mut self.server
    }

    fn restart(&mut self) -> Result<(), BoxError> {
        Ok(self.server.restart()?)
    }
}

/// The nodes of sessions below a prefix. The server must know all sessions, so it is a single
/// server or a leader.
pub(super) fn leaks(server: &ZooKeeperServer, namespace: &str) -> Result<Vec<String>, BoxError> {
    let dump = server.four_letter("dump")?;
    if !dump.contains("Sessions with Ephemerals") {
        return Err(
            format!("the server does not list the nodes of sessions; its answer: {dump}").into()
        );
    }
    let below = format!("/{namespace}/");
    let heartbeats = format!("/{namespace}/session/");
    // The nodes of heartbeats live as long as their sessions.
    let is_lock = |line: &&str| line.starts_with(&below) && !line.starts_with(&heartbeats);
    let nodes = dump.lines().map(str::trim).filter(is_lock);
    Ok(nodes.map(|node| format!("the node {node:?}")).collect())
}
