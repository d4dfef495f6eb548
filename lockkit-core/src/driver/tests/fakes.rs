//! Four personalities of a store: leases that are polled, a queue with watch futures, a queue with hints, and a
//! pinned session that waits inside the store.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::{self, Instant};

use super::{
    ms,
    store::{Op, Store, lock},
};
use crate::{
    error::Result,
    name::LockName,
    options::MAX_TTL,
    spi::{
        Attachment, Attempt, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Grant, Holder, Inspection,
        Lease, LossReason, Mode, Noted, Outsiders, Pulse, Reissued, Released, Wait,
    },
    token::{FencingToken, OwnerId},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Leases; waiters poll.
    Ttl,
    /// A queue and session leases; waiters are woken by `changed()`.
    Queue,
    /// A queue and session leases; waiters and holders are rung.
    Push,
    /// Session leases; an attempt waits in the store.
    Pinned,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Ttl, Kind::Queue, Kind::Push, Kind::Pinned];

impl Kind {
    pub(super) fn has_queue(self) -> bool {
        matches!(self, Self::Queue | Self::Push)
    }
}

#[derive(Debug)]
pub(super) struct Fake {
    store: Arc<Store>,
    descriptor: Descriptor,
    kind: Kind,
    attaches: Option<Attaches>,
}

/// What a fake gives beside the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attaches {
    Note,
    /// A note that panics when its guard is dropped or released.
    Bomb,
    /// The backend has a bug.
    Panic,
    /// A note that takes a while to hear of it.
    Slow,
}

/// Tells the store's log of the drop of its guard.
#[derive(Debug)]
pub(super) struct Note {
    store: Arc<Store>,
    pub(super) owner: OwnerId,
    attaches: Attaches,
}

impl Attachment for Note {
    fn guard_dropped(&self) {
        if self.attaches == Attaches::Slow {
            thread::sleep(ms(50));
        }
        self.store.note(Op::GuardDropped, self.owner);
        assert_ne!(self.attaches, Attaches::Bomb, "as ordered");
    }

    fn guard_released(&self) {
        assert_ne!(self.attaches, Attaches::Bomb, "as ordered");
    }
}

impl Fake {
    pub(super) fn new(store: Arc<Store>, kind: Kind) -> Self {
        let (patience, min, max) = match kind {
            Kind::Ttl => (ms(0), ms(10), ms(200)),
            Kind::Queue | Kind::Push => (ms(0), ms(5_000), ms(5_000)),
            Kind::Pinned => (ms(1_000), ms(1), ms(1)),
        };
        let descriptor = Descriptor::new("fake")
            .with_capabilities(match kind {
                Kind::Ttl => Capabilities::none().with_exclusive().with_notes().with_extend(),
                _ => Capabilities::none().with_exclusive().with_notes(),
            })
            .with_max_patience(patience)
            .with_poll(min, max);
        Self { store, descriptor, kind, attaches: None }
    }

    pub(super) fn with_cadence(mut self, longest: Duration, together: bool) -> Self {
        self.descriptor = self.descriptor.with_cadence(longest, together);
        self
    }

    /// Its attempts wait for as long as they may.
    pub(super) fn with_endless_patience(mut self) -> Self {
        self.descriptor = self.descriptor.with_max_patience(Duration::MAX).with_poll(ms(1), Duration::MAX);
        self
    }

    /// It claims to serve in order.
    pub(super) fn with_fair(mut self) -> Self {
        self.descriptor.capabilities = self.descriptor.capabilities.with_fair();
        self
    }

    /// It can hand over inside the process.
    pub(super) fn with_reissue(mut self) -> Self {
        self.descriptor.capabilities = self.descriptor.capabilities.with_reissue();
        self
    }

    pub(super) fn with_attachment(mut self, attaches: Attaches) -> Self {
        self.attaches = Some(attaches);
        self
    }
}

const NOBODY: OwnerId = OwnerId::new(0);

#[async_trait]
impl Backend for Fake {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        self.store.claims.fetch_add(1, SeqCst);
        lock(&self.store.callers).push(spec.caller.clone());
        let (store, kind, attaches) = (Arc::clone(&self.store), self.kind, self.attaches);
        Ok(Box::new(FakeClaim { store, spec, kind, attaches, former: None }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let look = async || {
            let rows = lock(&self.store.rows);
            let row = rows.get(name.as_str());
            let holder = row.and_then(|row| Some((row.live_owner()?, row.token)));
            let holders = holder.map(|(owner, token)| {
                Holder::new(Mode::Exclusive).with_grant(owner, FencingToken::new(token))
            });
            Inspection::new(holders.into_iter().collect(), None)
        };
        self.store.play(Op::Inspect, NOBODY, name.as_str(), look).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let free = async || {
            let owner = lock(&self.store.rows)
                .get(name.as_str())
                .filter(|row| row.token == token.get())
                .and_then(|row| row.live_owner());
            owner.map_or(Released::NotHeld, |owner| self.store.leave(name.as_str(), owner))
        };
        self.store.play(Op::ForceRelease, NOBODY, name.as_str(), free).await
    }

    async fn close(&self) -> Result<()> {
        let note = async || lock(&self.store.claims_at_close).push(self.store.live_claims());
        self.store.play(Op::Close, NOBODY, "", note).await
    }
}

#[derive(Debug)]
struct FakeClaim {
    store: Arc<Store>,
    spec: ClaimSpec,
    kind: Kind,
    attaches: Option<Attaches>,
    /// The owner before a hand-over that got no answer.
    former: Option<OwnerId>,
}

impl FakeClaim {
    fn lasts(&self) -> Option<Duration> {
        (self.kind == Kind::Ttl).then_some(self.spec.ttl)
    }

