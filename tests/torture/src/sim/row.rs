//! One name of the scripted store: its holders, its waiters, and its last token. It models a
//! correct store.
//!
//! It follows the same rules of order as lockkit's memory store, and shares [`Occupancy`] with it.
//! It also models what the memory store does not have:
//!
//! * leases that end with a session or a connection,
//! * retries that extend nothing,
//! * places in the queue that last for a time of their own.
//!
//! It also writes to the history when each grant began and ended.

use lockkit::{
    FencingToken, LossReason, OwnerId, Released,
    spi::{
        Attempt, ClaimSpec, Grant, Holder, Inspection, Lease, Mode, Occupancy, QueuePolicy,
        RenewalOutcome, Transferred, Wait, Wake,
    },
};
use tokio::time::Instant;

use super::scenario::{Leases, StoreSort};
use crate::history::{Event, Op};

/// The process that asks, and its request.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) process: u32,
    pub(super) spec: ClaimSpec,
}

impl Asker {
    fn op(&self) -> Option<Op> {
        self.spec.label.as_deref()?.parse().ok()
    }
}

#[derive(Debug)]
struct Holding {
    asker: Asker,
    token: u64,
    granted: Instant,
    ends: Instant,
}

#[derive(Debug)]
struct Place {
    asker: Asker,
    ends: Instant,
    /// The store has woken this waiter, so the waiter knows that it can be granted.
    woken: bool,
}

/// The events of a change, each with its time.
pub(super) type Deeds = Vec<(Instant, Event)>;

#[derive(Debug, Default)]
pub(super) struct Row {
    holders: Vec<Holding>,
    queue: Vec<Place>,
    last_token: u64,
}

impl Row {
    /// Removes leases and places that have ended, as of their end.
    pub(super) fn purge(&mut self, now: Instant, deeds: &mut Deeds) {
        self.holders.retain(|holding| {
            let lives = holding.ends > now;
            if !lives && let Some(op) = holding.asker.op() {
                deeds.push((holding.ends, Event::Gone { op }));
            }
            lives
        });
        self.queue.retain(|place| place.ends > now);
    }

    /// The session of the process lasts at least until then.
    pub(super) fn prolong(&mut self, process: u32, ends: Instant) {
        let holders = self.holders.iter_mut().filter(|holding| holding.asker.process == process);
        holders.for_each(|holding| holding.ends = holding.ends.max(ends));
        let places = self.queue.iter_mut().filter(|place| place.asker.process == process);
        places.for_each(|place| place.ends = place.ends.max(ends));
    }

    /// Nothing of the process lasts longer than that.
    pub(super) fn cut(&mut self, process: u32, ends: Instant) {
        let holders = self.holders.iter_mut().filter(|holding| holding.asker.process == process);
        holders.for_each(|holding| holding.ends = holding.ends.min(ends));
        let places = self.queue.iter_mut().filter(|place| place.asker.process == process);
        places.for_each(|place| place.ends = place.ends.min(ends));
    }

    fn taken(&self) -> Occupancy {
        Occupancy::of(self.holders.iter().map(|holding| holding.asker.spec.mode))
    }

    /// The waiters to wake: those that can be granted and don't know it yet.
    pub(super) fn wakes(&mut self) -> Vec<(u32, Wake)> {
        let mut taken = self.taken();
        let mut wakes = Vec::new();
        for place in &mut self.queue {
            match taken.with(place.asker.spec.mode) {
                Some(more) => taken = more,
                None => break,
            }
            if !place.woken {
                place.woken = true;
                wakes.push((place.asker.process, place.asker.spec.wake.clone()));
            }
        }
        wakes
    }

    pub(super) fn attempt(
        &mut self,
        sort: StoreSort,
        asker: &Asker,
        wait: Wait,
        (now, ends): (Instant, Instant),
        deeds: &mut Deeds,
    ) -> Attempt {
        let spec = &asker.spec;
        if let Some(holding) = self.holding(spec.owner) {
            if sort.retry_extends {
                holding.ends = holding.ends.max(ends);
            }
            return Attempt::Granted(holding.grant(sort, now));
        }
        let place = self.queue.iter().position(|place| place.asker.spec.owner == spec.owner);
        let ahead = place.unwrap_or(self.queue.len());
        let mut before = self.queue.iter().take(ahead).map(|place| place.asker.spec.mode);
        let taken = before.try_fold(self.taken(), Occupancy::with);
        if taken.and_then(|taken| taken.with(spec.mode)).is_none() {
            let queued = sort.has_queue() && wait != Wait::No;
            if let Some(at) = place {
                self.queue.remove(at);
            }
            if queued {
                let ends =
                    if sort.leases == Leases::Own { now + sort.place(spec.ttl) } else { ends };
                let at = ahead.min(self.queue.len());
                self.queue.insert(at, Place { asker: asker.clone(), ends, woken: false });
            }
            return Attempt::Busy { queued, retry_after: self.changes_at().map(|at| at - now) };
        }
        if let Some(at) = place {
            self.queue.remove(at);
        }
        Attempt::Granted(self.grant(sort, asker, (now, ends), deeds))
    }

