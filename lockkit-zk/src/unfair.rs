//! A mutex without a queue: all claims race for one node at a fixed path.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::join;
use lockkit_core::{
    ErrorKind, FencingToken, Result,
    spi::{
        Attempt, Claim, ClaimSpec, Grant, LossReason, Note, Noted, Released, RenewalOutcome, Wait,
    },
};
use zookeeper_client::{Acls, Client, Error as ZkError, Stat};

use crate::{
    error::{self, Fate, Phase, fate},
    folder::{self, InFolder},
    node_ref::NodeRef,
    note::{self, Outcome},
    queue::Obstacle,
    record::Record,
    session::{ClaimNode, CleanupTask, HELD, PathBytes, Pool, Reservation, Session, UnfairNode},
    watching::{Armed, Watching},
};

/// How often one attempt races when the winner is gone before it can be watched.
const MOST_RACES: u32 = 2;
/// How often the folder is read again after another client wrote to it meanwhile.
const MOST_LOOKS: u32 = 3;

/// A claim that races.
#[derive(Debug)]
pub(crate) struct UnfairClaim {
    pool: Arc<Pool>,
    spec: ClaimSpec,
    folder: String,
    path: String,
    /// Set from the first race on, because the request may have been applied.
    claim_node: Option<ClaimNode>,
    granted: bool,
    /// A watch on the holder's node, with its reservation.
    watching: Option<(Watching, Reservation)>,
}

impl UnfairClaim {
    pub(crate) fn new(pool: Arc<Pool>, folder: String, spec: ClaimSpec) -> Self {
        let path = format!("{folder}/{HELD}");
        Self { pool, spec, folder, path, claim_node: None, granted: false, watching: None }
    }

    /// Races for the lock, and watches the holder if another claim has it.
    async fn race_or_watch(&mut self, wait: Wait) -> Result<Attempt> {
        const TAKEN: Attempt = Attempt::Busy { queued: false, retry_after: None };
        if let Some(granted) = self.earlier().await? {
            return Ok(granted);
        }
        for _ in 0..MOST_RACES {
            if wait == Wait::No {
                let session = self.pool.session().await?;
                session.ready(self.spec.op_timeout).await?;
                if self.is_taken(&session).await? {
                    return Ok(TAKEN);
                }
            }
            let reservation = self.pool.reservation(self.node_bytes()).await?;
            let session = reservation.session();
            self.pool.config().check_ttl(self.spec.ttl, session.timeout())?;
            session.ready(self.spec.op_timeout).await?;
            if let Some(granted) = self.race(reservation).await? {
                return Ok(granted);
            }
            if wait == Wait::No || self.watch().await? {
                return Ok(TAKEN);
            }
        }
        // Other claims win each race.
        Ok(Attempt::Busy { queued: false, retry_after: Some(Duration::ZERO) })
    }

    /// Returns the grant of an earlier race that was applied, if there is one.
    async fn earlier(&mut self) -> Result<Option<Attempt>> {
        let Some(claim_node) = &mut self.claim_node else { return Ok(None) };
        if !claim_node.is_gone() {
            let known =
                claim_node.path().is_some() || claim_node.adopt(self.spec.wake.clone()).await?;
            if let Some(node_ref) = known.then(|| NodeRef::of(claim_node)).flatten()
                && node_ref.is_there().await?
            {
                node_ref.session.ready(self.spec.op_timeout).await?;
                let children = node_ref.list().await?.unwrap_or_default();
                return self.grant(&node_ref, &children).map(Some);
            }
        }
        // The session removes any node that an operator left.
        (self.claim_node, self.granted) = (None, false);
        Ok(None)
    }

    /// Races in one transaction. Returns `None` if another claim has the lock.
    async fn race(&mut self, reservation: Reservation) -> Result<Option<Attempt>> {
        let session = Arc::clone(reservation.session());
        let config = self.pool.config();
        let unfair_node = UnfairNode::new(&self.folder);
        let claim_node = self.claim_node.insert(ClaimNode::new(reservation));
        claim_node.add_cleanup(CleanupTask::UnfairNode(Box::new(unfair_node.clone())));
        let client = session.client().inspect_err(|_| claim_node.settled())?;
        let record = Record::new(self.spec.owner, self.spec.label.as_deref()).to_bytes();
        let request =
            Request { unfair_node, folder: &self.folder, record, acls: config.acl.acls() };
        let into = (self.spec.name.kind(), self.folder.as_str());
        let children = match folder::send_into(&request, &client, config, self.pool.folders(), into)
            .await
            .inspect_err(|_| claim_node.settled())?
        {
            Ok((folder, children)) => {
                claim_node.granted_by(folder.version);
                claim_node.created(self.path.as_str().into(), folder.mzxid, self.spec.wake.clone());
                children
                    .map_err(|error| session.failed(error, Phase::Write, "listing", &self.folder))?
            }
            Err(error) => {
                if fate(&error) != Fate::Unknown {
                    claim_node.settled();
                    self.claim_node = None;
                }
                if error == ZkError::NodeExists {
                    self.pool.folders().insert(&self.folder);
                    return Ok(None);
                }
                return Err(session.failed(error, Phase::Write, "creating", &self.path));
            }
        };
        match NodeRef::of(claim_node) {
            Some(node_ref) => self.grant(&node_ref, &children).map(Some),
            None => Ok(None),
        }
    }

