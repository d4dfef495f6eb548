//! One session with the servers, shared by all claims on it. Its actor proves that the session
//! lives, checks its nodes, and removes the nodes of abandoned claims.

mod actor;
mod batch;
mod beat;
mod claim_node;
mod cleanup_task;
mod node;
mod open;
mod pool;
mod proof;
mod reservation;
mod unanswered;
mod unfair_node;

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire},
        },
    },
    time::Duration,
};

use futures_util::future::join_all;
use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Lease, RenewalOutcome},
};
use tokio::sync::Notify;
use zookeeper_client::{Client, SessionState};

pub(crate) use self::{
    batch::{Created, Done, NodeBatches, Request},
    claim_node::ClaimNode,
    cleanup_task::{CleanupTask, folder_of},
    open::client as open_client,
    pool::Pool,
    proof::{BEATS, longest_lease},
    reservation::{PathBytes, Reservation},
    unfair_node::{HELD, UnfairNode},
};
use self::{node::Nodes, unanswered::UnansweredRequests};
use crate::error::{self, Fate, Phase};

/// A session must have at least this part of its timeout left before a claim uses it. With less,
/// the lock would expire almost at once.
const LEAST_REMAINING: u32 = 3;
/// With less than this part of the timeout left, heartbeats have had no answer for a long time.
const STALE: u32 = 4;
/// How long closing may take. After that, the servers find out by themselves.
const PARTING: Duration = Duration::from_secs(2);

/// A session. When it is dropped, it ends, and the servers delete its nodes. A session of the
/// program continues, and its actor deletes the nodes.
pub(crate) struct Session {
    /// [`close`](Self::close) takes the client out. The client ends its session once no other
    /// reference to the client is left.
    client: Mutex<Option<Arc<Client>>>,
    id: i64,
    timeout: Duration,
    watched_bytes: AtomicUsize,
    node_bytes: AtomicUsize,
    chroot_bytes: usize,
    batches: Arc<NodeBatches>,
    shared: Arc<Shared>,
}

/// The state that the session shares with its actor.
pub(super) struct Shared {
    timeout: Duration,
    /// The session belongs to the program, and outlives the locker.
    borrowed: bool,
    /// `None` until something is known about a session that the program opened.
    proven_at: Mutex<Option<Tick>>,
    /// When the newest heartbeat was answered, and how long that took.
    beat: Mutex<Option<(Tick, Duration)>>,
    /// The session expired, was closed, or lost its runtime. It never recovers.
    over: AtomicBool,
    /// The proof moved, or the session is over.
    moved: Notify,
    nodes: Mutex<Nodes>,
    cleanups: Mutex<Vec<CleanupTask>>,
    /// How many claims have asked for a node on a session of the program, and await the answer.
    open_requests: AtomicUsize,
    unanswered: Mutex<UnansweredRequests>,
    closing: AtomicBool,
    /// Wakes the actor for cleanup tasks, or for the end.
    work: Notify,
}

impl Session {
    /// The client, for one request or several in a row.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`close`](Self::close).
    pub(crate) fn client(&self) -> Result<Arc<Client>> {
        lock(&self.client)
            .clone()
            .ok_or_else(|| error::ours(ErrorKind::Closed, "the locker was shut down"))
    }

    pub(crate) fn batches(&self) -> &Arc<NodeBatches> {
        &self.batches
    }

    /// The bytes that the chroot adds to each path on the wire.
    pub(crate) fn chroot_bytes(&self) -> usize {
        self.chroot_bytes
    }

