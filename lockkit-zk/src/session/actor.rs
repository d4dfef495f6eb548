//! The one task of a session. It sends heartbeats, and cleans up after abandoned claims.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering::Acquire},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lockkit_core::{Clock, Tick, spi::Released};
use tokio::time::sleep;
use zookeeper_client::{Client, Error, SessionState, StateWatcher};

use super::{
    CleanupTask, Shared,
    beat::{HeartbeatRequest, NodeRemoval, beat},
    is_final, lock,
    proof::{BEATS, Proof},
};
use crate::error::{Fate, fate};

/// How many cleanup tasks run at a time.
const MOST_CLEANUPS: usize = 64;
/// How many folders are read at a time.
const MOST_LOOKS: usize = 8;
/// The pause after a cleanup whose outcome is unknown.
const RETRY: Duration = Duration::from_millis(50);

/// Runs until the session is over or closed, or until the runtime ends. After a close, a session of
/// the program keeps the actor until the nodes of all claims are removed.
pub(super) async fn run(
    shared: Arc<Shared>,
    client: Arc<Client>,
    heartbeat: HeartbeatRequest,
    connecting: Tick,
    removal: Option<NodeRemoval>,
) {
    let _end = End(&shared);
    // Dropped before the end is marked, so that its request comes before those of the program.
    let _removal = removal;
    let mut actor = Actor {
        shared: &shared,
        proof: Proof::new(shared.timeout, heartbeat.is_write(), connecting),
        heartbeat,
        state: client.state_watcher(),
        client: &client,
        connected: true,
        opened: connecting,
        seen_connected: connecting,
        due: Clock::Boot.now(),
        beat: None,
        running_cleanups: FuturesUnordered::new(),
        looks: FuturesUnordered::new(),
    };
    while !shared.over.load(Acquire) && !actor.is_done() {
        actor.turn().await;
    }
}

/// Marks the session as over, however the task ends. The end of the runtime ends the task, too.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A cleanup task, and its outcome.
type RunningCleanup = BoxFuture<'static, (CleanupTask, Result<Released, Error>)>;
/// A folder, and its children.
type Look = BoxFuture<'static, (String, Result<Vec<String>, Error>)>;

struct Actor<'a> {
    shared: &'a Arc<Shared>,
    client: &'a Arc<Client>,
    heartbeat: HeartbeatRequest,
    state: StateWatcher,
    proof: Proof,
    connected: bool,
    opened: Tick,
    /// The session was still connected at this instant or later. So any request that reconnects it
    /// is sent later.
    seen_connected: Tick,
    due: Tick,
    beat: Option<InFlight>,
    running_cleanups: FuturesUnordered<RunningCleanup>,
    looks: FuturesUnordered<Look>,
}

struct InFlight {
    sent: Tick,
    answer: BoxFuture<'static, Result<(), Error>>,
}

