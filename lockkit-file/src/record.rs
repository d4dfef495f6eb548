//! The record of a name: its holders, and its waiters in order. It only computes a new state from
//! an old one, and touches no file.
//!
//! There is one queue for all modes, strictly first in, first out. A claim is granted when it fits
//! together with all holders and with all waiters ahead of it.

use std::{mem, num::NonZeroU32, time::Duration};

use lockkit_core::{
    ErrorKind, FencingToken, LockName, OwnerId, Result,
    spi::{
        Attempt, Grant, Holder, Inspection, Lease, Mode, Occupancy, QueuePolicy, Released,
        Transferred, Wait,
    },
};
use serde::{Deserialize, Serialize};

use crate::{error::ours, host::Now, session::SessionId, version};

mod sum;
#[cfg(test)]
mod tests;
mod text;

const VERSION: u32 = 1;
/// How long, in µs, a waiter that could be granted holds up the others: three polls.
const TURN: u64 = 3_000_000;

/// How a claim holds the lock, or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Share {
    Exclusive,
    Permits { count: NonZeroU32, limit: NonZeroU32 },
    Shared,
}

impl Share {
    pub(crate) fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Exclusive => Some(Self::Exclusive),
            Mode::Permits { count, limit } => Some(Self::Permits { count, limit }),
            Mode::Shared => Some(Self::Shared),
            _ => None,
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Permits { count, limit } => Mode::Permits { count, limit },
            Self::Shared => Mode::Shared,
        }
    }

    fn limit(self) -> Option<NonZeroU32> {
        match self {
            Self::Permits { limit, .. } => Some(limit),
            Self::Exclusive | Self::Shared => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    lockkit: u32,
    kind: String,
    name: String,
    /// The last token that was given.
    token: u64,
    /// The gate inside which the record was written.
    gate: u64,
    holders: Vec<Holding>,
    queue: Vec<Waiting>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holding {
    #[serde(with = "text")]
    owner: OwnerId,
    #[serde(with = "text")]
    session: SessionId,
    mode: Share,
    token: u64,
    label: Option<String>,
    since_unix_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    #[serde(with = "text")]
    owner: OwnerId,
    #[serde(with = "text")]
    session: SessionId,
    mode: Share,
    /// Since when the claim could have been granted.
    turn_unix_us: Option<u64>,
}

/// The owner that asks for the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) owner: OwnerId,
    pub(crate) session: SessionId,
    pub(crate) share: Share,
    pub(crate) label: Option<&'a str>,
}

impl Record {
    pub(crate) fn new(name: &LockName) -> Self {
        Self {
            lockkit: VERSION,
            kind: name.kind().as_str().to_owned(),
            name: name.as_str().to_owned(),
            token: 0,
            gate: 0,
            holders: Vec::new(),
            queue: Vec::new(),
        }
    }

    /// Whether these bytes may be what a loss of power has left of a record.
    pub(crate) fn is_rest(bytes: &[u8]) -> bool {
        // A beginning that shows a newer format is not such a rest.
        let after = bytes.strip_prefix(b"{\n  \"lockkit\":");
        after.is_some_and(|after| after.is_empty() || after.starts_with(b" 1,"))
            || bytes.iter().all(|byte| *byte == 0)
    }

    /// The format of a record that a newer lockkit has written.
    pub(crate) fn newer(bytes: &[u8]) -> Option<u32> {
        version::newer(bytes, VERSION)
    }

    /// Reads a record. An empty file is a new record.
    ///
    /// # Errors
    /// The reason why it is no record of this name.
    pub(crate) fn parse(bytes: &[u8], name: &LockName) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::new(name));
        }
        let record = Self::parse_any(bytes)?;
        if (record.kind.as_str(), record.name.as_str()) != (name.kind().as_str(), name.as_str()) {
            return Err(format!(
                "it belongs to the {} {:?}, not to the {name}",
                record.kind, record.name
            ));
        }
        Ok(record)
    }

    /// Reads a record of any name.
    ///
    /// # Errors
    /// The reason why it is no record.
    pub(crate) fn parse_any(bytes: &[u8]) -> Result<Self, String> {
        version::check(bytes, VERSION)?;
        let text = sum::check(bytes).ok_or("its checksum does not match its content")?;
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let failed =
            |error| ours(ErrorKind::Unexpected, format!("could not encode the record: {error}"));
        Ok(sum::seal(serde_json::to_vec_pretty(self).map_err(failed)?))
    }

    /// Prepares the record to be written inside this gate. Returns the previous gate if it was
    /// another one.
    pub(crate) fn pass(&mut self, gate: u64) -> Option<u64> {
        let previous = mem::replace(&mut self.gate, gate);
        (previous != gate).then_some(previous)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The sessions of all holders and waiters, each once.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let holders = self.holders.iter().map(|holding| holding.session);
        let mut sessions: Vec<_> =
            holders.chain(self.queue.iter().map(|waiting| waiting.session)).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// The sessions that decide which waiters can be granted next. They are those of the holders,
    /// of the waiters that can be granted, and of the first waiter that can't.
    pub(crate) fn front(&self) -> Vec<SessionId> {
        let waiting = self.queue.iter().take(self.ready() + 1).map(|waiting| waiting.session);
        let mut sessions: Vec<_> =
            self.holders.iter().map(|holding| holding.session).chain(waiting).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Drops all holders and waiters of these sessions.
    pub(crate) fn without(&mut self, dead: &[SessionId]) {
        self.holders.retain(|holding| !dead.contains(&holding.session));
        self.queue.retain(|waiting| !dead.contains(&waiting.session));
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.holders.is_empty() || !self.queue.is_empty()
    }

    pub(crate) fn is_held_by(&self, owner: OwnerId, session: SessionId) -> bool {
        self.holders.iter().any(|holding| holding.owner == owner && holding.session == session)
    }

    pub(crate) fn is_awaited_by(&self, owner: OwnerId) -> bool {
        self.queue.iter().any(|waiting| waiting.owner == owner)
    }

    /// The waiters that can be granted now.
    pub(crate) fn first(&self) -> Vec<OwnerId> {
        self.queue.iter().take(self.ready()).map(|waiting| waiting.owner).collect()
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::of(self.holders.iter().map(|holding| holding.mode.mode()))
    }

    /// How many waiters can be granted now, from the head of the queue on.
    fn ready(&self) -> usize {
        let mut occupancy = self.occupancy();
        let fits = |waiting: &&Waiting| match occupancy.with(waiting.mode.mode()) {
            Some(more) => {
                occupancy = more;
                true
            }
            None => false,
        };
        self.queue.iter().take_while(fits).count()
    }

    /// Removes waiters that had their turn and did not take it, such as those of a stopped process.
    /// `asker` stays.
    pub(crate) fn skip_idle(&mut self, asker: Option<OwnerId>, now: &Now) {
        let idle = |waiting: &Waiting| {
            waiting.turn_unix_us.is_some_and(|turn| now.wall.saturating_sub(turn) > TURN)
        };
        self.queue.retain(|waiting| Some(waiting.owner) == asker || !idle(waiting));
    }

    /// Notes which waiters have their turn. The caller does this before it writes the record.
    pub(crate) fn settle(&mut self, now: &Now) {
        let ready = self.ready();
        for (at, waiting) in self.queue.iter_mut().enumerate() {
            // If the clock was set back, no waiter may get that time in addition.
            let since = waiting.turn_unix_us.unwrap_or(now.wall).min(now.wall);
            waiting.turn_unix_us = (at < ready).then_some(since);
        }
    }

    /// Grants the lock if it is this claim's turn. Otherwise queues the claim, if it may wait.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if present claims have another limit.
    pub(crate) fn attempt(&mut self, asker: &Asker<'_>, wait: Wait, now: &Now) -> Result<Attempt> {
        if let Some(holding) = self.holders.iter().find(|holding| holding.owner == asker.owner) {
            return Ok(Attempt::Granted(holding.grant()));
        }
        self.check_limit(asker.share)?;
        let paths = self.queue.iter().position(|waiting| waiting.owner == asker.owner);
        let ahead = paths.unwrap_or(self.queue.len());
        if !self.fits_behind(ahead, asker.share) {
            let queued = wait == Wait::Queue;
            match paths {
                Some(paths) if !queued => drop(self.queue.remove(paths)),
                None if queued => self.queue.push(Waiting::new(asker)),
                _ => {}
            }
            return Ok(Attempt::Busy { queued, retry_after: None });
        }
        if let Some(paths) = paths {
            self.queue.remove(paths);
        }
        Ok(Attempt::Granted(self.grant(asker, now)?))
    }

    /// Gives up grants and places in the queue.
    pub(crate) fn release(&mut self, owners: &[OwnerId]) -> Released {
        self.queue.retain(|waiting| !owners.contains(&waiting.owner));
        let held = self.holders.len();
        self.holders.retain(|holding| !owners.contains(&holding.owner));
        if self.holders.len() < held { Released::Freed } else { Released::NotHeld }
    }

    /// Frees the grant with this token.
    pub(crate) fn force_release(&mut self, token: FencingToken) -> Released {
        let held = self.holders.len();
        self.holders.retain(|holding| holding.token != token.get());
        if self.holders.len() < held { Released::Freed } else { Released::NotHeld }
    }

    /// Raises the token of a grant, and with it all later ones.
    pub(crate) fn raise_token(
        &mut self,
        owner: OwnerId,
        floor: FencingToken,
    ) -> Option<FencingToken> {
        let holding = self.holders.iter_mut().find(|holding| holding.owner == owner)?;
        holding.token = holding.token.max(floor.get());
        self.token = self.token.max(holding.token);
        Some(FencingToken::new(holding.token))
    }

    /// Gives the grant of one owner to another, unless the waiters must come first.
    ///
    /// # Errors
    /// There is no larger token.
    pub(crate) fn transfer(
        &mut self,
        from: OwnerId,
        to: &Asker<'_>,
        policy: QueuePolicy,
        now: &Now,
    ) -> Result<Transferred> {
        let Some(at) = self.holders.iter().position(|holding| holding.owner == from) else {
            return Ok(Transferred::NotHeld);
        };
        let previous = self.holders.remove(at);
        let may_stay = policy == QueuePolicy::TransferFirst || self.queue.is_empty();
        if !may_stay || previous.mode != to.share {
            return Ok(Transferred::Yielded);
        }
        Ok(Transferred::Granted(self.grant(to, now)?))
    }

    pub(crate) fn inspect(&self, now: &Now) -> Inspection {
        let holders = self.holders.iter().map(|holding| holding.describe(now)).collect();
        Inspection::new(holders, u64::try_from(self.queue.len()).ok())
    }

    fn grant(&mut self, asker: &Asker<'_>, now: &Now) -> Result<Grant> {
        let Some(next) = self.token.checked_add(1) else {
            return Err(ours(
                ErrorKind::Unexpected,
                "could not make a token: the last token was already the largest number",
            ));
        };
        // This record may be older than the last one, but the clock is past the tokens of that one.
        let token = next.max(now.wall);
        self.token = token;
        let holding = Holding {
            owner: asker.owner,
            session: asker.session,
            mode: asker.share,
            token,
            label: asker.label.map(str::to_owned),
            since_unix_us: now.wall,
        };
        let grant = holding.grant();
        self.holders.push(holding);
        Ok(grant)
    }

    /// Checks the limit of a claim for permits against that of the present claims, which all agree.
    fn check_limit(&self, share: Share) -> Result<()> {
        let Some(asked) = share.limit() else { return Ok(()) };
        let held = self.holders.iter().map(|holding| holding.mode);
        let wanted = self.queue.iter().map(|waiting| waiting.mode);
        match held.chain(wanted).find_map(Share::limit) {
            Some(known) if known != asked => Err(ours(
                ErrorKind::InvalidOption,
                format!(
                    "this claim uses a limit of {asked} permits, but present claims use {known}; \
                     use the same limit everywhere"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether a claim fits together with all holders and the first `ahead` waiters.
    fn fits_behind(&self, ahead: usize, share: Share) -> bool {
        let mut ahead = self.queue.iter().take(ahead);
        let occupancy = ahead
            .try_fold(self.occupancy(), |occupancy, waiting| occupancy.with(waiting.mode.mode()));
        occupancy.and_then(|occupancy| occupancy.with(share.mode())).is_some()
    }
}

impl Holding {
    fn grant(&self) -> Grant {
        Grant::new(FencingToken::new(self.token), Lease::Session)
    }

    fn describe(&self, now: &Now) -> Holder {
        Holder::new(self.mode.mode())
            .with_grant(self.owner, FencingToken::new(self.token))
            .with_label(self.label.clone())
            .with_age(Duration::from_micros(now.wall.saturating_sub(self.since_unix_us)))
    }
}

impl Waiting {
    fn new(asker: &Asker<'_>) -> Self {
        Self { owner: asker.owner, session: asker.session, mode: asker.share, turn_unix_us: None }
    }
}