    fn grant(
        &mut self,
        sort: StoreSort,
        asker: &Asker,
        (now, ends): (Instant, Instant),
        deeds: &mut Deeds,
    ) -> Grant {
        self.last_token += 1;
        if let Some(op) = asker.op() {
            deeds.push((now, Event::Applied { op, token: self.last_token }));
        }
        let holding = Holding { asker: asker.clone(), token: self.last_token, granted: now, ends };
        let grant = holding.grant(sort, now);
        self.holders.push(holding);
        grant
    }

    /// The earliest end of the present leases and places.
    pub(super) fn changes_at(&self) -> Option<Instant> {
        let places = self.queue.iter().map(|place| place.ends);
        self.holders.iter().map(|holding| holding.ends).chain(places).min()
    }

    pub(super) fn waits(&self, owner: OwnerId) -> bool {
        self.queue.iter().any(|place| place.asker.spec.owner == owner)
    }

    pub(super) fn renew(
        &mut self,
        sort: StoreSort,
        owner: OwnerId,
        now: Instant,
        ends: Instant,
    ) -> RenewalOutcome {
        let Some(holding) = self.holding(owner) else {
            let own = sort.leases == Leases::Own;
            return RenewalOutcome::Lost(if own {
                LossReason::Evicted
            } else {
                LossReason::SessionLost
            });
        };
        holding.ends = holding.ends.max(ends);
        RenewalOutcome::Alive(holding.lease(sort, now))
    }

    pub(super) fn holds(&mut self, owner: OwnerId) -> bool {
        self.holding(owner).is_some()
    }

    pub(super) fn raise(&mut self, owner: OwnerId, floor: FencingToken) -> Option<FencingToken> {
        let holding = self.holding(owner)?;
        holding.token = holding.token.max(floor.get());
        let token = holding.token;
        self.last_token = self.last_token.max(token);
        Some(FencingToken::new(token))
    }

    pub(super) fn transfer(
        &mut self,
        sort: StoreSort,
        from: OwnerId,
        to: &Asker,
        policy: QueuePolicy,
        (now, ends): (Instant, Instant),
        deeds: &mut Deeds,
    ) -> Transferred {
        let Some(mode) = self.take(|holding| holding.asker.spec.owner == from, now, deeds) else {
            return Transferred::NotHeld;
        };
        if mode != to.spec.mode || (policy == QueuePolicy::QueueFirst && !self.queue.is_empty()) {
            return Transferred::Yielded;
        }
        Transferred::Granted(self.grant(sort, to, (now, ends), deeds))
    }

    pub(super) fn release(&mut self, owner: OwnerId, now: Instant, deeds: &mut Deeds) -> Released {
        self.queue.retain(|place| place.asker.spec.owner != owner);
        let freed = self.take(|holding| holding.asker.spec.owner == owner, now, deeds);
        if freed.is_some() { Released::Freed } else { Released::NotHeld }
    }

    pub(super) fn free(
        &mut self,
        token: u64,
        now: Instant,
        deeds: &mut Deeds,
    ) -> Option<(u32, Wake)> {
        let holding = self.holders.iter().find(|holding| holding.token == token)?;
        let whom = (holding.asker.process, holding.asker.spec.wake.clone());
        self.take(|holding| holding.token == token, now, deeds);
        Some(whom)
    }

    /// Removes one holder, and returns its mode.
    fn take(
        &mut self,
        which: impl Fn(&Holding) -> bool,
        now: Instant,
        deeds: &mut Deeds,
    ) -> Option<Mode> {
        let at = self.holders.iter().position(which)?;
        let Asker { spec, .. } = &self.holders[at].asker;
        let mode = spec.mode;
        if let Some(op) = self.holders[at].asker.op() {
            deeds.push((now, Event::Gone { op }));
        }
        self.holders.remove(at);
        Some(mode)
    }

    fn holding(&mut self, owner: OwnerId) -> Option<&mut Holding> {
        self.holders.iter_mut().find(|holding| holding.asker.spec.owner == owner)
    }

    pub(super) fn inspect(&self, now: Instant) -> Inspection {
        let holders = self.holders.iter().map(|holding| {
            let spec = &holding.asker.spec;
            Holder::new(spec.mode)
                .with_grant(spec.owner, FencingToken::new(holding.token))
                .with_label(spec.label.as_deref().map(str::to_owned))
                .with_age(now - holding.granted)
                .with_remaining(holding.ends - now)
        });
        Inspection::new(holders.collect(), u64::try_from(self.queue.len()).ok())
    }

    /// The tokens of the holders.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.holders.iter().map(|holding| holding.token)
    }

    /// The leftovers and their claims, except for those of certain processes.
    pub(super) fn left(&self, except: &[u32]) -> impl Iterator<Item = String> {
        let holders = self.holders.iter().map(|holding| ("the grant", &holding.asker));
        let all =
            holders.chain(self.queue.iter().map(|place| ("the place in the queue", &place.asker)));
        let all = all.filter(|(_, asker)| !except.contains(&asker.process));
        all.map(|(what, asker)| {
            format!(
                "{what} of {}",
                asker.spec.label.as_deref().unwrap_or("a claim without a label")
            )
        })
    }
}

impl Holding {
    fn grant(&self, sort: StoreSort, now: Instant) -> Grant {
        Grant::new(FencingToken::new(self.token), self.lease(sort, now))
    }

    fn lease(&self, sort: StoreSort, now: Instant) -> Lease {
        if let Leases::Bound(_) = sort.leases {
            Lease::Session
        } else {
            Lease::For(self.ends - now)
        }
    }
}
