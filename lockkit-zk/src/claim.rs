//! One owner in the queue of a lock, and holding it: exclusive, shared, or some permits.

use std::{num::NonZeroU32, sync::Arc};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, Result,
    spi::{Attempt, Claim, ClaimSpec, Grant, LossReason, Pulse, Released, Wait},
};
use zookeeper_client::{Acls, Client, CreateMode, CreateSequence, Error as ZkError, Stat};

use crate::{
    error::{self, Fate, Phase, fate},
    folder,
    queue::{MOST_WATCHES, Obstacle, Queue, Role, Turn},
    record::Record,
    session::{Debt, Place, Pool},
    stand::Stand,
    watching::{Armed, News, Watching},
};

/// How often a node that somebody deletes under our hands is made anew in one attempt.
const MOST_STARTS: u32 = 3;
const SEQUENCE_DIGITS: usize = 10;
const QUEUED: Attempt = Attempt::Busy { queued: true, retry_after: None };

/// A claim that queues.
#[derive(Debug)]
pub(crate) struct QueueClaim {
    pool: Arc<Pool>,
    spec: ClaimSpec,
    role: Role,
    folder: String,
    place: Option<Place>,
    watching: Option<Watching>,
    /// Others may have seen us wait.
    waited: bool,
    /// It was our turn; that stays so for as long as the node stands.
    granted: bool,
}

impl QueueClaim {
    pub(crate) fn new(pool: Arc<Pool>, folder: String, role: Role, spec: ClaimSpec) -> Self {
        Self { pool, spec, role, folder, place: None, watching: None, waited: false, granted: false }
    }

    /// Stands in the queue, or finds that an earlier attempt of ours does. Answers what is in the queue, if that was
    /// read on the way.
    async fn enter(&mut self) -> Result<Option<Vec<String>>> {
        if self.place.as_ref().is_some_and(Place::is_gone) {
            self.start_over();
        }
        let Some(place) = &mut self.place else { return self.create().await };
        if place.path().is_some() || place.adopt(self.spec.hint.clone()).await? {
            return Ok(None);
        }
        place.settled();
        self.start_over();
        self.create().await
    }

    fn start_over(&mut self) {
        self.watching = None;
        (self.waited, self.granted) = (false, false);
        if let Some(mut place) = self.place.take()
            && place.is_gone()
        {
            place.settled();
        }
    }

    /// Makes the node and reads the queue, in one round trip.
    async fn create(&mut self) -> Result<Option<Vec<String>>> {
        let stem = self.role.stem(&format!("{:032x}", rand::random::<u128>()));
        let prefix = format!("{}/{stem}", self.folder);
        let place = self.pool.place(self.watched_bytes(prefix.len())).await?;
        let session = Arc::clone(place.session());
        self.pool.config().check_ttl(self.spec.ttl, session.timeout())?;
        session.ready().await?;
        let client = session.client()?;
        let place = self.place.insert(place);
        place.owe(Debt::Place { folder: self.folder.clone(), stem, path: None });
        let request = Request {
            client: &client,
            folder: &self.folder,
            prefix: &prefix,
            data: Record::new(self.spec.owner, self.spec.label.as_deref()).to_bytes(),
            acls: self.pool.config().acl.acls(),
        };
        let folders = self.pool.folders();
        let known = folders.contains(&self.folder);
        let mut answer = if known { request.send().await } else { request.send_with_folder().await };
        if known && matches!(answer.0, Err(ZkError::NoNode)) {
            folders.remove(&self.folder);
            answer = request.send_with_folder().await;
        }
        if matches!(answer.0, Err(ZkError::NoNode)) {
            let kind = self.pool.config().layout().kind(self.spec.name.kind());
            folder::make(&client, &kind, self.pool.config().acl).await?;
            answer = request.send_with_folder().await;
        }
        let (created, children) = answer;
        match created {
            Ok((stat, sequence)) => {
                folders.insert(&self.folder);
                place.created(format!("{prefix}{sequence}"), stat.czxid, self.spec.hint.clone());
            }
            Err(error) => {
                if fate(&error) != Fate::Unknown {
                    place.settled();
                }
                return Err(session.failed(error, Phase::Write, "creating", &prefix));
            }
        }
        match children {
            Ok(children) => Ok(Some(children)),
            Err(error) => Err(session.failed(error, Phase::Write, "listing", &self.folder)),
        }
    }

