//! A claim that queues: it takes a place in the queue of a lock, and holds it exclusively, shared,
//! or as permits.
//!
//! 1. Create an ephemeral node with a sequence number in the folder of the name. If an earlier
//!    answer was lost, look for a node with our id first.
//! 2. List the folder. If the nodes with smaller numbers leave room, the claim is granted. The
//!    token is the transaction that created our node.
//! 3. Otherwise watch the node that blocks our turn, and list again when that node has changed.
//! 4. A renewal checks that the session lives and that our node still exists.
//! 5. A release deletes our node. The server deletes the node when our session ends.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, Result,
    spi::{
        Attempt, Claim, ClaimSpec, Grant, LossReason, Note, Noted, Released, RenewalOutcome, Wait,
    },
};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use crate::{
    error::{self, Fate, Phase, fate},
    folder::{self, InFolder, KnownFolders},
    node_ref::NodeRef,
    note::{self, Outcome},
    queue::{Obstacle, Queue, Role, Turn},
    record::Record,
    session::{ClaimNode, CleanupTask, Created, Done, PathBytes, Pool, Request, Session},
    watching::{Armed, News, Watching},
};

/// How often one attempt makes its node again after another client deleted it.
const MOST_STARTS: u32 = 3;
/// How often one attempt reads a queue that keeps changing.
const MOST_LOOKS: u32 = 16;
const SEQUENCE_DIGITS: usize = 10;
const QUEUED: Attempt = Attempt::Busy { queued: true, retry_after: None };

/// A claim that queues.
#[derive(Debug)]
pub(crate) struct QueueClaim {
    pool: Arc<Pool>,
    spec: ClaimSpec,
    role: Role,
    claim_node: Option<ClaimNode>,
    /// Boxed, because only a waiter has one.
    watching: Option<Box<Watching>>,
    /// Our turn came. This holds for as long as our node exists.
    granted: bool,
}

impl QueueClaim {
    pub(crate) fn new(pool: Arc<Pool>, role: Role, spec: ClaimSpec) -> Self {
        Self { pool, spec, role, claim_node: None, watching: None, granted: false }
    }

    /// The folder of the lock. It is not kept, because a program may hold very many locks.
    fn folder(&self) -> String {
        self.pool.config().layout().lock(&self.spec.name)
    }

    /// Takes a place in the queue, or finds the node of an earlier attempt. Returns the children of
    /// the folder if this call read them.
    async fn enter(&mut self) -> Result<Option<Vec<String>>> {
        if self.claim_node.as_ref().is_some_and(ClaimNode::is_gone) {
            self.start_over();
        }
        let Some(claim_node) = &mut self.claim_node else { return self.create().await };
        if claim_node.path().is_some() || claim_node.adopt(self.spec.wake.clone()).await? {
            return Ok(None);
        }
        self.start_over();
        self.create().await
    }

    fn start_over(&mut self) {
        (self.watching, self.granted) = (None, false);
        if let Some(mut claim_node) = self.claim_node.take()
            && claim_node.is_deleted()
        {
            claim_node.settled();
        }
    }