impl Actor<'_> {
    async fn turn(&mut self) {
        self.look_at_state();
        self.look_for_unanswered();
        self.start_cleanups();
        if self.can_beat() && Clock::Boot.now() >= self.due {
            self.send_beat();
        }
        let idle = self.idle();
        let answer = async {
            match &mut self.beat {
                Some(beat) => beat.answer.as_mut().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = answer => self.beat_is_over(answer),
            _ = self.state.changed() => {}
            Some((cleanup, outcome)) = self.running_cleanups.next() => self.cleanup_is_over(cleanup, outcome),
            Some((folder, children)) = self.looks.next() => self.look_is_over(&folder, children),
            () = self.shared.work.notified() => {}
            () = sleep(idle) => {}
        }
    }

    /// Whether the session was closed and needs this task no more. The servers delete the nodes of
    /// a session that ends.
    fn is_done(&self) -> bool {
        let is_clean = || {
            // The first condition, because a claim hands over its cleanup before it settles.
            self.shared.open_requests.load(Acquire) == 0
                && self.running_cleanups.is_empty()
                && self.looks.is_empty()
                && lock(&self.shared.cleanups).is_empty()
                && lock(&self.shared.unanswered).is_empty()
        };
        self.shared.closing.load(Acquire) && (!self.shared.borrowed || is_clean())
    }

    fn can_beat(&self) -> bool {
        self.connected && self.beat.is_none() && !self.shared.closing.load(Acquire)
    }

    /// How long the task may sleep if nothing happens.
    fn idle(&self) -> Duration {
        let now = Clock::Boot.now();
        let mut idle = self.shared.timeout / BEATS;
        if self.can_beat() {
            idle = now.until(self.due);
        }
        if self.connected && self.looks.len() < MOST_LOOKS {
            let due = lock(&self.shared.unanswered).due();
            idle = due.map_or(idle, |due| idle.min(now.until(due)));
        }
        idle
    }

    /// Reads the connection state. The state may change between two reads. Only the states that
    /// were read count, and each counts from the time of the earlier read.
    fn look_at_state(&mut self) {
        let looked = Clock::Boot.now();
        match self.state.peek_state() {
            SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                if !self.connected {
                    self.connected = true;
                    self.proof.reconnected(self.seen_connected, looked);
                    self.due = looked;
                }
                self.seen_connected = looked;
            }
            state if is_final(state) => self.shared.end(),
            _ => self.connected = false,
        }
    }

    fn send_beat(&mut self) {
        let sent = Clock::Boot.now();
        let beat = beat(Arc::clone(self.client), self.heartbeat.clone(), Arc::clone(self.shared));
        self.beat = Some(InFlight { sent, answer: beat.boxed() });
        self.due = sent.after(self.shared.timeout / BEATS);
    }

    fn beat_is_over(&mut self, answer: Result<(), Error>) {
        let Some(InFlight { sent, .. }) = self.beat.take() else { return };
        match answer {
            Ok(()) => {
                let now = Clock::Boot.now();
                *lock(&self.shared.beat) = Some((now, sent.until(now)));
                self.proof.answered(sent, now);
                // Nothing is known about the first lease of a session that the program opened.
                if self.proof.at() > self.opened {
                    self.shared.prove(self.proof.at());
                }
            }
            Err(error) if fate(&error) == Fate::SessionOver => self.shared.end(),
            // The next open of a session reports the reason.
            Err(error)
                if fate(&error) == Fate::Refused
                    && self.shared.remaining().is_zero()
                    && !self.shared.borrowed =>
            {
                tracing::warn!(target: "lockkit", %error, "the server refuses heartbeats, so \
                                                           lockkit gives up the session");
                self.shared.end();
            }
            Err(error) => {
                tracing::debug!(target: "lockkit", %error, "the server did not answer a heartbeat")
            }
        }
    }

    fn start_cleanups(&mut self) {
        while self.connected && self.running_cleanups.len() < MOST_CLEANUPS {
            let Some(mut cleanup) = lock(&self.shared.cleanups).pop() else { return };
            let client = Arc::clone(self.client);
            let running = async move {
                let outcome = cleanup.run(&client).await;
                if outcome.as_ref().is_err_and(|error| fate(error) == Fate::Unknown) {
                    sleep(RETRY).await;
                }
                (cleanup, outcome)
            };
            self.running_cleanups.push(running.boxed());
        }
    }

    /// Starts a read of each folder in which a request without an answer may have made a node after
    /// all.
    fn look_for_unanswered(&mut self) {
        while self.connected && self.looks.len() < MOST_LOOKS {
            let Some(folder) = lock(&self.shared.unanswered).next() else { return };
            let client = Arc::clone(self.client);
            let look = async move {
                let children = client.list_children(&folder).await;
                (folder, children)
            };
            self.looks.push(look.boxed());
        }
    }

    fn look_is_over(&self, folder: &str, children: Result<Vec<String>, Error>) {
        let children = match children {
            Ok(children) => children,
            // The folder may be made again.
            Err(Error::NoNode) => Vec::new(),
            Err(_) => return,
        };
        let found = lock(&self.shared.unanswered).found(folder, &children);
        for cleanup in &found {
            tracing::debug!(target: "lockkit", ?cleanup, "the server created a node long after its \
                                                          claim gave up");
        }
        lock(&self.shared.cleanups).extend(found);
    }

    fn cleanup_is_over(&self, cleanup: CleanupTask, outcome: Result<Released, Error>) {
        let error = match outcome {
            Ok(Released::NotHeld) if cleanup.is_unseen() => {
                lock(&self.shared.unanswered).add(cleanup);
                return;
            }
            Ok(_) => return,
            Err(error) => error,
        };
        match fate(&error) {
            Fate::Unknown => lock(&self.shared.cleanups).push(cleanup),
            Fate::SessionOver => self.shared.end(),
            Fate::Refused => {
                tracing::warn!(target: "lockkit", %error, ?cleanup, "could not delete a node of an \
                                                                     abandoned claim");
            }
        }
    }
}