    /// Looks whether it is our turn, and sets a watch if not. `None`: somebody has deleted our node.
    async fn look(&mut self, mut children: Option<Vec<String>>, wait: Wait) -> Result<Option<Attempt>> {
        let Some(stand) = self.place.as_ref().and_then(Stand::of) else { return Ok(None) };
        stand.session.ready().await?;
        if children.is_none() && !self.granted {
            match self.news(&stand).await? {
                News::Nothing => return Ok(Some(QUEUED)),
                News::Gone if self.watching.as_ref().is_some_and(Watching::is_for_last) => {
                    self.granted = true
                }
                News::Gone | News::Changed => {}
            }
        }
        if children.is_none() && self.granted {
            return self.confirm(&stand).await;
        }
        loop {
            let children_now = match children.take() {
                Some(children) => children,
                None => match stand.list(&self.folder).await? {
                    Some(children) => children,
                    None => return Ok(None),
                },
            };
            let obstacle = match self.queue(children_now)?.turn(stand.node()) {
                Turn::Missing => return Ok(None),
                Turn::Granted => return Ok(Some(self.grant(&stand))),
                Turn::Disagrees { limit } => return Err(self.disagrees(limit)),
                Turn::After(_) if wait == Wait::No => return self.leave().await.map(Some),
                Turn::After(obstacle) => obstacle,
            };
            if self.watching.as_ref().is_some_and(|watching| watching.is_for(&obstacle)) {
                return Ok(Some(QUEUED));
            }
            let last = matches!(obstacle, Obstacle::Last(_));
            match Watching::arm(&stand, &self.folder, obstacle).await? {
                Armed::Set(watching) => {
                    (self.watching, self.waited) = (Some(watching), true);
                    return Ok(Some(QUEUED));
                }
                Armed::Behind(watching, children_now) => {
                    (self.watching, self.waited) = (Some(watching), true);
                    children = Some(children_now);
                }
                Armed::Gone if last => return self.confirm(&stand).await,
                Armed::Gone => {}
            }
        }
    }

    /// What the watch says, or a look of our own if it says nothing: a watch may be lost.
    async fn news(&mut self, stand: &Stand) -> Result<News> {
        let Some(watching) = &mut self.watching else { return Ok(News::Changed) };
        match watching.news() {
            News::Nothing => watching.probe(stand).await,
            news => Ok(news),
        }
    }

    /// It is our turn if our own node still stands (C8): the watch alone does not tell.
    async fn confirm(&mut self, stand: &Stand) -> Result<Option<Attempt>> {
        Ok(stand.is_there().await?.then(|| self.grant(stand)))
    }

    fn grant(&mut self, stand: &Stand) -> Attempt {
        if self.waited && matches!(self.role, Role::Permits { .. }) {
            // Who stands behind us took us for a waiter, and watches us alone. If this is lost, its poll finds out.
            drop(stand.client.set_data(&stand.path, &self.record(true), None));
        }
        (self.watching, self.waited, self.granted) = (None, false, true);
        if let Some(place) = &mut self.place {
            place.stop_waiting();
        }
        let token = FencingToken::new(stand.created.cast_unsigned());
        Attempt::Granted(Grant { token, lease: stand.session.lease(self.spec.clock) })
    }

    /// Leaves nothing behind, or says that it did.
    async fn leave(&mut self) -> Result<Attempt> {
        let left = match &mut self.place {
            Some(place) => place.give_up().await.is_err(),
            None => false,
        };
        if !left {
            self.start_over();
        }
        Ok(Attempt::Busy { queued: left, retry_after: None })
    }

