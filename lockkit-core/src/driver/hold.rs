//! The state of one claim that guard, keeper, loss signal and wake-up share.

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        },
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::{Mutex, Notify};
use tracing::{Level, Span};

use super::{
    flags::{CallerGone, Offered, WakeFlag, WakeTarget},
    live::LiveClaim,
    locker_state::LockerState,
    pacing::{self, UNCLAIMED},
};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind},
    name::LockName,
    observe::What,
    options::{CheckedOptions, Limits, Renewal},
    spi::{Attachment, Attendance, Lease, LossReason, Mode, Wakeable, with_drift},
    token::{FencingToken, OwnerId},
};

/// Names one turn, one hold, or one place in line: later ones are larger.
pub(super) type Ticket = NonZeroU64;

/// What a hold tells the layers above it.
pub(crate) trait HoldListener: Send + Sync {
    /// What the claims of its locker share.
    fn locker(&self) -> &LockerState;

    /// The store woke the holder, because the lock may be lost.
    fn woken(&self, held: Arc<Hold>);

    /// The hold keeps nobody of this process out any more.
    fn left(&self, held: &Hold, ticket: Ticket);
}

/// Where the timer of a hold stands in the agenda. Removal is exact: no stale entries are left to
/// be purged.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(super) id: u64,
    /// [`Tick::NEVER`]: not in the agenda.
    pub(super) due: AtomicU64,
}

impl Timer {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, due: AtomicU64::new(Tick::NEVER.nanos()) }
    }

    /// Whether it is not in the agenda: a renewal works on the hold, or waits for its claim.
    pub(super) fn is_out(&self) -> bool {
        self.due.load(Relaxed) == Tick::NEVER.nanos()
    }
}

/// A span with the fields that all of lockkit's have.
macro_rules! lock_span {
    ($level:expr, $name:literal, $held:expr) => {
        tracing::span!(
            $level,
            $name,
            lock.name = $held.name.as_str(),
            lock.kind = $held.name.kind().as_str(),
            backend = $held.locker().store,
            group = $held.options.options.group.as_deref(),
            token = $held.token().get(),
        )
    };
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    GivenBack,
    Lost(LossReason),
}

/// One claim, from before its first attempt to after its release.
pub(crate) struct Hold {
    pub(crate) name: LockName,
    /// As it asks for the lock.
    pub(super) asks_as: OwnerId,
    pub(crate) mode: Mode,
    pub(super) options: Arc<CheckedOptions>,
    listener: Arc<dyn HoldListener>,
    /// FIFO: whoever has the lock works on the claim, the others join. A release takes the claim
    /// out, so that a renewal that was not started yet finds nothing. It unlocks when a future that
    /// holds it is dropped.
    pub(crate) slot: Mutex<Option<LiveClaim>>,
    /// Wakes the waiter before the grant, and the loss signals after it.
    pub(crate) signal: Notify,
    /// Where its timer stands in the agenda; changed only under the agenda's lock.
    pub(crate) timer: Timer,
    /// Once it is granted, a pending wake-up makes the next renewal due at
    /// once.
    pub(super) woken: WakeFlag,
    /// How often its release was put back into the agenda.
    pub(crate) comebacks: AtomicU8,
    /// How many renewals in a row had an unknown outcome.
    pub(crate) unknown_renewals: AtomicU8,
    /// Its timer never goes back into the agenda; changed only under the agenda's lock.
    pub(crate) retired: AtomicBool,
    /// It goes on without a guard; changed only under the agenda's lock.
    pub(super) leaked: AtomicBool,
    token: AtomicU64,
    /// [`Tick::NEVER`] before the grant.
    granted_at: AtomicU64,
    /// When the lease ends without another renewal.
    lease_end: AtomicU64,
    ending: OnceLock<Ending>,
    extras: OnceLock<Box<Extras>>,
    /// With which it keeps the process gate closed; zero: it does not.
    ticket: AtomicU64,
    unclaimed: Offered,
    abandoned: CallerGone,
}

/// What few stores say of a grant; boxed, as most do not.
#[derive(Debug)]
struct Extras {
    attachment: Option<Arc<dyn Attachment>>,
    /// As it has the lock, if that is not as it asked for it.
    owner: Option<OwnerId>,
}

