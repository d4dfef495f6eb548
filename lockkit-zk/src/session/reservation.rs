//! Reservations for the paths of watches and nodes on a session, of which a session may not have
//! too many.
//!
//! A client that reconnects sends all watched paths in one packet. Above 128 KiB the client library
//! sends two packets with the same number, which ends the session.
//!
//! When a session ends, the servers write the paths of all its nodes into one transaction. If that
//! is larger than their `jute.maxbuffer`, 1 MiB by default, they can't read it when they start
//! again (ZOOKEEPER-4306).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{AcqRel, Relaxed},
        },
    },
};

use super::Session;

const MOST_WATCHED: usize = 100 * 1024;
/// Half of the servers' default, because the nodes of dropped claims stay for a moment.
const MOST_IN_NODES: usize = 512 * 1024;

/// The bytes of paths that a claim needs on its session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathBytes {
    pub(crate) watched: usize,
    pub(crate) in_nodes: usize,
}

/// A session, and a reservation of some bytes of paths on it.
pub(crate) struct Reservation {
    session: Arc<Session>,
    bytes: PathBytes,
}

impl Reservation {
    /// Returns `None` if the other claims on the session leave too few bytes. An unused session has
    /// space for any path.
    pub(crate) fn on(session: &Arc<Session>, bytes: PathBytes) -> Option<Self> {
        // A failure gives back what was reserved until then.
        let mut reserved = Self { session: Arc::clone(session), bytes: PathBytes::default() };
        add(&session.watched_bytes, bytes.watched, MOST_WATCHED)?;
        reserved.bytes.watched = bytes.watched;
        add(&session.node_bytes, bytes.in_nodes, MOST_IN_NODES)?;
        reserved.bytes.in_nodes = bytes.in_nodes;
        Some(reserved)
    }

    /// Whether less than half of the room is in use.
    pub(super) fn has_much_room_on(session: &Session) -> bool {
        session.watched_bytes.load(Relaxed) < MOST_WATCHED / 2
            && session.node_bytes.load(Relaxed) < MOST_IN_NODES / 2
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Gives up the watches.
    pub(crate) fn stop_watching(&mut self) {
        let watched = std::mem::take(&mut self.bytes.watched);
        self.session.watched_bytes.fetch_sub(watched, AcqRel);
    }
}

fn add(used: &AtomicUsize, more: usize, most: usize) -> Option<usize> {
    let sum = |used: usize| Some(used + more).filter(|&sum| sum <= most || used == 0 || more == 0);
    used.fetch_update(AcqRel, Relaxed, sum).ok()
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.session.watched_bytes.fetch_sub(self.bytes.watched, AcqRel);
        self.session.node_bytes.fetch_sub(self.bytes.in_nodes, AcqRel);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
