//! A mutex without a queue: one node at a fixed path, for which all race.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::join;
use lockkit_core::{
    ErrorKind, FencingToken, Result,
    spi::{Attempt, Claim, ClaimSpec, Grant, LossReason, Note, Noted, Pulse, Released, Wait},
};
use zookeeper_client::{Acls, Client, Error as ZkError, Stat};

use crate::{
    error::{self, Fate, Phase, fate},
    folder::{self, InFolder},
    note::{self, Outcome},
    queue::Obstacle,
    record::Record,
    session::{Debt, HELD, Place, Pool, Room, Session, Single},
    stand::Stand,
    watching::{Armed, Watching},
};

/// How often a race is run in one attempt when the winner is gone before it can be watched.
const MOST_RACES: u32 = 2;
/// How often the folder is looked at again when somebody writes to it meanwhile.
const MOST_LOOKS: u32 = 3;

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
                stand.session.ready(self.spec.op_timeout).await?;
                let children = stand.list(&self.folder).await?.unwrap_or_default();
                return self.grant(&stand, &children).map(Some);
            }
        }
        // What an operator left of it is the session's to clear away.
        (self.place, self.granted) = (None, false);
        Ok(None)
    }

    /// One transaction; `None` if somebody has it.
    async fn race(&mut self, room: Room) -> Result<Option<Attempt>> {
        let session = Arc::clone(room.session());
        let config = self.pool.config();
        let client = session.client()?;
        let single = Single::new(&self.folder);
        let place = self.place.insert(Place::new(room));
        place.owe(Debt::Single(single.clone()));
        let record = Record::new(self.spec.owner, self.spec.label.as_deref()).to_bytes();
        let request = Request { single, folder: &self.folder, record, acls: config.acl.acls() };
        let into = (self.spec.name.kind(), self.folder.as_str());
        let children = match folder::send_into(&request, &client, config, self.pool.folders(), into)
            .await?
        {
            Ok((folder, children)) => {
                place.granted_by(folder.version);
                place.created(self.path.clone(), folder.mzxid, self.spec.hint.clone());
                children
                    .map_err(|error| session.failed(error, Phase::Write, "listing", &self.folder))?
            }
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
        };
        match Stand::of(place) {
            Some(stand) => self.grant(&stand, &children).map(Some),
            None => Ok(None),
        }
    }

    /// Nobody may stand in a queue beside us: whoever does, and whoever comes, sees us in turn.
    fn grant(&mut self, stand: &Stand, children: &[String]) -> Result<Attempt> {
        if let Some(stranger) = children.iter().find(|name| !Single::is_known(name)) {
            // The session takes back what we made.
            self.place = None;
            return Err(error::stranger(&self.folder, stranger));
        }
        (self.watching, self.granted) = (None, true);
        let token = FencingToken::new(stand.created.cast_unsigned());
        Ok(Attempt::Granted(Grant::new(token, stand.session.lease(self.spec.clock))))
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

    fn loss(&self) -> LossReason {
        let over = self.place.as_ref().is_some_and(|place| place.session().is_over());
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
        const TAKEN: Attempt = Attempt::Busy { queued: false, retry_after: None };
        if let Some(granted) = self.earlier().await? {
            return Ok(granted);
        }
        for _ in 0..MOST_RACES {
            let room = self.pool.room(0).await?;
            let session = Arc::clone(room.session());
            self.pool.config().check_ttl(self.spec.ttl, session.timeout())?;
            session.ready(self.spec.op_timeout).await?;
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
        Ok(Attempt::Busy { queued: false, retry_after: Some(Duration::ZERO) })
    }

    fn known_pulse(&mut self) -> Option<Result<Pulse>> {
        Some(match self.place.as_ref().filter(|place| !place.is_gone()) {
            Some(place) => place.session().pulse(self.spec.clock),
            None => Ok(Pulse::Lost(self.loss())),
        })
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<Pulse> {
        let stand = self.place.as_ref().filter(|place| !place.is_gone()).and_then(Stand::of);
        let Some(stand) = stand else { return Ok(Pulse::Lost(self.loss())) };
        stand
            .pulse(self.spec.clock)
            .await
            .map(|alive| alive.unwrap_or_else(|| Pulse::Lost(self.loss())))
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let place = self.place.as_mut().filter(|place| self.granted && !place.is_gone());
        let Some(place) = place else { return Ok(Noted::NotHeld) };
        for _ in 0..MOST_LOOKS {
            let Some(proofs) = place.proofs().await? else { return Ok(Noted::NotHeld) };
            let session = Arc::clone(place.session());
            match note::write(&session, &self.pool, &self.spec.name, &proofs, note).await? {
                Outcome::Noted(noted) => return Ok(noted),
                // By the next grant, if not by a stranger.
                Outcome::OtherVersion => place.forget_version(),
            }
        }
        let reason = format!("somebody writes to {:?} all the time", self.folder);
        Err(error::ours(ErrorKind::Unavailable, reason))
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

/// Makes the node and reads the folder behind it, without waiting in between.
struct Request<'a> {
    single: Single,
    folder: &'a str,
    record: Vec<u8>,
    acls: Acls<'static>,
}

impl InFolder for Request<'_> {
    /// The folder as it was written, and what is in it.
    type Answer = (Stat, Result<Vec<String>, ZkError>);

    async fn send(&self, client: &Client) -> Result<Self::Answer, ZkError> {
        // Polled in this order, and both are queued before either is awaited.
        let made = self.single.make(client, &self.record, self.acls);
        let (made, listed) = join(made, async { client.list_children(self.folder).await }).await;
        Ok((made?, listed))
    }
}
