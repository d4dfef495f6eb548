//! A mutex without a queue: one node at a fixed path, for which all race.
//!
//! Whoever makes the node writes its record to the folder in the same transaction. The folder's version then proves
//! who made the node that stands there, so that a release that comes late never takes away another one's.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join;
use lockkit_core::{
    FencingToken, Result,
    spi::{Attempt, Claim, ClaimSpec, Grant, LossReason, Pulse, Released, Wait},
};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult, Stat};

use crate::{
    error::{Fate, Phase, fate},
    folder,
    queue::Obstacle,
    record::Record,
    session::{Debt, Place, Pool, Session},
    stand::Stand,
    watching::{Armed, Watching},
};

/// The name of the node in its folder.
pub(crate) const NODE: &str = "held";

/// A claim that races.
#[derive(Debug)]
pub(crate) struct UnfairClaim {
    pool: Arc<Pool>,
    spec: ClaimSpec,
    folder: String,
    path: String,
    /// From the first try on: it may have been applied.
    place: Option<Place>,
    granted: bool,
    /// A watch, and the session that it is on.
    watching: Option<Watching>,
}

impl UnfairClaim {
    pub(crate) fn new(pool: Arc<Pool>, folder: String, spec: ClaimSpec) -> Self {
        let path = format!("{folder}/{NODE}");
        Self { pool, spec, folder, path, place: None, granted: false, watching: None }
    }

    /// An earlier try that was applied, if there is one.
    async fn earlier(&mut self) -> Result<Option<Attempt>> {
        let Some(place) = &mut self.place else { return Ok(None) };
        if !place.is_gone() {
            let known = place.path().is_some() || place.adopt(self.spec.hint.clone()).await?;
            if let Some(stand) = known.then(|| Stand::of(place)).flatten()
                && stand.is_there().await?
            {
                stand.session.ready().await?;
                return Ok(Some(self.grant(&stand)));
            }
        }
        place.settled();
        (self.place, self.granted) = (None, false);
        Ok(None)
    }

    /// One transaction; `None` if somebody has it.
    async fn race(&mut self, session: &Arc<Session>) -> Result<Option<Attempt>> {
        let (client, acls) = (session.client()?, self.pool.config().acl.acls());
        let record = unique_record(&self.spec);
        let debt = Debt::Single {
            folder: self.folder.clone(),
            path: self.path.clone(),
            record: record.clone(),
            version: None,
        };
        let place = self.place.insert(session.place());
        place.owe(debt);
        let request =
            Request { client: &client, folder: &self.folder, path: &self.path, record: &record, acls };
        let folders = self.pool.folders();
        let known = folders.contains(&self.folder);
        let mut answer = if known { request.send().await } else { request.send_with_folder().await };
        if known && answer == Err(ZkError::NoNode) {
            folders.remove(&self.folder);
            answer = request.send_with_folder().await;
        }
        if answer == Err(ZkError::NoNode) {
            let kind = self.pool.config().layout().kind(self.spec.name.kind());
            folder::make(&client, &kind, self.pool.config().acl).await?;
            answer = request.send_with_folder().await;
        }
        match answer {
            Ok(stat) => {
                folders.insert(&self.folder);
                place.granted_by(stat.version);
                place.created(self.path.clone(), stat.mzxid, self.spec.hint.clone());
            }
            Err(error) => {
                if fate(&error) != Fate::Unknown {
                    place.settled();
                    self.place = None;
                }
                if error == ZkError::NodeExists {
                    return Ok(None);
                }
                return Err(session.failed(error, Phase::Write, "creating", &self.path));
            }
        }
        Ok(Stand::of(place).map(|stand| self.grant(&stand)))
    }

    fn grant(&mut self, stand: &Stand) -> Attempt {
        (self.watching, self.granted) = (None, true);
        let token = FencingToken::new(stand.created.cast_unsigned());
        Attempt::Granted(Grant { token, lease: stand.session.lease(self.spec.clock) })
    }

