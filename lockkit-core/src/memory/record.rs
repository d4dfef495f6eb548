//! Keeps the state of one name: its holders, and its waiters in order.

use std::{collections::VecDeque, mem, num::NonZeroU32, sync::Arc, time::Duration};

use crate::{
    clock::Tick,
    error::{Error, ErrorKind, Result},
    spi::{
        Attempt, ClaimSpec, Grant, GrantId, Holder, Inspection, Lease, LossReason, Mode, Occupancy,
        QueuePolicy, Released, RenewalOutcome, Transferred, Wait, Wake,
    },
    token::{FencingToken, OwnerId},
};

/// The store wakes a waiter whenever it can be granted. The poll is only for leases that end
/// without a release.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// The shortest life of a place in the queue. A waiter asks at least once a poll, so a waiter that
/// misses three polls has stopped asking.
const SHORTEST_PLACE: Duration = POLL.saturating_mul(3);

/// The state of one name.
pub(super) struct Record {
    holders: Vec<Holding>,
    queue: VecDeque<Waiting>,
}

struct Holding {
    owner: OwnerId,
    mode: Mode,
    token: FencingToken,
    granted: Tick,
    ends: Tick,
    label: Option<Arc<str>>,
    wake: Wake,
}

struct Waiting {
    owner: OwnerId,
    mode: Mode,
    lapses: Tick,
    /// Whether the waiter was told that it can be granted.
    woken: bool,
    wake: Wake,
}