    /// Whether a try would find itself behind others: one read, and no write.
    async fn is_taken(&mut self) -> Result<bool> {
        let session = self.pool.session().await?;
        session.ready().await?;
        let client = session.client()?;
        let failed = |error| session.failed(error, Phase::Read, "looking into", &self.folder);
        if matches!(self.role, Role::Lock | Role::Write) {
            let folder = client.check_stat(&self.folder).await.map_err(failed)?;
            return Ok(folder.is_some_and(|folder| folder.num_children > 0));
        }
        let children = match client.list_children(&self.folder).await {
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
        Queue::new(self.spec.name.kind(), children).map_err(|name| error::stranger(&self.folder, &name))
    }

    fn loss(&self) -> LossReason {
        let over = self.place.as_ref().is_some_and(|place| place.session().is_over());
        if over { LossReason::SessionLost } else { LossReason::Evicted }
    }

    fn record(&self, granted: bool) -> Vec<u8> {
        let mut record = Record::new(self.spec.owner, self.spec.label.as_deref());
        record.granted = granted;
        record.to_bytes()
    }

    /// What a reconnecting client would name to the server.
    fn watched_bytes(&self, prefix: usize) -> usize {
        let most = if matches!(self.role, Role::Permits { .. }) { MOST_WATCHES + 1 } else { 1 };
        (prefix + SEQUENCE_DIGITS) * most
    }

    fn disagrees(&self, theirs: NonZeroU32) -> Error {
        let Role::Permits { limit, .. } = self.role else { return error::stranger(&self.folder, "permits") };
        let reason = format!(
            "the semaphore {} is in use with {theirs} permits and was asked for with {limit}; all its users must name \
             the same number",
            self.spec.name
        );
        error::ours(ErrorKind::InvalidOption, reason)
    }
}

#[async_trait]
impl Claim for QueueClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        if wait == Wait::No && self.place.is_none() && self.is_taken().await? {
            return Ok(Attempt::Busy { queued: false, retry_after: None });
        }
        for _ in 0..MOST_STARTS {
            let children = self.enter().await?;
            if let Some(attempt) = self.look(children, wait).await? {
                return Ok(attempt);
            }
            if let Some(place) = &self.place {
                place.mark_gone();
            }
        }
        let reason = format!("our node in {:?} is deleted as soon as it is made", self.folder);
        Err(error::ours(ErrorKind::Unavailable, reason))
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        let stand = self.place.as_ref().filter(|place| !place.is_gone()).and_then(Stand::of);
        let Some(stand) = stand else { return Ok(Pulse::Lost(self.loss())) };
        stand.pulse(self.spec.clock).await.map(|alive| alive.unwrap_or_else(|| Pulse::Lost(self.loss())))
    }

    async fn release(&mut self) -> Result<Released> {
        let held = self.granted;
        let Some(place) = &mut self.place else { return Ok(Released::NotHeld) };
        let released = place.give_up().await?;
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

/// The requests that make a node, each flush in one packet.
struct Request<'a> {
    client: &'a Client,
    folder: &'a str,
    prefix: &'a str,
    data: Vec<u8>,
    acls: Acls<'static>,
}

type Created = (Result<(Stat, CreateSequence), ZkError>, Result<Vec<String>, ZkError>);

impl Request<'_> {
    async fn send(&self) -> Created {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls);
        let created = self.client.create(self.prefix, &self.data, &options);
        let listed = self.client.list_children(self.folder);
        (created.await, listed.await)
    }

    /// For a brand-new name, or one that was idle for so long that the servers deleted its folder. Not a
    /// transaction: in one, 3.8.0 does not tell the zxid of what it has made (ZOOKEEPER-4026).
    async fn send_with_folder(&self) -> Created {
        let (container, ephemeral) = (CreateMode::Container, CreateMode::EphemeralSequential);
        let folder = self.client.create(self.folder, b"", &container.with_acls(self.acls));
        let created = self.client.create(self.prefix, &self.data, &ephemeral.with_acls(self.acls));
        let listed = self.client.list_children(self.folder);
        match folder.await {
            Ok(_) | Err(ZkError::NodeExists | ZkError::NoNode) => (created.await, listed.await),
            Err(error) => match created.await {
                Err(ZkError::NoNode) => (Err(error), listed.await),
                created => (created, listed.await),
            },
        }
    }
}
