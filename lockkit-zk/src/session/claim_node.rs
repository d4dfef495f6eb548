//! A claim's node on a session. Whatever becomes of the claim, nothing of it stays in the tree.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Acquire},
};

use lockkit_core::{
    Result,
    spi::{Released, Wake},
};

use super::{CleanupTask, Session, Shared, WatchReservation, lock, node::Node};
use crate::error::Phase;

/// From before a node is asked for until it is surely gone. Dropped earlier, the rest is the
/// session's to do.
pub(crate) struct ClaimNode {
    session: Arc<Session>,
    cleanup: Option<CleanupTask>,
    node: Option<Watched>,
    /// For the watch of a waiter.
    reservation: Option<WatchReservation>,
}

impl ClaimNode {
    /// Nothing is asked for yet.
    pub(crate) fn new(reservation: WatchReservation) -> Self {
        Self {
            session: Arc::clone(reservation.session()),
            cleanup: None,
            node: None,
            reservation: Some(reservation),
        }
    }

    /// From here on this may be in the tree.
    pub(crate) fn add_cleanup(&mut self, cleanup: CleanupTask) {
        self.cleanup = Some(cleanup);
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The node's path, once it is known.
    pub(crate) fn path(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.node.path.as_str())
    }

    /// The node is there. From now on heartbeats look whether it still is, and wake the claim if
    /// not.
    pub(crate) fn created(&mut self, path: String, created: i64, wake: Wake) {
        match &mut self.cleanup {
            Some(CleanupTask::QueueNode { path: known, .. }) => *known = Some(path.clone()),
            Some(CleanupTask::UnfairNode(_)) | None => {}
        }
        self.node = Some(Watched::new(
            &self.session.shared,
            Node { path, created, gone: false.into(), wake },
        ));
    }

    /// Looks for the node of an attempt that was not answered; `false`: it is not there, and if it
    /// is made after all, the session deletes it. A node of an older session is never taken over:
    /// its name, or its folder's record, is another one.
    ///
    /// # Errors
    /// Temporary; it is still unknown.
    pub(crate) async fn adopt(&mut self, wake: Wake) -> Result<bool> {
        let session = Arc::clone(&self.session);
        let client = self.session.client()?;
        let Some(cleanup) = &mut self.cleanup else { return Ok(false) };
        let found = cleanup.find(&client).await;
        let found = found.map_err(|e| {
            session.failed(e, Phase::Write, "looking for what was made in", cleanup.folder())
        })?;
        match found {
            Some((path, stat)) if stat.ephemeral_owner == session.id => {
                self.created(path, stat.czxid, wake);
                Ok(true)
            }
            Some(_) => {
                self.settled();
                Ok(false)
            }
            None => {
                self.not_found();
                Ok(false)
            }
        }
    }

    /// Nothing of it is in the tree yet. The session goes on looking for a while.
    fn not_found(&mut self) {
        if let Some(cleanup) = self.cleanup.take_if(|cleanup| cleanup.is_unseen()) {
            lock(&self.session.shared.unanswered).add(cleanup);
            self.session.shared.work.notify_one();
        }
        self.settled();
    }

    /// The grant of an unfair mutex has given this version to the folder.
    pub(crate) fn granted_by(&mut self, version: i32) {
        if let Some(CleanupTask::UnfairNode(unfair_node)) = &mut self.cleanup {
            unfair_node.granted_by(version);
        }
    }

    /// What must stand for the grant of an unfair mutex to stand, with the versions; `None` if it
    /// does not.
    ///
    /// # Errors
    /// Temporary; it is unknown.
    pub(crate) async fn proofs(&mut self) -> Result<Option<[(String, i32); 3]>> {
        let session = Arc::clone(&self.session);
        let client = self.session.client()?;
        let Some(CleanupTask::UnfairNode(unfair_node)) = &mut self.cleanup else { return Ok(None) };
        let proofs = unfair_node.proofs(&client).await;
        proofs.map_err(|error| {
            session.failed(error, Phase::Read, "looking into", unfair_node.folder())
        })
    }

    /// Somebody has written to the folder of an unfair mutex since its grant.
    pub(crate) fn forget_version(&mut self) {
        if let Some(CleanupTask::UnfairNode(unfair_node)) = &mut self.cleanup {
            unfair_node.forget_version();
        }
    }

    /// The zxid that made the node.
    pub(crate) fn created_by(&self) -> Option<i64> {
        self.node.as_ref().map(|node| node.node.created)
    }

    /// Somebody else deleted it, or its session is over.
    pub(crate) fn is_gone(&self) -> bool {
        self.session.is_over()
            || self.node.as_ref().is_some_and(|node| node.node.gone.load(Acquire))
    }

    /// It was seen that the node is not there any more.
    pub(crate) fn mark_gone(&self) {
        if let Some(node) = &self.node {
            node.node.gone.store(true, std::sync::atomic::Ordering::Release);
        }
    }

    /// No watch will be needed any more.
    pub(crate) fn stop_waiting(&mut self) {
        self.reservation = None;
    }

    /// Nothing of it is in the tree.
    pub(crate) fn settled(&mut self) {
        self.cleanup = None;
        self.node = None;
    }

    /// Takes the node away.
    ///
    /// # Errors
    /// What the server said; the outcome is unknown unless the error says otherwise.
    pub(crate) async fn give_up(&mut self) -> Result<Released> {
        let Some(cleanup) = &mut self.cleanup else { return Ok(Released::NotHeld) };
        if self.session.is_over() {
            self.settled();
            return Ok(Released::NotHeld);
        }
        let client = self.session.client()?;
        match cleanup.run(&client).await {
            Ok(released) => {
                self.not_found();
                Ok(released)
            }
            Err(error) => {
                let path = self.path().unwrap_or_default();
                let error = self.session.failed(error, Phase::Write, "deleting", path);
                if self.session.is_over() {
                    self.settled();
                    return Ok(Released::NotHeld);
                }
                Err(error)
            }
        }
    }
}

impl Drop for ClaimNode {
    fn drop(&mut self) {
        if let Some(cleanup) = self.cleanup.take()
            && !self.session.is_over()
        {
            lock(&self.session.shared.cleanups).push(cleanup);
            self.session.shared.work.notify_one();
        }
    }
}

impl fmt::Debug for ClaimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimNode")
            .field("session", &self.session)
            .field("cleanup", &self.cleanup)
            .finish_non_exhaustive()
    }
}

/// A node that the heartbeats look after for as long as this lives.
struct Watched {
    shared: Arc<Shared>,
    key: u64,
    node: Arc<Node>,
}

impl Watched {
    fn new(shared: &Arc<Shared>, node: Node) -> Self {
        let node = Arc::new(node);
        let key = lock(&shared.nodes).insert(Arc::clone(&node));
        Self { shared: Arc::clone(shared), key, node }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let node = lock(&self.shared.nodes).remove(self.key);
        drop(node);
    }
}