    fn lease(&self) -> Lease {
        self.store.lease().unwrap_or_else(|| self.lasts().map_or(Lease::Session, Lease::For))
    }

    /// Whether the queue lets this owner through.
    fn queue_up(&self, wait: Wait) -> bool {
        if !self.kind.has_queue() {
            return true;
        }
        let owner = self.spec.owner;
        let mut rows = lock(&self.store.rows);
        let row = rows.entry(self.spec.name.as_str().to_owned()).or_default();
        if !row.queue.contains(&owner) {
            if wait == Wait::No && !row.queue.is_empty() {
                return false;
            }
            row.queue.push_back(owner);
            if self.kind == Kind::Push {
                row.hints.push((owner, self.spec.hint.clone()));
            }
        }
        row.queue.front() == Some(&owner)
    }

    async fn compete(&self, wait: Wait) -> Option<u64> {
        let patience = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
        let stop = Instant::now() + patience.min(MAX_TTL);
        let _waits = (!patience.is_zero()).then(|| self.store.waits());
        loop {
            let bell = self.store.bell.notified();
            if !self.queue_up(wait) {
                return None;
            }
            let granted = self.store.take(self.spec.name.as_str(), self.spec.owner, self.lasts());
            if granted.is_some() || Instant::now() >= stop {
                return granted;
            }
            tokio::select! {
                _ = time::timeout_at(stop, bell) => {}
                () = self.spec.caller.gone() => return None,
            }
        }
    }

    fn renew(&self, lasts: Option<Duration>) -> Pulse {
        let mut rows = lock(&self.store.rows);
        let row =
            rows.get_mut(self.spec.name.as_str()).filter(|row| row.live_owner() == Some(self.spec.owner));
        let Some(row) = row else { return Pulse::Lost(LossReason::Evicted) };
        let now = Instant::now();
        row.until = lasts.map(|lasts| (now + lasts).max(row.until.unwrap_or(now)));
        let lease = row.until.map_or(Lease::Session, |until| Lease::For(until - now));
        Pulse::Alive(self.store.lease().unwrap_or(lease))
    }
}

#[async_trait]
impl Claim for FakeClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let (owner, name) = (self.spec.owner, self.spec.name.as_str());
        let token = self.store.play(Op::Attempt, owner, name, async || self.compete(wait).await).await?;
        Ok(match token {
            Some(token) => Attempt::Granted(Grant { token: FencingToken::new(token), lease: self.lease() }),
            None => Attempt::Busy { queued: self.kind.has_queue() && wait == Wait::Queue, retry_after: None },
        })
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        let (owner, name) = (self.spec.owner, self.spec.name.as_str());
        self.store.play(Op::KeepAlive, owner, name, async || self.renew(self.lasts())).await
    }

    async fn extend(&mut self, lease: Duration) -> Result<Pulse> {
        let (owner, name) = (self.spec.owner, self.spec.name.as_str());
        self.store.play(Op::Extend, owner, name, async || self.renew(Some(lease))).await
    }

    async fn release(&mut self) -> Result<Released> {
        let (owner, name) = (self.spec.owner, self.spec.name.as_str());
        let leave = async || {
            let former = self.former.map(|former| self.store.leave(name, former));
            let present = self.store.leave(name, owner);
            if former == Some(Released::Freed) { Released::Freed } else { present }
        };
        self.store.play(Op::Release, owner, name, leave).await
    }

    /// It is kept by nobody.
    async fn write_note(&mut self, _: &crate::spi::Note) -> Result<Noted> {
        let (owner, name) = (self.spec.owner, self.spec.name.as_str());
        let is_held = async || self.store.holder(name) == Some(owner);
        let is_held = self.store.play(Op::WriteNote, owner, name, is_held).await?;
        Ok(if is_held { Noted::Written } else { Noted::NotHeld })
    }

    async fn reissue(&mut self, to: &ClaimSpec, outsiders: Outsiders) -> Result<Reissued> {
        let (from, name) = (self.spec.owner, to.name.as_str());
        lock(&self.store.outsiders).push(outsiders);
        *lock(&self.store.heir) = Some(to.hint.clone());
        self.spec.clone_from(to);
        self.former = Some(from);
        let hand_over = async || {
            if outsiders == Outsiders::First {
                return match self.store.leave(name, from) {
                    Released::Freed => Reissued::Yielded,
                    Released::NotHeld => Reissued::NotHeld,
                };
            }
            let token = self.store.reissue(name, from, to.owner, self.lasts());
            token.map_or(Reissued::NotHeld, |token| {
                Reissued::Granted(Grant { token: FencingToken::new(token), lease: self.lease() })
            })
        };
        let answer = self.store.play(Op::Reissue, from, name, hand_over).await?;
        self.former = None;
        Ok(answer)
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        let attaches = self.attaches?;
        let owner = self.spec.owner;
        self.store.note(Op::Attachment, owner);
        assert_ne!(attaches, Attaches::Panic, "as ordered");
        Some(Arc::new(Note { store: Arc::clone(&self.store), owner, attaches }))
    }

    async fn changed(&mut self) {
        if self.kind == Kind::Queue {
            let (owner, name) = (self.spec.owner, self.spec.name.as_str());
            let rung = self.store.bell.notified();
            let _ = self.store.play(Op::Changed, owner, name, async || rung.await).await;
        } else {
            std::future::pending().await
        }
    }
}

impl Drop for FakeClaim {
    fn drop(&mut self) {
        self.store.claims.fetch_sub(1, SeqCst);
    }
}
