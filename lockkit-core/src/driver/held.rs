//! The state of one claim that guard, background task, loss signal and wake-up share.

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
    listening::Listening,
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

/// The number of one turn, one hold, or one place in line. Later numbers are larger.
pub(super) type Ticket = NonZeroU64;

/// The calls that a hold makes to the layers above it.
pub(crate) trait HoldListener: Send + Sync {
    /// The state that the claims of its locker share.
    fn locker(&self) -> &LockerState;

    /// The store woke the holder, because the lock may be lost.
    fn woken(&self, held: Arc<Held>);

    /// The hold no longer keeps other tasks of this process out.
    fn left(&self, held: &Held, ticket: Ticket);
}

/// The place of a hold's timer in the agenda. A timer is removed exactly, so the agenda keeps no
/// stale entries.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(super) id: u64,
    /// [`Tick::NEVER`] while the timer is not in the agenda.
    pub(super) due: AtomicU64,
}

impl Timer {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, due: AtomicU64::new(Tick::NEVER.nanos()) }
    }

    /// Whether the timer is not in the agenda, because a renewal works on the hold or waits for its
    /// claim.
    pub(super) fn is_out(&self) -> bool {
        self.due.load(Relaxed) == Tick::NEVER.nanos()
    }
}

/// Makes a span with the fields that all spans of lockkit have.
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
pub(crate) struct Held {
    pub(crate) name: LockName,
    /// The owner under which the hold asks for the lock.
    pub(super) asks_as: OwnerId,
    pub(crate) mode: Mode,
    pub(super) options: Arc<CheckedOptions>,
    listener: Arc<dyn HoldListener>,
    /// The claim. The lock is FIFO: the task that has it works on the claim, and the other tasks
    /// wait. A release takes the claim out, so that a renewal that has not started finds nothing.
    /// The lock is freed when a future that has it is dropped.
    pub(crate) slot: Mutex<Option<LiveClaim>>,
    /// Wakes the waiter before the grant, and the loss signals after it.
    pub(crate) signal: Notify,
    /// The place of its timer in the agenda; changed only under the agenda's lock.
    pub(crate) timer: Timer,
    /// After the grant, a pending wake-up makes the next renewal due at once.
    pub(super) woken: WakeFlag,
    /// How often its release was put back into the agenda.
    pub(crate) comebacks: AtomicU8,
    /// A release has asked the store to transfer the lock to this claim, and the store may have done
    /// so.
    pub(super) in_transfer: AtomicBool,
    /// How many renewals in a row had an unknown outcome.
    pub(crate) unknown_renewals: AtomicU8,
    /// True: its timer never returns to the agenda. Changed only under the agenda's lock.
    pub(crate) retired: AtomicBool,
    /// True: it is held without a guard. Changed only under the agenda's lock.
    pub(super) leaked: AtomicBool,
    token: AtomicU64,
    /// [`Tick::NEVER`] before the grant.
    granted_at: AtomicU64,
    /// When the lease ends without another renewal.
    lease_end: AtomicU64,
    ending: OnceLock<Ending>,
    /// Set before the grant, or after it by the first call that listens.
    extras: OnceLock<Box<Extras>>,
    /// The ticket with which it keeps the process gate closed; zero if it does not.
    ticket: AtomicU64,
    unclaimed: Offered,
    abandoned: CallerGone,
}

/// The parts that few holds have. They are boxed, because most holds have none.
#[derive(Debug, Default)]
struct Extras {
    attachment: Option<Arc<dyn Attachment>>,
    /// The owner that has the lock, if it is not the one that asked for it.
    owner: Option<OwnerId>,
    /// Whether an attempt before the grant got no answer.
    is_unsettled: bool,
    /// Set by the first call that listens for requests to release the hold.
    listening: OnceLock<Box<Listening>>,
}

impl Held {
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
            in_transfer: AtomicBool::new(false),
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

    /// Marks the hold as granted. Before this call a wake-up is for the waiter; after it, a wake-up
    /// asks for a renewal. The insert of the first renewal finds a wake-up that came during the
    /// attempt.
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