    /// Grants the lock, unless the folder contains a claim that queues. A queueing claim that comes
    /// later sees our node.
    fn grant(&mut self, node_ref: &NodeRef, children: &[String]) -> Result<Attempt> {
        if let Some(stranger) = children.iter().find(|name| !UnfairNode::is_known(name)) {
            return Err(error::stranger(&self.folder, stranger));
        }
        (self.watching, self.granted) = (None, true);
        let token = FencingToken::new(node_ref.created.cast_unsigned());
        Ok(Attempt::Granted(Grant::new(token, node_ref.session.lease(self.spec.clock))))
    }

    /// The paths of both nodes. The pool counts the chroot of one of them.
    fn node_bytes(&self) -> PathBytes {
        let chroot = self.pool.config().chroot().map_or(0, str::len);
        PathBytes { watched: 0, in_nodes: UnfairNode::bytes(&self.folder) + chroot }
    }

    /// Sets a watch on the holder's node. Returns `false` if there is no such node any more.
    async fn watch(&mut self) -> Result<bool> {
        let obstacle = Obstacle::Next(HELD.to_owned());
        if let Some((watching, reservation)) = &mut self.watching
            && watching.is_for(&obstacle)
        {
            let session = Arc::clone(reservation.session());
            return self.is_taken(&session).await;
        }
        let bytes = PathBytes { watched: self.path.len(), in_nodes: 0 };
        let reservation = self.pool.reservation(bytes).await?;
        let session = reservation.session();
        match Watching::arm(session, &*session.client()?, &self.folder, obstacle).await? {
            Armed::Set(watching) | Armed::Behind(watching, _) => {
                self.watching = Some((watching, reservation));
                Ok(true)
            }
            Armed::Gone => Ok(false),
        }
    }

    fn loss(&self) -> LossReason {
        let over =
            self.claim_node.as_ref().is_some_and(|claim_node| claim_node.session().is_over());
        if over { LossReason::SessionLost } else { LossReason::Evicted }
    }

    async fn is_taken(&mut self, session: &Session) -> Result<bool> {
        match session.client()?.check_stat(&self.path).await {
            Ok(stat) => Ok(stat.is_some()),
            Err(error) => Err(session.failed(error, Phase::Read, "looking for", &self.path)),
        }
    }
}

#[async_trait]
impl Claim for UnfairClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let answer = self.race_or_watch(wait).await;
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
        let claim_node =
            self.claim_node.as_mut().filter(|claim_node| self.granted && !claim_node.is_gone());
        let Some(claim_node) = claim_node else { return Ok(Noted::NotHeld) };
        for _ in 0..MOST_LOOKS {
            let Some(proofs) = claim_node.proofs().await? else { return Ok(Noted::NotHeld) };
            let session = Arc::clone(claim_node.session());
            match note::write(&session, &self.pool, &self.spec.name, &proofs, note).await? {
                Outcome::Noted(noted) => return Ok(noted),
                // Another grant changed the version, or a foreign client did.
                Outcome::OtherVersion => claim_node.forget_version(),
            }
        }
        let reason = format!(
            "other clients change {:?} all the time, so lockkit could not write the note; try again",
            self.folder
        );
        Err(error::ours(ErrorKind::Unavailable, reason))
    }

    async fn release(&mut self) -> Result<Released> {
        self.watching = None;
        let Some(claim_node) = &mut self.claim_node else { return Ok(Released::NotHeld) };
        let released = claim_node.give_up(self.spec.op_timeout).await?;
        let held = std::mem::take(&mut self.granted);
        self.claim_node = None;
        Ok(if held { released } else { Released::NotHeld })
    }

    async fn changed(&mut self) {
        match &mut self.watching {
            Some((watching, _)) => watching.changed().await,
            None => std::future::pending().await,
        }
    }
}

/// Makes the node and reads the folder after it. Sends both requests without a wait between them.
struct Request<'a> {
    unfair_node: UnfairNode,
    folder: &'a str,
    record: Vec<u8>,
    acls: Acls<'static>,
}

impl InFolder for Request<'_> {
    /// The state of the folder after the write, and its children.
    type Answer = (Stat, Result<Vec<String>, ZkError>);

    async fn send(&self, client: &Client) -> Result<Self::Answer, ZkError> {
        // Both requests are polled in this order, and queued before either is awaited.
        let made = self.unfair_node.make(client, &self.record, self.acls);
        let (made, listed) = join(made, async { client.list_children(self.folder).await }).await;
        Ok((made?, listed))
    }
}