    /// Makes the node and reads the queue in one round trip.
    async fn create(&mut self) -> Result<Option<Vec<String>>> {
        let stem = self.role.stem(&format!("{:032x}", rand::random::<u128>()));
        let folder: Arc<str> = self.folder().into();
        let prefix: Arc<str> = format!("{folder}/{stem}").into();
        let path = prefix.len() + SEQUENCE_DIGITS;
        let reservation =
            self.pool.reservation(PathBytes { watched: path, in_nodes: path }).await?;
        let session = Arc::clone(reservation.session());
        let config = self.pool.config();
        config.check_ttl(self.spec.ttl, session.timeout())?;
        session.ready(self.spec.op_timeout).await?;
        let claim_node = self.claim_node.insert(ClaimNode::new(reservation));
        let cleanup = CleanupTask::Requested { folder: Arc::clone(&folder), stem: stem.into() };
        claim_node.add_cleanup(cleanup);
        let client = session.client().inspect_err(|_| claim_node.settled())?;
        let place = Place {
            folder: Arc::clone(&folder),
            prefix: Arc::clone(&prefix),
            data: record(&self.spec, false),
            acls: config.acl.acls(),
        };
        let answer = match place
            .make_with_others(&session, &client, self.pool.folders(), self.spec.op_timeout)
            .await
        {
            Some(answer) => answer,
            None => {
                let _request = session.batches().begin();
                let into = (self.spec.name.kind(), &*folder);
                folder::send_into(&place, &client, config, self.pool.folders(), into)
                    .await
                    .inspect_err(|_| claim_node.settled())?
            }
        };
        let created = match answer {
            Ok(created) => created,
            Err(error) => {
                if fate(&error) != Fate::Unknown {
                    claim_node.settled();
                }
                return Err(session.failed(error, Phase::Write, "creating", &prefix));
            }
        };
        claim_node.created(created.path.into(), created.zxid, self.spec.wake.clone());
        match created.queue {
            Ok(children) => Ok(Some(children)),
            Err(error) => Err(session.failed(error, Phase::Write, "listing", &folder)),
        }
    }

    /// Enters the queue, and looks whether it is our turn.
    async fn enter_and_look(&mut self, wait: Wait) -> Result<Attempt> {
        if wait == Wait::No && self.claim_node.is_none() && self.is_taken().await? {
            return Ok(Attempt::Busy { queued: false, retry_after: None });
        }
        for _ in 0..MOST_STARTS {
            let children = self.enter().await?;
            if let Some(attempt) = self.look(children, wait).await? {
                return Ok(attempt);
            }
            if let Some(claim_node) = &self.claim_node {
                claim_node.mark_gone();
            }
        }
        let reason = format!(
            "another client deletes lockkit's node in {:?} as soon as lockkit creates it; stop \
             that client",
            self.folder()
        );
        Err(error::ours(ErrorKind::Unavailable, reason))
    }

    /// Checks whether it is our turn, and sets a watch if not. Returns `None` if another client
    /// deleted our node.
    async fn look(
        &mut self,
        mut children: Option<Vec<String>>,
        wait: Wait,
    ) -> Result<Option<Attempt>> {
        let Some(node_ref) = self.claim_node.as_ref().and_then(NodeRef::of) else {
            return Ok(None);
        };
        node_ref.session.ready(self.spec.op_timeout).await?;
        if children.is_none() && !self.granted && !self.has_news(&node_ref).await? {
            return Ok(Some(QUEUED));
        }
        if children.is_none() && self.granted {
            return self.confirm(&node_ref).await;
        }
        for _ in 0..MOST_LOOKS {
            let children_now = match children.take() {
                Some(children) => children,
                None => match node_ref.list().await? {
                    Some(children) => children,
                    None => return Ok(None),
                },
            };
            let queue = self.queue(children_now)?;
            let obstacle = match queue.turn(node_ref.node()) {
                Turn::Missing => return Ok(None),
                Turn::Granted => {
                    if !queue.is_last(node_ref.node()) {
                        self.tell_successor(&node_ref);
                    }
                    return Ok(Some(self.grant(&node_ref)));
                }
                Turn::Disagrees { limit } => return Err(self.disagrees(limit)),
                Turn::After(_) if wait == Wait::No => return self.leave().await.map(Some),
                Turn::After(obstacle) => obstacle,
            };
            if self.watching.as_ref().is_some_and(|watching| watching.is_for(&obstacle)) {
                return Ok(Some(QUEUED));
            }
            let last = matches!(obstacle, Obstacle::Last(_));
            match Watching::arm(&node_ref.session, &node_ref.client, node_ref.folder(), obstacle)
                .await?
            {
                Armed::Set(watching) => {
                    self.watching = Some(Box::new(watching));
                    return Ok(Some(QUEUED));
                }
                Armed::Behind(watching, children_now) => {
                    self.watching = Some(Box::new(watching));
                    children = Some(children_now);
                }
                Armed::Gone if last => return self.confirm(&node_ref).await,
                Armed::Gone => {}
            }
        }
        // The queue changes faster than this claim can read it. The next poll looks again.
        Ok(Some(QUEUED))
    }

