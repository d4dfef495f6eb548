//! The state that all claims of one locker share. It has the locker's clock, the facts of its store
//! and its observers. It also counts the live claims, because a shutdown ends with the last one.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::flags::LiveCount;
use crate::{
    ask,
    clock::{Clock, Tick},
    error::{Error, ErrorKind, Result},
    name::LockName,
    observe::{Event, Observer, What},
    spi::{Backend, RenewalPacing},
};

/// The part of a locker that every one of its claims needs.
pub(crate) struct LockerState {
    pub(crate) clock: Clock,
    /// The locker and the guards keep the backend. A claim or a view alone does not.
    backend: Weak<dyn Backend>,
    /// The number that is added to the tokens of the store.
    pub(crate) token_base: u64,
    /// The backend's short name, for errors and traces.
    pub(crate) store: &'static str,
    pub(crate) renewal_pacing: RenewalPacing,
    /// Whether the backend gives leases of another length than the ttl.
    pub(crate) extends: bool,
    /// Whether the store keeps notes beside its locks.
    pub(crate) notes: bool,
    /// Whether a claim of another process can continue a grant.
    pub(crate) tickets: bool,
    /// Whether the store carries requests to release a lock.
    pub(crate) requests: bool,
    /// How a lock ends if the store got no release. Errors and warnings quote this text.
    pub(crate) last_resort: &'static str,
    /// Wakes the background task.
    pub(super) work: Notify,
    /// Wakes waiters when the shutdown begins.
    pub(crate) closing: Notify,
    /// Wakes the shutdown when the last claim is gone, and when the background task is gone.
    pub(super) quiet: Notify,
    observers: Vec<Arc<dyn Observer>>,
    live: LiveCount,
    /// When the shutdown began; [`Tick::NEVER`] before.
    draining_since: AtomicU64,
    /// The longest ttl of any claim so far, in nanoseconds.
    longest_ttl: AtomicU64,
    ids: AtomicU64,
}

impl LockerState {
    pub(crate) fn new(
        clock: Clock,
        backend: &Arc<dyn Backend>,
        token_base: u64,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Self {
        let descriptor = backend.descriptor();
        Self {
            clock,
            backend: Arc::downgrade(backend),
            token_base,
            store: descriptor.name,
            renewal_pacing: descriptor.renewal_pacing,
            extends: descriptor.capabilities.extend,
            notes: descriptor.capabilities.notes,
            tickets: descriptor.capabilities.tickets,
            requests: ask::is_possible(&descriptor.capabilities),
            last_resort: descriptor.last_resort(),
            work: Notify::new(),
            closing: Notify::new(),
            quiet: Notify::new(),
            observers,
            live: LiveCount::new(),
            draining_since: AtomicU64::new(Tick::NEVER.nanos()),
            longest_ttl: AtomicU64::new(0),
            ids: AtomicU64::new(0),
        }
    }

    /// The backend; `None` after the last locker and the last guard were dropped.
    pub(crate) fn backend(&self) -> Option<Arc<dyn Backend>> {
        self.backend.upgrade()
    }

    /// Reports an event to the observers, unless it is about the mutex of a request, which is no
    /// lock of the user. Never call this under the agenda's lock.
    pub(crate) fn observe<'a>(
        &self,
        name: &'a LockName,
        group: Option<&'a Arc<str>>,
        what: impl FnOnce() -> What<'a>,
    ) {
        if self.observers.is_empty() || ask::is_ask(name) {
            return;
        }
        let event = Event { name, group, what: what() };
        for observer in &self.observers {
            // A panic of an observer must not harm a lock or another observer. The panic hook has
            // reported it.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.on_event(&event)));
        }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    /// Begins the shutdown, unless it has begun already. No claim is granted after this.
    pub(super) fn begin_draining(&self) {
        let now = self.clock.now().nanos();
        let never = Tick::NEVER.nanos();
        // If the shutdown had begun already, the first begin counts.
        let _ = self.draining_since.compare_exchange(never, now, SeqCst, SeqCst);
        self.live.drain();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.live.is_draining()
    }

    /// When the shutdown began, if it has.
    pub(crate) fn draining_since(&self) -> Option<Tick> {
        let since = Tick::from_nanos(self.draining_since.load(SeqCst));
        (since != Tick::NEVER).then_some(since)
    }

    /// # Errors
    /// The locker was shut down.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_draining() { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn closed(&self) -> Error {
        Error::new(ErrorKind::Closed, "the locker was shut down").with_backend(self.store)
    }

    pub(super) fn claim_born(&self, ttl: Duration) {
        self.live.born();
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        if self.longest_ttl.load(Relaxed) < ttl {
            self.longest_ttl.fetch_max(ttl, Relaxed);
        }
    }

    pub(super) fn claim_died(&self) {
        if self.live.died() {
            self.quiet.notify_waiters();
            self.work.notify_one();
        }
    }

    pub(crate) fn live_claims(&self) -> usize {
        self.live.live()
    }

    /// The longest ttl of any claim so far.
    pub(super) fn longest_ttl(&self) -> Duration {
        Duration::from_nanos(self.longest_ttl.load(Relaxed))
    }
}

impl fmt::Debug for LockerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockerState")
            .field("store", &self.store)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