impl Hold {
    pub(crate) fn new(
        name: LockName,
        mode: Mode,
        options: Arc<CheckedOptions>,
        listener: Arc<dyn HoldListener>,
    ) -> Self {
        Self {
            name,
            asks_as: OwnerId::random(),
            mode,
            options,
            slot: Mutex::new(None),
            signal: Notify::new(),
            timer: Timer::new(listener.locker().next_id()),
            listener,
            woken: WakeFlag::new(),
            comebacks: AtomicU8::new(0),
            unknown_renewals: AtomicU8::new(0),
            retired: AtomicBool::new(false),
            leaked: AtomicBool::new(false),
            token: AtomicU64::new(0),
            granted_at: AtomicU64::new(Tick::NEVER.nanos()),
            lease_end: AtomicU64::new(Tick::NEVER.nanos()),
            ending: OnceLock::new(),
            extras: OnceLock::new(),
            ticket: AtomicU64::new(0),
            unclaimed: Offered::new(),
            abandoned: CallerGone::new(),
        }
    }

    /// From here on a wake-up asks for a renewal; before, it is for the waiter. One that came
    /// during the attempt is found by the insert of the first renewal.
    pub(crate) fn grant(&self, token: FencingToken) {
        self.token.store(token.get(), Relaxed);
        self.granted_at.store(self.locker().clock.now().nanos(), Release);
        self.woken.grant();
    }

    pub(crate) fn locker(&self) -> &LockerState {
        self.listener.locker()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    /// The owner that the store knows.
    pub(crate) fn owner(&self) -> OwnerId {
        self.extras.get().and_then(|extras| extras.owner).unwrap_or(self.asks_as)
    }

    /// Notes what the store says beside a grant.
    pub(super) fn record(&self, attachment: Option<Arc<dyn Attachment>>, owner: Option<OwnerId>) {
        if attachment.is_some() || owner.is_some() {
            // Granted once.
            let _ = self.extras.set(Box::new(Extras { attachment, owner }));
        }
    }

    pub(crate) fn token(&self) -> FencingToken {
        FencingToken::new(self.token.load(Relaxed))
    }

    /// When the hold ends without another renewal.
    pub(crate) fn deadline(&self) -> Tick {
        self.lease_end().min(self.cap())
    }

    /// When the store may have let go of it at the earliest; [`Tick::NEVER`] if only its session
    /// can end it. Later than the [deadline](Self::deadline) if the hold is ended before.
    pub(crate) fn lease_end(&self) -> Tick {
        Tick::from_nanos(self.lease_end.load(Acquire))
    }

    /// The [deadline](Self::deadline), or when a shutdown that has begun ends the hold, if that is
    /// earlier.
    pub(crate) fn end_in_sight(&self) -> Tick {
        self.deadline().min(self.closing_end())
    }

    /// When a shutdown that has begun ends this hold. Nobody will give back what was leaked.
    pub(super) fn closing_end(&self) -> Tick {
        match self.locker().draining_since() {
            Some(since) if self.leaked.load(Relaxed) => since,
            Some(since) => since.after(self.limits().ttl),
            None => Tick::NEVER,
        }
    }

    /// When a hold that was granted or renewed just now is due for its next renewal.
    pub(super) fn next_renewal(&self, now: Tick) -> Tick {
        match self.options.options.renewal() {
            Renewal::Auto => pacing::next_renewal(
                self.locker().renewal_pacing,
                self.limits().ttl,
                self.lease_end(),
                now,
            ),
            Renewal::Manual => self.deadline(),
        }
    }

    pub(super) fn granted_at(&self) -> Tick {
        Tick::from_nanos(self.granted_at.load(Acquire))
    }

    /// When the hold ends however often it is renewed.
    fn cap(&self) -> Tick {
        self.granted_at().after(self.limits().max_hold)
    }

    /// Counts a lease from before its request, `asked`, and returns its new end (C3). Never call
    /// this under the agenda's lock.
    pub(crate) fn extend(&self, asked: Tick, lease: Lease) -> Tick {
        let end = lease.deadline(asked);
        let before = self.lease_end.swap(end.nanos(), AcqRel);
        // Rare: that of a quorum shrinks when a member has lost its part. Who sleeps until the end
        // looks anew.
        if end.nanos() < before && self.woken.is_granted() {
            self.signal.notify_waiters();
        }
        end
    }

    /// The lease that, asked for at `asked`, ends with the present one; zero where a lease has no
    /// end.
    pub(super) fn lease_left(&self, asked: Tick) -> Duration {
        match self.lease_end() {
            Tick::NEVER => Duration::ZERO,
            end => with_drift(asked.until(end)),
        }
    }

    /// Exact against the deadline, and sticky: once it was seen false, a late renewal can't revive
    /// the lock.
    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long it is held without another renewal; zero once it is lost or given back.
    pub(crate) fn remaining(&self) -> Duration {
        if self.ending.get().is_some() {
            return Duration::ZERO;
        }
        let left = self.locker().clock.now().until(self.deadline());
        if left.is_zero() {
            self.lose(match () {
                () if self.cap() <= self.lease_end() => LossReason::MaxHold,
                () if self.locker().is_draining() => LossReason::Closed,
                () => LossReason::Expired,
            });
        }
        left
    }

    /// As [`is_held`](Self::is_held), without noticing a loss.
    pub(super) fn stands_at(&self, now: Tick) -> bool {
        self.ending.get().is_none() && now < self.deadline()
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        Ticket::new(self.ticket.load(SeqCst))
    }

    pub(super) fn set_ticket(&self, ticket: Ticket) {
        self.ticket.store(ticket.get(), SeqCst);
    }

    /// Opens the process gate for the next one. Never call this under the agenda's lock.
    pub(super) fn pass_on(&self) {
        if let Some(ticket) = Ticket::new(self.ticket.swap(0, SeqCst)) {
            self.listener.left(self, ticket);
        }
    }

    pub(super) fn leave_unclaimed(&self) {
        self.unclaimed.leave();
    }

    /// When it is taken back unless its caller looks.
    pub(super) fn unclaimed_until(&self) -> Tick {
        if !self.unclaimed.is_there() {
            return Tick::NEVER;
        }
        self.granted_at().after(UNCLAIMED)
    }

    /// True for the one who is the first to take, or to give back, what was transferred.
    pub(super) fn claim_it(&self) -> bool {
        self.unclaimed.take()
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending.get().copied()
    }

    /// Never call this under the agenda's lock: what it wakes may drop a guard.
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.ending.set(Ending::Lost(reason)).is_err() {
            return;
        }
        self.signal.notify_waiters();
        self.pass_on();
        if self.unclaimed.is_still_there() {
            return; // nobody ever had it
        }
        let token = self.token();
        let span = lock_span!(Level::WARN, "lockkit.lost", self);
        span.in_scope(|| tracing::warn!("lock lost: {reason}"));
        self.observe(|| What::Lost { token, reason, held: self.age() });
    }