    /// Keeps what the store gives with a grant, and whether an attempt before it got no answer.
    pub(super) fn record(
        &self,
        attachment: Option<Arc<dyn Attachment>>,
        owner: Option<OwnerId>,
        is_unsettled: bool,
    ) {
        if attachment.is_some() || owner.is_some() || is_unsettled {
            let extras = Extras { attachment, owner, is_unsettled, ..Extras::default() };
            // Set only once, because a hold is granted only once.
            let _ = self.extras.set(Box::new(extras));
        }
    }

    /// When no attempt of this hold can arrive any more. Each attempt has a time after which the
    /// store ignores it, and was sent before the grant.
    pub(super) fn settled_at(&self) -> Tick {
        let granted = self.granted_at();
        if self.extras.get().is_some_and(|extras| extras.is_unsettled) {
            granted.after(self.limits().op_timeout)
        } else {
            granted
        }
    }

    pub(crate) fn token(&self) -> FencingToken {
        FencingToken::new(self.token.load(Relaxed))
    }

    /// When the hold ends without another renewal.
    pub(crate) fn deadline(&self) -> Tick {
        self.lease_end().min(self.cap())
    }

    /// The earliest time at which the store may free the lock; [`Tick::NEVER`] if only its session
    /// can end it. The [deadline](Self::deadline) is earlier if `max_hold` ends the hold first.
    pub(crate) fn lease_end(&self) -> Tick {
        Tick::from_nanos(self.lease_end.load(Acquire))
    }

    /// The [deadline](Self::deadline), or the time when a shutdown that has begun ends the hold, if
    /// that is earlier.
    pub(crate) fn end_in_sight(&self) -> Tick {
        self.deadline().min(self.closing_end())
    }

    /// When a shutdown that has begun ends this hold. A leaked hold ends when the shutdown begins,
    /// because it has no guard that will give it back.
    pub(super) fn closing_end(&self) -> Tick {
        match self.locker().draining_since() {
            Some(since) if self.leaked.load(Relaxed) => since,
            Some(since) => since.after(self.limits().ttl),
            None => Tick::NEVER,
        }
    }

    /// When a hold that was granted or renewed at `now` is due for its next renewal.
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

    /// When the hold ends, however often it is renewed.
    fn cap(&self) -> Tick {
        self.granted_at().after(self.limits().max_hold)
    }

    /// Counts a lease from `asked`, the time before its request, and returns the new end (C3).
    /// Never call this under the agenda's lock.
    pub(crate) fn extend(&self, asked: Tick, lease: Lease) -> Tick {
        let end = lease.deadline(asked);
        let before = self.lease_end.swap(end.nanos(), AcqRel);
        // Rare: the lease of a quorum shrinks when a member has lost its part. A task that sleeps
        // until the end must look again.
        if end.nanos() < before && self.woken.is_granted() {
            self.signal.notify_waiters();
        }
        end
    }

    /// The lease that ends with the present lease if it is asked for at `asked`; zero if the
    /// present lease has no end.
    pub(super) fn lease_left(&self, asked: Tick) -> Duration {
        match self.lease_end() {
            Tick::NEVER => Duration::ZERO,
            end => with_drift(asked.until(end)),
        }
    }

    /// Compares with the deadline exactly. Once the answer is false, a late renewal cannot revive
    /// the lock.
    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lock is held without another renewal; zero once it is lost or given back.
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

    /// As [`is_held`](Self::is_held), but does not record a loss.
    pub(super) fn stands_at(&self, now: Tick) -> bool {
        self.ending.get().is_none() && now < self.deadline()
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        Ticket::new(self.ticket.load(SeqCst))
    }

    pub(super) fn set_ticket(&self, ticket: Ticket) {
        self.ticket.store(ticket.get(), SeqCst);
    }

    /// Opens the process gate for the next task. Never call this under the agenda's lock.
    pub(super) fn pass_on(&self) {
        if let Some(ticket) = Ticket::new(self.ticket.swap(0, SeqCst)) {
            self.listener.left(self, ticket);
        }
    }

    pub(super) fn leave_unclaimed(&self) {
        self.unclaimed.leave();
    }

    /// When the lock is given back, unless its caller looks before.
    pub(super) fn unclaimed_until(&self) -> Tick {
        if !self.unclaimed.is_there() {
            return Tick::NEVER;
        }
        self.granted_at().after(UNCLAIMED)
    }

