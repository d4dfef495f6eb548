//! The node of a claim on a session. No node stays in the tree after its claim.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use lockkit_core::{
    Error, Result,
    spi::{Attempt, Released, Wake},
};
use zookeeper_client::{Client, Error as ZkError};

use super::{
    CleanupTask, Done, NodeBatches, Request, Reservation, Session, Shared, lock, node::Node,
};
use crate::error::Phase;

/// Covers the time from before the request for a node until the node is surely gone. If it is
/// dropped earlier, the session does the rest of the cleanup.
pub(crate) struct ClaimNode {
    session: Arc<Session>,
    reservation: Reservation,
    cleanup: Option<CleanupTask>,
    node: Option<Watched>,
    open_request: Option<OpenRequest>,
}

impl ClaimNode {
    /// Starts without any request.
    pub(crate) fn new(reservation: Reservation) -> Self {
        let session = Arc::clone(reservation.session());
        Self { session, reservation, cleanup: None, node: None, open_request: None }
    }

    /// Records the cleanup of a node that may be in the tree from now on. The claim takes the
    /// client for its request after that. So a close either waits for the answer, or leaves no
    /// client for the request.
    pub(crate) fn add_cleanup(&mut self, cleanup: CleanupTask) {
        self.cleanup = Some(cleanup);
        self.open_request = OpenRequest::on(&self.session.shared);
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The node's path, once it is known.
    pub(crate) fn path(&self) -> Option<&Arc<str>> {
        self.node.as_ref().map(|node| &node.node.path)
    }

    /// Records that the node was made. From now on the heartbeats check that it exists, and wake
    /// the claim if it does not.
    pub(crate) fn created(&mut self, path: Arc<str>, created: i64, wake: Wake) {
        match &mut self.cleanup {
            Some(CleanupTask::UnfairNode(_)) | None => {}
            Some(cleanup) => *cleanup = CleanupTask::Queued { path: Arc::clone(&path) },
        }
        let shared = &self.session.shared;
        let cleanup = shared.borrowed.then(|| self.cleanup.clone()).flatten();
        let boxed = cleanup.clone().map(Box::new);
        let node = Node { path, created, gone: false.into(), wake, cleanup: boxed };
        self.node = Some(Watched::new(shared, node));
        // A close that comes later finds the node by itself.
        if shared.closing.load(Acquire) {
            lock(&shared.cleanups).extend(cleanup);
        }
        self.open_request = None;
    }

    /// Looks for the node of an attempt that was not answered. Returns `false` if the node is not
    /// there; if it is made later, the session deletes it. A node of an older session is never
    /// adopted, because its name or its folder's record differs.
    ///
    /// # Errors
    /// Temporary; the state is still unknown.
    pub(crate) async fn adopt(&mut self, wake: Wake) -> Result<bool> {
        let session = Arc::clone(&self.session);
        let client = self.session.client()?;
        let Some(cleanup) = &mut self.cleanup else { return Ok(false) };
        let found = cleanup.find(&client).await;
        let found = found.map_err(|e| {
            session.failed(e, Phase::Write, "looking for lockkit's node in", cleanup.folder())
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

    /// The node is not in the tree yet. The session continues to look for it for a while.
    fn not_found(&mut self) {
        if let Some(cleanup) = self.cleanup.take_if(|cleanup| cleanup.is_unseen()) {
            lock(&self.session.shared.unanswered).add(cleanup);
            self.session.shared.work.notify_one();
        }
        self.settled();
    }

    /// Records the version that the grant of an unfair mutex gave to its folder.
    pub(crate) fn granted_by(&mut self, version: i32) {
        if let Some(CleanupTask::UnfairNode(unfair_node)) = &mut self.cleanup {
            unfair_node.granted_by(version);
        }
    }

    /// The nodes and versions that prove the grant of an unfair mutex, or `None` if the grant is
    /// over.
    ///
    /// # Errors
    /// Temporary; the state is unknown.
    pub(crate) async fn proofs(&mut self) -> Result<Option<[(String, i32); 3]>> {
        let session = Arc::clone(&self.session);
        let client = self.session.client()?;
        let Some(CleanupTask::UnfairNode(unfair_node)) = &mut self.cleanup else { return Ok(None) };
        let proofs = unfair_node.proofs(&client).await;
        proofs.map_err(|error| {
            session.failed(error, Phase::Read, "looking into", unfair_node.folder())
        })
    }

    /// Forgets the version, because another client wrote to the folder of an unfair mutex after its
    /// grant.
    pub(crate) fn forget_version(&mut self) {
        if let Some(CleanupTask::UnfairNode(unfair_node)) = &mut self.cleanup {
            unfair_node.forget_version();
        }
    }

    /// The zxid that made the node.
    pub(crate) fn created_by(&self) -> Option<i64> {
        self.node.as_ref().map(|node| node.node.created)
    }

    /// Whether another client deleted the node, or its session is over.
    pub(crate) fn is_gone(&self) -> bool {
        self.session.is_over() || self.is_deleted()
    }

    /// Whether another client deleted the node.
    pub(crate) fn is_deleted(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.node.gone.load(Acquire))
    }

    /// Records that the node was seen to be gone.
    pub(crate) fn mark_gone(&self) {
        if let Some(node) = &self.node {
            node.node.gone.store(true, std::sync::atomic::Ordering::Release);
        }
    }

    /// Gives up the reserved watch, because the claim needs no watch any more.
    pub(crate) fn stop_waiting(&mut self) {
        self.reservation.stop_watching();
    }

    /// Records that no node of the claim is in the tree.
    pub(crate) fn settled(&mut self) {
        self.cleanup = None;
        self.node = None;
        self.open_request = None;
    }

    /// Ends an attempt. After a temporary error, the core asks again, so the claim keeps its node.
    /// After any other error, the node is deleted.
    ///
    /// # Errors
    /// The error of the attempt. The outcome is unknown if a node may be in the tree (C5).
    pub(crate) async fn end_attempt(
        claim_node: &mut Option<Self>,
        answer: Result<Attempt>,
        op_timeout: Duration,
    ) -> Result<Attempt> {
        let (Err(error), Some(claim_node)) = (&answer, claim_node) else { return answer };
        if !error.is_temporary() {
            // If this fails, the node may be left, and the session removes it later.
            let _ = claim_node.give_up(op_timeout).await;
        }
        if claim_node.cleanup.is_none() {
            return answer;
        }
        answer.map_err(Error::with_outcome_unknown)
    }

    /// Deletes the node.
    ///
    /// # Errors
    /// The error of the server. The outcome is unknown unless the error says otherwise.
    pub(crate) async fn give_up(&mut self, op_timeout: Duration) -> Result<Released> {
        let Some(cleanup) = &mut self.cleanup else { return Ok(Released::NotHeld) };
        if self.session.has_no_nodes() {
            self.settled();
            return Ok(Released::NotHeld);
        }
        let client = self.session.client()?;
        match remove(self.session.batches(), &client, cleanup, op_timeout).await {
            Ok(released) => {
                self.not_found();
                Ok(released)
            }
            Err(error) => {
                let path = self.path().map_or("", |path| &**path);
                let error = self.session.failed(error, Phase::Write, "deleting", path);
                if self.session.has_no_nodes() {
                    self.settled();
                    return Ok(Released::NotHeld);
                }
                Err(error)
            }
        }
    }
}

/// Removes a node, together with others if the session is busy.
async fn remove(
    batches: &Arc<NodeBatches>,
    client: &Arc<Client>,
    cleanup: &mut CleanupTask,
    op_timeout: Duration,
) -> Result<Released, ZkError> {
    if let CleanupTask::Queued { path } = cleanup {
        let request = Request::Delete { path: Arc::clone(path) };
        if matches!(batches.send(client, request, op_timeout).await?, Done::Deleted) {
            return Ok(Released::Freed);
        }
    }
    let _request = batches.begin();
    cleanup.run(client).await
}

impl Drop for ClaimNode {
    fn drop(&mut self) {
        let Some(mut cleanup) = self.cleanup.take() else { return };
        if !self.session.is_over() {
            lock(&self.session.shared.cleanups).push(cleanup);
            self.session.shared.work.notify_one();
        } else if !self.session.has_no_nodes()
            && let Ok(client) = self.session.client()
        {
            // The actor is gone, so this sends one request and does not wait for the answer.
            let _ = cleanup.run(&client).now_or_never();
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

/// A request for a node on a session of the program, until the cleanup of the node is handed over
/// or not needed. The actor does not end before.
struct OpenRequest(Arc<Shared>);

impl OpenRequest {
    /// Returns `None` for a session of lockkit's own, whose nodes end with it.
    fn on(shared: &Arc<Shared>) -> Option<Self> {
        shared.borrowed.then(|| {
            shared.open_requests.fetch_add(1, AcqRel);
            Self(Arc::clone(shared))
        })
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open_requests.fetch_sub(1, AcqRel);
        if self.0.closing.load(Acquire) {
            self.0.work.notify_one();
        }
    }
}

/// A node that the heartbeats check for as long as this value lives.
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
