//! What guard, keeper, loss signal and hint share of one claim.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::sync::{Mutex, Notify};

use super::{
    agenda::{Agenda, Timer},
    live::LiveClaim,
};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind},
    name::LockName,
    observe::Event,
    options::{Limits, Renewal},
    spi::{Attachment, Attendance, Lease, LossReason, Mode, Ring},
    token::{FencingToken, OwnerId},
};

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    GivenBack,
    Lost(LossReason),
}

/// One claim, from before its first attempt to after its release.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) mode: Mode,
    pub(crate) limits: Limits,
    pub(crate) renewal: Renewal,
    pub(crate) agenda: Arc<Agenda>,
    /// FIFO: whoever has the lock works on the claim, the others join. A release takes the claim out, so that a
    /// renewal that was not started yet finds nothing. It unlocks when a future that holds it is dropped.
    pub(crate) slot: Mutex<Option<LiveClaim>>,
    /// Wakes the waiter before the grant, and the loss signals after it.
    pub(crate) bell: Notify,
    /// Where its timer stands in the agenda; changed only under the agenda's lock.
    pub(crate) timer: Timer,
    /// A hint came that no attempt or renewal has looked after yet: the next renewal is due at once.
    pub(crate) rung: AtomicBool,
    /// How often its release was put back into the agenda.
    pub(crate) comebacks: AtomicU8,
    /// How many renewals in a row had an unknown outcome.
    pub(crate) unknown_renewals: AtomicU8,
    granted: AtomicBool,
    token: AtomicU64,
    deadline: AtomicU64,
    ending: OnceLock<Ending>,
    attachment: OnceLock<Arc<dyn Attachment>>,
    /// Where that is not `owner`, which is rare: boxed, as it is half as large.
    recorded_owner: OnceLock<Box<OwnerId>>,
    /// Nobody waits for the attempt in flight any more.
    abandoned: AtomicBool,
    attempting: AtomicWaker,
}

impl Held {
    pub(crate) fn new(
        name: LockName,
        mode: Mode,
        limits: Limits,
        renewal: Renewal,
        agenda: Arc<Agenda>,
    ) -> Self {
        Self {
            name,
            owner: OwnerId::random(),
            mode,
            limits,
            renewal,
            slot: Mutex::new(None),
            bell: Notify::new(),
            timer: Timer::new(agenda.next_id()),
            agenda,
            rung: AtomicBool::new(false),
            comebacks: AtomicU8::new(0),
            unknown_renewals: AtomicU8::new(0),
            granted: AtomicBool::new(false),
            token: AtomicU64::new(0),
            deadline: AtomicU64::new(Tick::NEVER.nanos()),
            ending: OnceLock::new(),
            attachment: OnceLock::new(),
            recorded_owner: OnceLock::new(),
            abandoned: AtomicBool::new(false),
            attempting: AtomicWaker::new(),
        }
    }

    /// From here on a hint asks for a renewal; before, it wakes the waiter. One that came during the attempt is
    /// found by the insert of the first renewal: `ring` and the grant each write before they read.
    pub(crate) fn grant(&self, token: FencingToken) {
        self.token.store(token.get(), Relaxed);
        self.granted.store(true, SeqCst);
    }

    pub(crate) fn token(&self) -> FencingToken {
        FencingToken::new(self.token.load(Relaxed))
    }

    pub(crate) fn deadline(&self) -> Tick {
        Tick::from_nanos(self.deadline.load(Acquire))
    }

    /// Counts a lease from before its request, `asked`, and returns the new deadline (C3).
    pub(crate) fn extend(&self, asked: Tick, lease: Lease) -> Tick {
        let deadline = deadline_of(asked, lease);
        self.deadline.store(deadline.nanos(), Release);
        deadline
    }

    /// Exact against the deadline, and sticky: once it was seen false, a late renewal can't revive the lock.
    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long it is held without another renewal; zero once it is lost or given back.
    pub(crate) fn remaining(&self) -> Duration {
        if self.ending.get().is_some() {
            return Duration::ZERO;
        }
        let left = self.agenda.clock.now().until(self.deadline());
        if left.is_zero() {
            let closed = self.agenda.is_draining();
            self.lose(if closed { LossReason::Closed } else { LossReason::Expired });
        }
        left
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending.get().copied()
    }

    /// Never call this under the agenda's lock: what it wakes may drop a guard.
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.ending.set(Ending::Lost(reason)).is_err() {
            return;
        }
        self.bell.notify_waiters();
        let (name, token) = (&self.name, self.token());
        tracing::warn!(%name, %token, store = self.agenda.store, "lock lost: {reason}");
        self.agenda.observe(|| Event::Lost { name, token, reason });
    }

    /// Who holds it, by the store's record.
    pub(crate) fn owner(&self) -> OwnerId {
        self.recorded_owner.get().map_or(self.owner, |owner| **owner)
    }

    pub(crate) fn record_owner(&self, owner: OwnerId) {
        // Granted once.
        let _ = self.recorded_owner.set(Box::new(owner));
    }

    pub(crate) fn attach(&self, attachment: Arc<dyn Attachment>) {
        // Granted once.
        let _ = self.attachment.set(attachment);
    }

    pub(crate) fn attachment(&self) -> Option<&Arc<dyn Attachment>> {
        self.attachment.get()
    }

    /// The caller has gone: an attempt in flight need not wait inside the store any more.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, SeqCst);
        self.attempting.wake();
    }

    /// The holder is done with it: no loss is signalled any more. False if a loss came first, which stays a loss.
    pub(crate) fn give_back(&self) -> bool {
        self.ending.set(Ending::GivenBack).is_ok()
    }

    /// Adds what is known here to an error of the store.
    pub(crate) fn explain(&self, error: Error, operation: &'static str) -> Error {
        error.with_operation(operation).with_backend(self.agenda.store).with_name(&self.name)
    }

    pub(crate) fn lost_error(&self) -> Error {
        let reason = match self.ending() {
            Some(Ending::Lost(reason)) => reason,
            _ => LossReason::Evicted,
        };
        Error::new(ErrorKind::Lost, format!("the lock was lost: {reason}"))
    }
}

impl Ring for Held {
    fn ring(self: Arc<Self>) {
        let known = self.rung.swap(true, SeqCst);
        if !self.granted.load(SeqCst) {
            self.bell.notify_one();
        } else if !known {
            // The reference moves to the keeper: a claim must not be dropped inside the backend's call.
            let agenda = Arc::clone(&self.agenda);
            agenda.rung(self);
        }
    }
}

impl Attendance for Held {
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.attempting.register(cx.waker());
        if self.abandoned.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Until when a lease counts that was proven by a request sent at `asked`.
pub(crate) fn deadline_of(asked: Tick, lease: Lease) -> Tick {
    match lease {
        Lease::For(lasts) => asked.after(less_drift(lasts)),
        Lease::Proven { at, lasts } => at.after(less_drift(lasts)),
        Lease::Session => Tick::NEVER,
    }
}

/// Both clocks may be off by 0.5 %, and the timers by 2 ms.
fn less_drift(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_a_lease_is_counted_less_one_percent_and_two_milliseconds() {
        assert_eq!(less_drift(Duration::from_secs(30)), Duration::from_millis(29_698));
        assert_eq!(less_drift(Duration::from_millis(2)), Duration::ZERO);
    }
}