    pub(crate) fn attachment(&self) -> Option<&Arc<dyn Attachment>> {
        self.extras.get()?.attachment.as_ref()
    }

    /// The caller has gone: an attempt in flight need not wait inside the store any more.
    pub(crate) fn abandon(&self) {
        self.abandoned.set();
    }

    /// The holder is done with it: no loss is signalled any more. False if a loss came first, which
    /// stays a loss.
    pub(crate) fn give_back(&self) -> bool {
        let in_time = self.ending.set(Ending::GivenBack).is_ok();
        if in_time {
            self.observe(|| What::GivenBack { token: self.token(), held: self.age() });
        }
        in_time
    }

    /// Nobody ever had it, so nobody hears of its end.
    pub(super) fn end_unseen(&self) {
        // Lost before, it is over all the same.
        let _ = self.ending.set(Ending::GivenBack);
    }

    /// How long ago it was granted.
    fn age(&self) -> Duration {
        self.granted_at().until(self.locker().clock.now())
    }

    /// Never call this under the agenda's lock.
    pub(super) fn observe<'a>(&'a self, what: impl FnOnce() -> What<'a>) {
        self.locker().observe(&self.name, self.options.options.group.as_ref(), what);
    }

    pub(super) fn renew_span(&self) -> Span {
        lock_span!(Level::DEBUG, "lockkit.renew", self)
    }

    pub(super) fn release_span(&self) -> Span {
        lock_span!(Level::DEBUG, "lockkit.release", self)
    }

    /// Adds what is known here to an error of the store.
    pub(crate) fn explain(&self, error: Error, operation: &'static str) -> Error {
        error.with_operation(operation).with_backend(self.locker().store).with_name(&self.name)
    }

    pub(crate) fn lost_error(&self) -> Error {
        let reason = match self.ending() {
            Some(Ending::Lost(reason)) => reason,
            Some(Ending::GivenBack) => {
                return Error::new(ErrorKind::Lost, "the lock was given back before");
            }
            None => LossReason::Evicted,
        };
        lost_as(reason)
    }
}

/// What every call tells that needs a lock which is lost.
pub(crate) fn lost_as(reason: LossReason) -> Error {
    Error::new(ErrorKind::Lost, format!("the lock was lost: {reason}"))
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.pass_on();
    }
}

impl Wakeable for Hold {
    fn wake(self: Arc<Self>) {
        match self.woken.wake() {
            WakeTarget::Waiter => self.signal.notify_one(),
            WakeTarget::Keeper => {
                // The reference moves to the keeper: a claim must not be dropped inside the
                // backend's call.
                let listener = Arc::clone(&self.listener);
                listener.woken(self);
            }
            WakeTarget::Nobody => {}
        }
    }
}

impl Attendance for Hold {
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.abandoned.poll(cx)
    }
}