impl Record {
    pub(super) fn new() -> Self {
        // Most names have one holder, so the vector should not start with four places.
        Self { holders: Vec::with_capacity(1), queue: VecDeque::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Whether the name has a holder or a waiter now. Ended leases do not count.
    pub(super) fn is_used(&self, now: Tick) -> bool {
        self.holders.iter().any(|holding| holding.lives(now))
            || self.queue.iter().any(|waiting| waiting.lives(now))
    }

    /// Drops the leases that have ended, and the waiters that have stopped asking.
    pub(super) fn purge(&mut self, now: Tick) {
        self.holders.retain(|holding| holding.lives(now));
        self.queue.retain(|waiting| waiting.lives(now));
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::of(self.holders.iter().map(|holding| holding.mode))
    }

    /// Adds those waiters to `wakes` that can be granted and were not woken yet.
    pub(super) fn wake(&mut self, wakes: &mut Vec<Wake>) {
        if self.queue.is_empty() {
            return;
        }
        let mut occupancy = self.occupancy();
        for waiting in &mut self.queue {
            match occupancy.with(waiting.mode) {
                Some(more) => occupancy = more,
                None => break,
            }
            if !mem::replace(&mut waiting.woken, true) {
                wakes.push(waiting.wake.clone());
            }
        }
    }

    pub(super) fn attempt(
        &mut self,
        spec: &ClaimSpec,
        wait: Wait,
        last_token: &mut u64,
        now: Tick,
    ) -> Result<Attempt> {
        if let Some(holding) = self.holders.iter_mut().find(|holding| holding.owner == spec.owner) {
            holding.extend(spec.ttl, now);
            return Ok(Attempt::Granted(holding.grant(now)));
        }
        self.check_limit(spec.mode)?;
        let place = self.queue.iter().position(|waiting| waiting.owner == spec.owner);
        let ahead = place.unwrap_or(self.queue.len());
        if let Err(changes_at) = self.fits_behind(ahead, spec.mode) {
            let queued = self.wait_at(place, spec, wait, now);
            return Ok(Attempt::Busy { queued, retry_after: Some(now.until(changes_at)) });
        }
        if place.is_some() {
            self.queue.remove(ahead);
        }
        *last_token += 1;
        let holding = Holding::new(spec, FencingToken::new(*last_token), now);
        let grant = holding.grant(now);
        self.holders.push(holding);
        Ok(Attempt::Granted(grant))
    }

    pub(super) fn keep_alive(&mut self, spec: &ClaimSpec, now: Tick) -> RenewalOutcome {
        self.extend(spec.owner, spec.ttl, now)
    }

    /// As a renewal, for a lease of another length.
    pub(super) fn extend(&mut self, owner: OwnerId, lease: Duration, now: Tick) -> RenewalOutcome {
        let Some(holding) = self.holders.iter_mut().find(|holding| holding.owner == owner) else {
            return RenewalOutcome::Lost(LossReason::Evicted);
        };
        if !holding.lives(now) {
            return RenewalOutcome::Lost(LossReason::Expired);
        }
        holding.extend(lease, now);
        RenewalOutcome::Alive(holding.lease(now))
    }

    /// Raises the token of a grant, and the counter for all later tokens.
    pub(super) fn raise_token(
        &mut self,
        owner: OwnerId,
        floor: FencingToken,
        last_token: &mut u64,
        now: Tick,
    ) -> Option<FencingToken> {
        let mine = |holding: &&mut Holding| holding.owner == owner && holding.lives(now);
        let holding = self.holders.iter_mut().find(mine)?;
        holding.token = holding.token.max(floor);
        *last_token = (*last_token).max(holding.token.get());
        Some(holding.token)
    }

    /// Makes a claim the owner of the grant that it resumes.
    pub(super) fn resume(&mut self, spec: &ClaimSpec, from: &GrantId, now: Tick) -> Option<Grant> {
        let is_meant = |holding: &&mut Holding| {
            let is_its_own = holding.owner == spec.owner;
            let is_resumed = from.is(holding.owner, holding.token) && holding.mode == spec.mode;
            holding.lives(now) && (is_its_own || is_resumed)
        };
        let holding = self.holders.iter_mut().find(is_meant)?;
        holding.owner = spec.owner;
        holding.label.clone_from(&spec.label);
        holding.wake = spec.wake.clone();
        holding.extend(spec.ttl, now);
        Some(holding.grant(now))
    }

    /// Whether this owner still holds its grant.
    pub(super) fn is_held_by(&self, owner: OwnerId, now: Tick) -> bool {
        self.holders.iter().any(|holding| holding.owner == owner && holding.lives(now))
    }

    /// Gives the grant of one owner to another, unless the waiters come first.
    pub(super) fn transfer(
        &mut self,
        from: OwnerId,
        to: &ClaimSpec,
        policy: QueuePolicy,
        last_token: &mut u64,
        now: Tick,
    ) -> Transferred {
        let Some(previous) = self.take(|holding| holding.owner == from, now) else {
            return Transferred::NotHeld;
        };
        let somebody_waits = self.queue.iter().any(|waiting| waiting.lives(now));
        if (policy == QueuePolicy::QueueFirst && somebody_waits) || previous.mode != to.mode {
            return Transferred::Yielded;
        }
        *last_token += 1;
        let holding = Holding::new(to, FencingToken::new(*last_token), now);
        let grant = holding.grant(now);
        self.holders.push(holding);
        Transferred::Granted(grant)
    }

    pub(super) fn release(&mut self, owner: OwnerId, now: Tick) -> Released {
        self.queue.retain(|waiting| waiting.owner != owner);
        let freed = self.take(|holding| holding.owner == owner, now);
        freed.map_or(Released::NotHeld, |_| Released::Freed)
    }

    /// Frees the grant and wakes its owner. Otherwise the owner would notice only at its next
    /// renewal.
    pub(super) fn force_release(
        &mut self,
        token: FencingToken,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> Released {
        let Some(freed) = self.take(|holding| holding.token == token, now) else {
            return Released::NotHeld;
        };
        wakes.push(freed.wake);
        Released::Freed
    }

    pub(super) fn inspect(&self, now: Tick) -> Inspection {
        let holders = self.holders.iter().filter(|holding| holding.lives(now));
        let waiters = self.queue.iter().filter(|waiting| waiting.lives(now)).count();
        Inspection::new(
            holders.map(|holding| holding.describe(now)).collect(),
            u64::try_from(waiters).ok(),
        )
    }

    /// Checks the limit of a claim for permits against the limit of the present claims, which all
    /// agree.
    fn check_limit(&self, mode: Mode) -> Result<()> {
        let Some(asked) = limit(mode) else { return Ok(()) };
        let held = self.holders.iter().map(|holding| holding.mode);
        let wanted = self.queue.iter().map(|waiting| waiting.mode);
        match held.chain(wanted).find_map(limit) {
            Some(known) if known != asked => Err(Error::new(
                ErrorKind::InvalidOption,
                format!(
                    "this claim uses a limit of {asked} permits, but present claims use {known}; \
                     use the same limit everywhere"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether a claim fits together with all holders and the first `ahead` waiters. If not, the
    /// error is the instant at which that may change by itself. This is the first end of a lease or
    /// of a place in the way.
    fn fits_behind(&self, ahead: usize, mode: Mode) -> Result<(), Tick> {
        let ends = self.holders.iter().map(|holding| holding.ends);
        let mut changes_at = ends.min().unwrap_or(Tick::NEVER);
        let mut occupancy = self.occupancy();
        for waiting in self.queue.iter().take(ahead) {
            changes_at = changes_at.min(waiting.lapses);
            occupancy = occupancy.with(waiting.mode).ok_or(changes_at)?;
        }
        occupancy.with(mode).map(drop).ok_or(changes_at)
    }

    /// Leaves a claim that can't be granted in the queue, or takes it out. Returns true if it
    /// stays.
    fn wait_at(&mut self, place: Option<usize>, spec: &ClaimSpec, wait: Wait, now: Tick) -> bool {
        let stays = wait != Wait::No;
        match place.and_then(|at| self.queue.get_mut(at)) {
            Some(waiting) if stays => *waiting = Waiting::new(spec, now),
            Some(_) => self.queue.retain(|waiting| waiting.owner != spec.owner),
            None if stays => self.queue.push_back(Waiting::new(spec, now)),
            None => {}
        }
        stays
    }

    /// Takes a live grant out. An ended grant is left to [`purge`](Self::purge).
    fn take(&mut self, which: impl Fn(&Holding) -> bool, now: Tick) -> Option<Holding> {
        let at = self.holders.iter().position(|holding| which(holding) && holding.lives(now))?;
        Some(self.holders.remove(at))
    }
}

impl Holding {
    fn new(spec: &ClaimSpec, token: FencingToken, now: Tick) -> Self {
        Self {
            owner: spec.owner,
            mode: spec.mode,
            token,
            granted: now,
            ends: now.after(spec.ttl),
            label: spec.label.clone(),
            wake: spec.wake.clone(),
        }
    }

    fn lives(&self, now: Tick) -> bool {
        now < self.ends
    }

    fn extend(&mut self, ttl: Duration, now: Tick) {
        self.ends = self.ends.max(now.after(ttl));
    }

    fn grant(&self, now: Tick) -> Grant {
        Grant::new(self.token, self.lease(now))
    }

    fn lease(&self, now: Tick) -> Lease {
        Lease::For(now.until(self.ends))
    }

    fn describe(&self, now: Tick) -> Holder {
        Holder::new(self.mode)
            .with_grant(self.owner, self.token)
            .with_label(self.label.as_deref().map(str::to_owned))
            .with_age(self.granted.until(now))
            .with_remaining(now.until(self.ends))
    }
}

impl Waiting {
    fn new(spec: &ClaimSpec, now: Tick) -> Self {
        Self {
            owner: spec.owner,
            mode: spec.mode,
            lapses: now.after(spec.ttl.max(SHORTEST_PLACE)),
            woken: false,
            wake: spec.wake.clone(),
        }
    }

    fn lives(&self, now: Tick) -> bool {
        now < self.lapses
    }
}

fn limit(mode: Mode) -> Option<NonZeroU32> {
    match mode {
        Mode::Permits { limit, .. } => Some(limit),
        Mode::Exclusive | Mode::Shared => None,
    }
}