    /// True if our place in the queue may have changed. If the last obstacle is gone, our turn came.
    async fn has_news(&mut self, node_ref: &NodeRef) -> Result<bool> {
        match self.news(node_ref).await? {
            News::Nothing => return Ok(false),
            News::Gone if self.watching.as_ref().is_some_and(|watching| watching.is_for_last()) => {
                self.granted = true
            }
            News::Gone | News::Changed => {}
        }
        Ok(true)
    }

    /// Returns what the watch reported. If it reported nothing, asks the server, because a watch
    /// may be lost.
    async fn news(&mut self, node_ref: &NodeRef) -> Result<News> {
        let Some(watching) = &mut self.watching else { return Ok(News::Changed) };
        match watching.news() {
            // Only the queue shows that the node ahead was granted.
            News::Nothing if matches!(self.role, Role::Permits { .. }) => Ok(News::Changed),
            News::Nothing => {
                watching.probe(&node_ref.session, &node_ref.client, node_ref.folder()).await
            }
            news => Ok(news),
        }
    }

    /// It is our turn if our own node still exists (C8). The watch alone does not prove that.
    async fn confirm(&mut self, node_ref: &NodeRef) -> Result<Option<Attempt>> {
        Ok(node_ref.is_there().await?.then(|| self.grant(node_ref)))
    }

    /// Marks our node as granted. The next waiter for permits may have taken this node for a
    /// waiter, and watch only this node. If the request is lost, the next poll of that waiter finds
    /// the change.
    fn tell_successor(&self, node_ref: &NodeRef) {
        if matches!(self.role, Role::Permits { .. }) {
            drop(node_ref.client.set_data(&node_ref.path, &record(&self.spec, true), None));
        }
    }

    fn grant(&mut self, node_ref: &NodeRef) -> Attempt {
        (self.watching, self.granted) = (None, true);
        if let Some(claim_node) = &mut self.claim_node {
            claim_node.stop_waiting();
        }
        let token = FencingToken::new(node_ref.created.cast_unsigned());
        Attempt::Granted(Grant::new(token, node_ref.session.lease(self.spec.clock)))
    }

    /// Leaves the queue. The answer says `queued` if the node may still be there.
    async fn leave(&mut self) -> Result<Attempt> {
        let left = match &mut self.claim_node {
            Some(claim_node) => claim_node.give_up(self.spec.op_timeout).await.is_err(),
            None => false,
        };
        if !left {
            self.start_over();
        }
        Ok(Attempt::Busy { queued: left, retry_after: None })
    }