    /// True for the first caller: it takes what was transferred, or gives it back.
    pub(super) fn claim_it(&self) -> bool {
        self.unclaimed.take()
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending.get().copied()
    }

    /// Marks the lock as lost. Never call this under the agenda's lock, because a task that it
    /// wakes may drop a guard.
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.ending.set(Ending::Lost(reason)).is_err() {
            return;
        }
        self.signal.notify_waiters();
        self.pass_on();
        if self.unclaimed.is_still_there() {
            return; // no caller ever had it
        }
        let token = self.token();
        let span = lock_span!(Level::WARN, "lockkit.lost", self);
        span.in_scope(|| tracing::warn!("lock lost: {reason}"));
        self.observe(|| What::Lost { token, reason, held: self.age() });
    }

    /// The state of the calls that listen for requests to release this hold.
    pub(crate) fn listening(&self) -> &Listening {
        let extras = self.extras.get_or_init(Box::default);
        extras.listening.get_or_init(|| Box::new(Listening::new(self.granted_at())))
    }

    pub(crate) fn attachment(&self) -> Option<&Arc<dyn Attachment>> {
        self.extras.get()?.attachment.as_ref()
    }

    /// The caller dropped its call: an attempt in flight need not wait inside the store any longer.
    pub(crate) fn abandon(&self) {
        self.abandoned.set();
    }

    /// The holder gives the lock back, so no loss is signalled any more. Returns false if a loss
    /// came first; the loss then counts. Never call this under the agenda's lock.
    pub(crate) fn give_back(&self) -> bool {
        let in_time = self.ending.set(Ending::GivenBack).is_ok();
        if in_time {
            if self.extras.get().is_some_and(|extras| extras.listening.get().is_some()) {
                self.signal.notify_waiters();
            }
            self.observe(|| What::GivenBack { token: self.token(), held: self.age() });
        }
        in_time
    }

    /// Ends a hold that no caller ever had, without an event.
    pub(super) fn end_unseen(&self) {
        // If it was lost before, it has ended already.
        let _ = self.ending.set(Ending::GivenBack);
    }

    /// How long ago the lock was granted.
    fn age(&self) -> Duration {
        self.granted_at().until(self.locker().clock.now())
    }

    /// Reports an event to the observers. Never call this under the agenda's lock.
    pub(super) fn observe<'a>(&'a self, what: impl FnOnce() -> What<'a>) {
        self.locker().observe(&self.name, self.options.options.group.as_ref(), what);
    }

    pub(super) fn renew_span(&self) -> Span {
        lock_span!(Level::DEBUG, "lockkit.renew", self)
    }

    pub(super) fn release_span(&self) -> Span {
        lock_span!(Level::DEBUG, "lockkit.release", self)
    }

    /// Adds the operation, the store and the name to an error of the store.
    pub(crate) fn explain(&self, error: Error, operation: &'static str) -> Error {
        error.with_operation(operation).with_backend(self.locker().store).with_name(&self.name)
    }

    pub(crate) fn lost_error(&self) -> Error {
        let reason = match self.ending() {
            Some(Ending::Lost(reason)) => reason,
            Some(Ending::GivenBack) => {
                return Error::new(
                    ErrorKind::Lost,
                    "the hold was given up before this call, by a release or a ticket; take the \
                     lock again",
                );
            }
            None => LossReason::Evicted,
        };
        lost_as(reason)
    }
}

/// The error of every call that needs the lock after it was lost.
pub(crate) fn lost_as(reason: LossReason) -> Error {
    Error::new(ErrorKind::Lost, format!("the lock was lost: {reason}"))
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pass_on();
    }
}

impl Wakeable for Held {
    fn wake(self: Arc<Self>) {
        match self.woken.wake() {
            WakeTarget::Waiter => self.signal.notify_one(),
            WakeTarget::Keeper => {
                // The background task gets the reference, because a claim must not be dropped
                // inside the backend's call.
                let listener = Arc::clone(&self.listener);
                listener.woken(self);
            }
            WakeTarget::Nobody => {}
        }
    }
}

impl Attendance for Held {
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.abandoned.poll(cx)
    }
}
