//! One session with the servers, shared by all claims that stand on it. Its actor keeps it proven,
//! looks after its nodes, and takes back what is left of abandoned claims.

mod actor;
mod beat;
mod claim_node;
mod cleanup_task;
mod node;
mod open;
mod pool;
mod proof;
mod unanswered;
mod unfair_node;
mod watch_reservation;

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

use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Lease, RenewalOutcome},
};
use tokio::sync::Notify;
use zookeeper_client::{Client, SessionState};

pub(crate) use self::{
    claim_node::ClaimNode,
    cleanup_task::CleanupTask,
    open::client as open_client,
    pool::Pool,
    unfair_node::{HELD, UnfairNode},
    watch_reservation::WatchReservation,
};
use self::{node::Nodes, unanswered::UnansweredRequests};
use crate::error::{self, Fate, Phase};

/// Nothing is taken on a session of which less than this part of its timeout is left: the lock
/// would expire almost at once.
const LEAST_REMAINING: u32 = 3;
/// If less than this part of the timeout is left, heartbeats were not answered for long.
const STALE: u32 = 4;
/// How long closing may take before the servers are left to find out by themselves.
const PARTING: Duration = Duration::from_secs(2);

/// A session. Dropped, it ends, and the servers delete its nodes.
pub(crate) struct Session {
    /// Taken by [`close`](Self::close): the client ends its session once nobody has it any more.
    client: Mutex<Option<Arc<Client>>>,
    id: i64,
    timeout: Duration,
    watched_bytes: AtomicUsize,
    chroot_bytes: usize,
    shared: Arc<Shared>,
}

/// What the actor knows as well.
pub(super) struct Shared {
    timeout: Duration,
    proven_at: Mutex<Tick>,
    /// When the newest heartbeat was answered, and how long that took.
    beat: Mutex<Option<(Tick, Duration)>>,
    /// Expired, closed, or without its runtime: nothing will come of it any more.
    over: AtomicBool,
    /// The proof has moved, or it is over.
    moved: Notify,
    nodes: Mutex<Nodes>,
    cleanups: Mutex<Vec<CleanupTask>>,
    unanswered: Mutex<UnansweredRequests>,
    closing: AtomicBool,
    /// For the actor: cleanup tasks, or the end.
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

    /// What the chroot adds to each path on the wire.
    pub(crate) fn chroot_bytes(&self) -> usize {
        self.chroot_bytes
    }

    /// What the servers agreed to.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.load(Acquire)
    }

    /// The lease of everything on this session.
    pub(crate) fn lease(&self, clock: Clock) -> Lease {
        let at = *lock(&self.shared.proven_at);
        match clock {
            Clock::Boot => Lease::Proven { at, lasts: self.timeout },
            // Proofs are told on the boot clock alone.
            _ => Lease::For(self.shared.remaining()),
        }
    }

    /// Completes once the session is proven well enough to take something on it. Waits for half of
    /// `op_timeout`.
    ///
    /// # Errors
    /// Temporary: the session is over, and the next one is to be used; or it is not proven, with
    /// the reason.
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
        // Longer, and the core would give up first, without a reason.
        match tokio::time::timeout(op_timeout / 2, ready).await {
            Ok(ready) => ready,
            Err(_) => Err(self.shared.unproven("nothing is locked on it")),
        }
    }

    fn is_ready(&self) -> bool {
        !self.is_over() && self.shared.remaining() >= self.timeout / LEAST_REMAINING
    }

    /// What heartbeats say of everything on this session.
    ///
    /// # Errors
    /// They were not answered for long, although a server may still answer reads.
    pub(crate) fn confirm(&self, clock: Clock) -> Result<RenewalOutcome> {
        if !self.shared.is_stale() {
            return Ok(RenewalOutcome::Alive(self.lease(clock)));
        }
        Err(self
            .shared
            .unproven("the locks on it are lost unless heartbeats prove it")
            .with_outcome_unknown())
    }

    /// Translates an error of a request, and draws the conclusion for the session.
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

    /// Ends the session and waits until the servers know, for a while.
    pub(crate) async fn close(&self) {
        let client = lock(&self.client).take();
        self.shared.stop();
        let Some(mut state) = client.as_deref().map(Client::state_watcher) else { return };
        drop(client);
        if is_final(state.peek_state()) {
            return;
        }
        let ended = async { while !is_final(state.changed().await) {} };
        // Whoever still has the client in a request lets go of it soon.
        let _ = tokio::time::timeout(PARTING.min(self.timeout), ended).await;
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
    fn new(timeout: Duration, connecting: Tick) -> Self {
        Self {
            timeout,
            proven_at: Mutex::new(connecting),
            beat: Mutex::default(),
            over: AtomicBool::new(false),
            moved: Notify::new(),
            nodes: Mutex::default(),
            cleanups: Mutex::default(),
            unanswered: Mutex::default(),
            closing: AtomicBool::new(false),
            work: Notify::new(),
        }
    }

    fn remaining(&self) -> Duration {
        Clock::Boot.now().until(lock(&self.proven_at).after(self.timeout))
    }

    /// The session was alive at `at`. Those whose renewals failed meanwhile look again at once.
    fn prove(&self, at: Tick) {
        let before = mem::replace(&mut *lock(&self.proven_at), at);
        if before == at {
            return;
        }
        self.moved.notify_waiters();
        if Clock::Boot.now().until(before.after(self.timeout)) < self.timeout / STALE {
            self.wake_all();
        }
    }

    /// Why the session is not proven, and what follows from that.
    fn unproven(&self, consequence: &str) -> Error {
        let now = Clock::Boot.now();
        let timeout = self.timeout;
        let left = self.remaining();
        let why = match *lock(&self.beat) {
            None => "no heartbeat was answered yet".to_owned(),
            Some((answered, took)) if answered.until(now) > timeout / STALE => {
                format!(
                    "no heartbeat was answered for {:.1?}, and the last one took {took:.1?}",
                    answered.until(now)
                )
            }
            Some((_, took)) => {
                format!(
                    "heartbeats are answered, but the last one took {took:.1?}: use a longer session_timeout"
                )
            }
        };
        let reason = format!(
            "the session is proven for {left:.1?} more of its timeout of {timeout:?}, so {consequence}; {why}"
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
        self.closing.store(true, std::sync::atomic::Ordering::Release);
        self.work.notify_one();
    }

    /// Wakes outside the lock: what it wakes may drop a [`ClaimNode`].
    fn wake_all(&self) {
        let nodes = lock(&self.nodes).all();
        nodes.iter().for_each(|node| node.wake.wake());
    }
}

fn is_final(state: SessionState) -> bool {
    matches!(state, SessionState::Expired | SessionState::AuthFailed | SessionState::Closed)
}

fn over() -> Error {
    error::ours(ErrorKind::Unavailable, "the session is over; the next attempt opens a new one")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a reason that blames the server where the session's timeout is too short for its
    /// answers.
    #[test]
    fn c13_a_session_that_is_not_proven_says_why() {
        let shared = Shared::new(Duration::from_secs(600), Clock::Boot.now());
        let reason = || shared.unproven("nothing is locked on it").to_string();
        assert!(reason().contains("no heartbeat was answered yet"), "{}", reason());
        *lock(&shared.beat) = Some((Clock::Boot.now(), Duration::from_secs(120)));
        let slow =
            "heartbeats are answered, but the last one took 120.0s: use a longer session_timeout";
        assert!(reason().contains(slow), "{}", reason());
    }
}