    /// Checks whether a new claim would have to wait. This takes one read and no write.
    async fn is_taken(&mut self) -> Result<bool> {
        let session = self.pool.session().await?;
        session.ready(self.spec.op_timeout).await?;
        let client = session.client()?;
        let folder = self.folder();
        let failed = |error| session.failed(error, Phase::Read, "looking into", &folder);
        // The count of the nodes is not enough: a node of another program is an error, not a
        // holder.
        let children = match client.list_children(&folder).await {
            Ok(children) => children,
            Err(ZkError::NoNode) => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        match self.queue(children)?.turn_of_next(self.role) {
            Turn::Granted => Ok(false),
            Turn::After(_) | Turn::Missing => Ok(true),
            Turn::Disagrees { limit } => Err(self.disagrees(limit)),
        }
    }

    fn queue(&self, children: Vec<String>) -> Result<Queue> {
        Queue::new(self.spec.name.kind(), children)
            .map_err(|name| error::stranger(&self.folder(), &name))
    }

    fn loss(&self) -> LossReason {
        let over =
            self.claim_node.as_ref().is_some_and(|claim_node| claim_node.session().is_over());
        if over { LossReason::SessionLost } else { LossReason::Evicted }
    }

    fn disagrees(&self, theirs: NonZeroU32) -> Error {
        let Role::Permits { limit, .. } = self.role else {
            return error::stranger(&self.folder(), "permits");
        };
        let reason = format!(
            "other clients use the semaphore {} with a limit of {theirs} permits, and this claim \
             uses {limit}; use the same limit everywhere",
            self.spec.name
        );
        error::ours(ErrorKind::InvalidOption, reason)
    }
}

#[async_trait]
impl Claim for QueueClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let answer = self.enter_and_look(wait).await;
        ClaimNode::end_attempt(&mut self.claim_node, answer, self.spec.op_timeout).await
    }

    fn known_outcome(&mut self) -> Option<Result<RenewalOutcome>> {
        Some(match self.claim_node.as_ref().filter(|claim_node| !claim_node.is_gone()) {
            Some(claim_node) => claim_node.session().confirm(self.spec.clock),
            None => Ok(RenewalOutcome::Lost(self.loss())),
        })
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<RenewalOutcome> {
        let node_ref = self
            .claim_node
            .as_ref()
            .filter(|claim_node| !claim_node.is_gone())
            .and_then(NodeRef::of);
        let Some(node_ref) = node_ref else { return Ok(RenewalOutcome::Lost(self.loss())) };
        node_ref
            .confirm(self.spec.clock)
            .await
            .map(|alive| alive.unwrap_or_else(|| RenewalOutcome::Lost(self.loss())))
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let node_ref = self
            .claim_node
            .as_ref()
            .filter(|claim_node| self.granted && !claim_node.is_gone())
            .and_then(NodeRef::of);
        let Some(NodeRef { session, path, .. }) = node_ref else { return Ok(Noted::NotHeld) };
        // No other node ever has this name, and our node stays granted for as long as it exists.
        let proofs = [(path.to_string(), -1)];
        match note::write(&session, &self.pool, &self.spec.name, &proofs, note).await? {
            Outcome::Noted(noted) => Ok(noted),
            Outcome::OtherVersion => Ok(Noted::NotHeld),
        }
    }

    async fn release(&mut self) -> Result<Released> {
        let held = self.granted;
        let Some(claim_node) = &mut self.claim_node else { return Ok(Released::NotHeld) };
        let released = claim_node.give_up(self.spec.op_timeout).await?;
        self.start_over();
        Ok(if held { released } else { Released::NotHeld })
    }

    async fn changed(&mut self) {
        match &mut self.watching {
            Some(watching) => watching.changed().await,
            None => std::future::pending().await,
        }
    }
}

fn record(spec: &ClaimSpec, granted: bool) -> Vec<u8> {
    let mut record = Record::new(spec.owner, spec.label.as_deref());
    record.granted = granted;
    record.to_bytes()
}

/// A new place in a queue: a node, and the queue after it was made.
struct Place {
    folder: Arc<str>,
    prefix: Arc<str>,
    data: Vec<u8>,
    acls: Acls<'static>,
}

impl Place {
    /// Makes the node together with others, if the session is busy. Returns `None` if nothing was
    /// done. Without its folder, a node would make the requests for the others fail.
    async fn make_with_others(
        &self,
        session: &Session,
        client: &Arc<Client>,
        known: &KnownFolders,
        op_timeout: Duration,
    ) -> Option<Result<Created, ZkError>> {
        if !known.contains(&self.folder) {
            return None;
        }
        let request = Request::Create {
            folder: Arc::clone(&self.folder),
            prefix: Arc::clone(&self.prefix),
            data: self.data.clone(),
            acls: self.acls,
        };
        match session.batches().send(client, request, op_timeout).await {
            Ok(Done::Created(created)) => Some(Ok(created)),
            Ok(Done::Deleted | Done::LeftOver) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl InFolder for Place {
    type Answer = Created;

    /// Sends both requests without a wait between them.
    async fn send(&self, client: &Client) -> Result<Created, ZkError> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls);
        let created = client.create(&self.prefix, &self.data, &options);
        let listed = client.list_children(&self.folder);
        let (stat, sequence) = created.await?;
        let path = format!("{}{sequence}", self.prefix);
        Ok(Created { path, zxid: stat.czxid, queue: listed.await })
    }
}
