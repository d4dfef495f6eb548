//! A mutex without a queue: one node at a fixed path, for which all race.
//!
//! Beside it, and in the same transaction, stands a node whose name nobody else ever has. A release deletes both or
//! neither, so that one that comes late never takes away another one's.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, Result,
    spi::{Attempt, Claim, ClaimSpec, Grant, LossReason, Pulse, Released, Wait},
};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use crate::{
    error::{Fate, Phase, fate},
    folder::{self, InFolder},
    queue::Obstacle,
    record::Record,
    session::{Debt, HELD, Place, Pool, Room, Session},
    stand::Stand,
    watching::{Armed, Watching},
};

/// How often a race is run in one attempt when the winner is gone before it can be watched.
const MOST_RACES: u32 = 2;

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
    /// On the holder's node, with the room for it.
    watching: Option<(Watching, Room)>,
}

impl UnfairClaim {
    pub(crate) fn new(pool: Arc<Pool>, folder: String, spec: ClaimSpec) -> Self {
        let path = format!("{folder}/{HELD}");
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
    async fn race(&mut self, room: Room) -> Result<Option<Attempt>> {
        let (session, config) = (Arc::clone(room.session()), self.pool.config());
        let client = session.client()?;
        let id = format!("{:032x}", rand::random::<u128>());
        let place = self.place.insert(Place::new(room));
        place.owe(Debt::Single { folder: self.folder.clone(), id: id.clone() });
        let mut data = Record::new(self.spec.owner, self.spec.label.as_deref()).to_bytes();
        data.extend_from_slice(format!("\n{id}").as_bytes());
        let request =
            Request { path: &self.path, proof: format!("{}-{id}", self.path), data, acls: config.acl.acls() };
        let into = (self.spec.name.kind(), self.folder.as_str());
        match folder::send_into(&request, &client, config, self.pool.folders(), into).await? {
            Ok(created) => place.created(self.path.clone(), created, self.spec.hint.clone()),
            Err(error) => {
                if fate(&error) != Fate::Unknown {
                    place.settled();
                    self.place = None;
                }
                if error == ZkError::NodeExists {
                    self.pool.folders().insert(&self.folder);
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
    async fn watch(&mut self) -> Result<bool> {
        let obstacle = Obstacle::Next(HELD.to_owned());
        if let Some((watching, room)) = &mut self.watching
            && watching.is_for(&obstacle)
        {
            let session = Arc::clone(room.session());
            return self.is_taken(&session).await;
        }
        let room = self.pool.room(self.path.len()).await?;
        let session = room.session();
        match Watching::arm(session, &*session.client()?, &self.folder, obstacle).await? {
            Armed::Set(watching) | Armed::Behind(watching, _) => {
                self.watching = Some((watching, room));
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
        for _ in 0..MOST_RACES {
            let room = self.pool.room(0).await?;
            let session = Arc::clone(room.session());
            self.pool.config().check_ttl(self.spec.ttl, session.timeout())?;
            session.ready().await?;
            if wait == Wait::No && self.is_taken(&session).await? {
                return Ok(TAKEN);
            }
            if let Some(granted) = self.race(room).await? {
                return Ok(granted);
            }
            if wait == Wait::No || self.watch().await? {
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
            Some((watching, _)) => watching.changed().await,
            None => std::future::pending().await,
        }
    }
}

/// Makes both nodes. The last step is for its answer: a node made in a transaction has no valid zxid in the 3.8 series
/// (ZOOKEEPER-4026), a written one has.
struct Request<'a> {
    path: &'a str,
    proof: String,
    data: Vec<u8>,
    acls: Acls<'static>,
}

impl InFolder for Request<'_> {
    /// The zxid that made them.
    type Answer = i64;

    async fn send(&self, client: &Client) -> Result<i64, ZkError> {
        let ephemeral = CreateMode::Ephemeral.with_acls(self.acls);
        let mut writer = client.new_multi_writer();
        writer.add_create(self.path, &self.data, &ephemeral)?;
        writer.add_create(&self.proof, b"", &ephemeral)?;
        writer.add_set_data(self.path, &self.data, None)?;
        match writer.commit().await {
            Ok(results) => match results.last() {
                Some(MultiWriteResult::SetData { stat }) => Ok(stat.czxid),
                _ => {
                    Err(ZkError::UnexpectedError("a transaction was answered with other results".to_owned()))
                }
            },
            Err(
                MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source },
            ) => Err(source),
        }
    }
}