    /// The session timeout that the servers agreed to.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.load(Acquire)
    }

    /// Whether no node of the session needs a cleanup any more. A session of the program may live
    /// although the runtime of its actor has ended.
    pub(crate) fn has_no_nodes(&self) -> bool {
        let lives = || lock(&self.client).as_ref().is_some_and(|client| !is_final(client.state()));
        self.is_over() && !(self.shared.borrowed && lives())
    }

    /// The lease of all nodes on this session.
    pub(crate) fn lease(&self, clock: Clock) -> Lease {
        let proven = *lock(&self.shared.proven_at);
        match (clock, proven) {
            (Clock::Boot, Some(at)) => Lease::Proven { at, lasts: self.timeout },
            // Proofs exist only on the boot clock.
            _ => Lease::For(self.shared.remaining()),
        }
    }

    /// Completes once the session is proven well enough for a new claim. Waits for at most half of
    /// `op_timeout`.
    ///
    /// # Errors
    /// Temporary: the session is over and the caller must use the next one, or it is not proven,
    /// with the reason.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ready(&self, op_timeout: Duration) -> Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        let ready = async {
            loop {
                let moved = self.shared.moved.notified();
                if self.is_over() {
                    return Err(over());
                }
                if self.is_ready() {
                    return Ok(());
                }
                moved.await;
            }
        };
        // With a longer wait, the core would give up first, and report no reason.
        match tokio::time::timeout(op_timeout / 2, ready).await {
            Ok(ready) => ready,
            Err(_) => Err(self.shared.unproven("lockkit takes no lock on it")),
        }
    }

    /// Waits until the actor has removed the nodes.
    async fn leave(&self, client: Option<Arc<Client>>) {
        self.shared.ended().await;
        // The actor may have ended before that, with its runtime.
        let left = mem::take(&mut *lock(&self.shared.cleanups));
        let Some(client) = client.as_deref() else { return };
        // The session of the program may have ended, too, and its nodes with it.
        join_all(left.into_iter().map(|mut cleanup| async move { cleanup.run(client).await }))
            .await;
    }

    fn is_ready(&self) -> bool {
        !self.is_over() && self.shared.remaining() >= self.timeout / LEAST_REMAINING
    }

    /// The lease of all nodes on this session, as the heartbeats prove it.
    ///
    /// # Errors
    /// Heartbeats had no answer for a long time, although a server may still answer reads.
    pub(crate) fn confirm(&self, clock: Clock) -> Result<RenewalOutcome> {
        if !self.shared.is_stale() {
            return Ok(RenewalOutcome::Alive(self.lease(clock)));
        }
        Err(self
            .shared
            .unproven("its locks are lost unless a heartbeat proves it again")
            .with_outcome_unknown())
    }

    /// Translates an error of a request, and ends the session if the error says that it is over.
    pub(crate) fn failed(
        &self,
        error: zookeeper_client::Error,
        phase: Phase,
        what: &str,
        path: &str,
    ) -> Error {
        if error::fate(&error) == Fate::SessionOver {
            self.shared.end();
        }
        error::from_zk(error, phase, what, path)
    }

    /// Ends the session, and waits for a while until the servers know. A session of the program
    /// continues. Then this waits for a while until its nodes are removed.
    pub(crate) async fn close(&self) {
        let client = lock(&self.client).take();
        self.shared.stop();
        let patience = PARTING.min(self.timeout);
        if self.shared.borrowed {
            // The actor continues if this takes too long.
            let _ = tokio::time::timeout(patience, self.leave(client)).await;
            return;
        }
        let Some(mut state) = client.as_deref().map(Client::state_watcher) else { return };
        drop(client);
        if is_final(state.peek_state()) {
            return;
        }
        let ended = async { while !is_final(state.changed().await) {} };
        // A request that still has the client drops it soon.
        let _ = tokio::time::timeout(patience, ended).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id))
            .field("timeout", &self.timeout)
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// `connecting` is an instant before the session was requested, unless it is borrowed.
    fn new(timeout: Duration, connecting: Tick, borrowed: bool) -> Self {
        Self {
            timeout,
            borrowed,
            proven_at: Mutex::new((!borrowed).then_some(connecting)),
            beat: Mutex::default(),
            over: AtomicBool::new(false),
            moved: Notify::new(),
            nodes: Mutex::default(),
            cleanups: Mutex::default(),
            open_requests: AtomicUsize::new(0),
            unanswered: Mutex::new(UnansweredRequests::new(timeout)),
            closing: AtomicBool::new(false),
            work: Notify::new(),
        }
    }

    fn remaining(&self) -> Duration {
        let proven = *lock(&self.proven_at);
        proven.map_or(Duration::ZERO, |at| Clock::Boot.now().until(at.after(self.timeout)))
    }

    /// Records that the session was alive at `at`. Claims whose renewals failed meanwhile check
    /// again at once.
    fn prove(&self, at: Tick) {
        let before = lock(&self.proven_at).replace(at);
        if before == Some(at) {
            return;
        }
        self.moved.notify_waiters();
        let left = |before: Tick| Clock::Boot.now().until(before.after(self.timeout));
        if before.is_none_or(|before| left(before) < self.timeout / STALE) {
            self.wake_all();
        }
    }

    /// Completes when the actor has ended.
    async fn ended(&self) {
        loop {
            let moved = self.moved.notified();
            if self.over.load(Acquire) {
                return;
            }
            moved.await;
        }
    }

    /// The error that says why the session is not proven, and what follows from that.
    fn unproven(&self, consequence: &str) -> Error {
        let now = Clock::Boot.now();
        let timeout = self.timeout;
        let left = self.remaining();
        let why = match *lock(&self.beat) {
            None => "the server has not answered a heartbeat yet".to_owned(),
            Some((answered, took)) if answered.until(now) > timeout / STALE => {
                format!(
                    "the server has not answered a heartbeat for {:.1?}, and the last one took \
                     {took:.1?}",
                    answered.until(now)
                )
            }
            Some((_, took)) => {
                format!(
                    "the server answers heartbeats, but the last one took {took:.1?}; use a longer \
                     session_timeout"
                )
            }
        };
        let reason = format!(
            "heartbeats prove the session for only {left:.1?} more, and its timeout is \
             {timeout:?}, so {consequence}; {why}"
        );
        error::ours(ErrorKind::Unavailable, reason)
    }

    fn is_stale(&self) -> bool {
        self.remaining() < self.timeout / STALE
    }

    fn end(&self) {
        if !self.over.swap(true, AcqRel) {
            self.moved.notify_waiters();
            self.work.notify_one();
            self.wake_all();
        }
    }

    fn stop(&self) {
        // The servers would keep the nodes of the claims that are left on a session of the program.
        // A claim adds its node under this lock, and looks at the mark after that.
        let nodes = lock(&self.nodes);
        let left = nodes.all();
        lock(&self.cleanups)
            .extend(left.iter().filter_map(|node| node.cleanup.as_deref().cloned()));
        self.closing.store(true, std::sync::atomic::Ordering::Release);
        drop(nodes);
        self.work.notify_one();
    }

    /// Wakes the claims outside the lock, because a woken claim may drop a [`ClaimNode`].
    fn wake_all(&self) {
        let nodes = lock(&self.nodes).all();
        nodes.iter().for_each(|node| node.wake.wake());
    }
}

fn is_final(state: SessionState) -> bool {
    matches!(state, SessionState::Expired | SessionState::AuthFailed | SessionState::Closed)
}

fn over() -> Error {
    error::ours(ErrorKind::Unavailable, "the session has ended; the next attempt opens a new one")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a reason that blames the server although the session timeout is too short for the
    /// server's answers.
    #[test]
    fn c13_a_session_that_is_not_proven_says_why() {
        let shared = Shared::new(Duration::from_secs(600), Clock::Boot.now(), false);
        let reason = || shared.unproven("lockkit takes no lock on it").to_string();
        assert!(reason().contains("the server has not answered a heartbeat yet"), "{}", reason());
        *lock(&shared.beat) = Some((Clock::Boot.now(), Duration::from_secs(120)));
        let slow = "the server answers heartbeats, but the last one took 120.0s; use a longer session_timeout";
        assert!(reason().contains(slow), "{}", reason());
    }
}