    /// Sets a watch on the holder's node; `false` if there is none any more.
    async fn watch(&mut self, session: &Arc<Session>) -> Result<bool> {
        let obstacle = Obstacle::Next(NODE.to_owned());
        if self.watching.as_ref().is_some_and(|watching| watching.is_for(&obstacle)) {
            return self.is_taken(session).await;
        }
        let stand = Stand {
            session: Arc::clone(session),
            client: session.client()?,
            path: self.path.clone(),
            created: 0,
        };
        match Watching::arm(&stand, &self.folder, obstacle).await? {
            Armed::Set(watching) | Armed::Behind(watching, _) => {
                self.watching = Some(watching);
                Ok(true)
            }
            Armed::Gone => Ok(false),
        }
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
        const TAKEN: Attempt = Attempt::Busy { queued: false, retry_after: None };
        if let Some(granted) = self.earlier().await? {
            return Ok(granted);
        }
        let session = self.pool.session().await?;
        self.pool.config().check_ttl(self.spec.ttl, session.timeout())?;
        session.ready().await?;
        if wait == Wait::No && self.is_taken(&session).await? {
            return Ok(TAKEN);
        }
        for _ in 0..2 {
            if let Some(granted) = self.race(&session).await? {
                return Ok(granted);
            }
            if wait == Wait::No || self.watch(&session).await? {
                return Ok(TAKEN);
            }
        }
        // Others are faster, again and again.
        Ok(Attempt::Busy { queued: false, retry_after: Some(std::time::Duration::ZERO) })
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        let over = self.place.as_ref().is_some_and(|place| place.session().is_over());
        let lost = Pulse::Lost(if over { LossReason::SessionLost } else { LossReason::Evicted });
        let stand = self.place.as_ref().filter(|place| !place.is_gone()).and_then(Stand::of);
        let Some(stand) = stand else { return Ok(lost) };
        stand.pulse(self.spec.clock).await.map(|alive| alive.unwrap_or(lost))
    }

    async fn release(&mut self) -> Result<Released> {
        self.watching = None;
        let Some(place) = &mut self.place else { return Ok(Released::NotHeld) };
        let released = place.give_up().await?;
        let held = std::mem::take(&mut self.granted);
        self.place = None;
        Ok(if held { released } else { Released::NotHeld })
    }

    async fn changed(&mut self) {
        match &mut self.watching {
            Some(watching) => watching.changed().await,
            None => std::future::pending().await,
        }
    }
}

/// A record that no other try writes.
fn unique_record(spec: &ClaimSpec) -> Vec<u8> {
    let mut record = Record::new(spec.owner, spec.label.as_deref()).to_bytes();
    record.extend_from_slice(format!("\n{:032x}", rand::random::<u128>()).as_bytes());
    record
}

/// The requests of one try.
struct Request<'a> {
    client: &'a Client,
    folder: &'a str,
    path: &'a str,
    record: &'a [u8],
    acls: Acls<'static>,
}

impl Request<'_> {
    /// Makes the node, and writes the record to its folder and to itself. Answers what became of the folder: a node
    /// made in a transaction has no valid zxid in 3.8.0 (ZOOKEEPER-4026), a written one has the same.
    async fn send(&self) -> Result<Stat, ZkError> {
        let mut writer = self.client.new_multi_writer();
        writer.add_set_data(self.folder, self.record, None)?;
        writer.add_create(self.path, self.record, &CreateMode::Ephemeral.with_acls(self.acls))?;
        match writer.commit().await {
            Ok(results) => match results.first() {
                Some(MultiWriteResult::SetData { stat }) => Ok(*stat),
                _ => {
                    Err(ZkError::UnexpectedError("a transaction was answered with other results".to_owned()))
                }
            },
            Err(
                MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source },
            ) => Err(source),
        }
    }

    /// As [`send`](Self::send), for a brand-new or long idle name.
    async fn send_with_folder(&self) -> Result<Stat, ZkError> {
        let container = CreateMode::Container.with_acls(self.acls);
        let made = self.client.create(self.folder, b"", &container);
        // Polled in this order, so that both leave in one packet.
        let (made, sent) = join(made, self.send()).await;
        match (made, sent) {
            (Ok(_) | Err(ZkError::NodeExists | ZkError::NoNode), sent) => sent,
            (Err(error), Err(ZkError::NoNode)) => Err(error),
            (Err(_), sent) => sent,
        }
    }
}
