//! Builds a locker from the settings that must be chosen before its first use.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::Locker;
use crate::{
    clock::Clock,
    driver::{agenda::Agenda, keeper::Keeper, locker_state::LockerState, worker::work},
    observe::Observer,
    options::CheckedOptions,
    spi::Backend,
};

/// A locker in the making: its clock, its observers, and the base of its tokens.
///
/// The locker keeps these settings for good, because its locks and its background task rely on them
/// from the first use. [`Locker::builder`] makes a builder, and
/// [`Registry::builder`](crate::Registry::builder) makes one from a URL.
///
/// ```
/// use std::sync::Arc;
/// use lockkit_core::{Clock, Locker, Memory};
///
/// let store = Arc::new(Memory::with_clock(Clock::Tokio));
/// let locker = Locker::builder(store).clock(Clock::Tokio).token_base(1_000).build();
/// ```
#[must_use = "it makes no locker before `build`"]
#[derive(Debug)]
pub struct LockerBuilder {
    backend: Arc<dyn Backend>,
    clock: Clock,
    observers: Vec<Arc<dyn Observer>>,
    token_base: u64,
    gated: bool,
    defaults: Arc<CheckedOptions>,
}

impl LockerBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            clock: Clock::Boot,
            observers: Vec::new(),
            token_base: 0,
            gated: true,
            defaults: Arc::default(),
        }
    }

    /// Sets the clock of all deadlines; [`Clock::Boot`] if it is not set.
    ///
    /// The embedded store counts on its own clock, which must be the same clock. So a test that
    /// pauses tokio's clock sets that clock here and in
    /// [`Memory::with_clock`](crate::Memory::with_clock).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Adds an observer. It hears each event after the observers that were added before it.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Reports to the recorder of the [`metrics`](::metrics) crate; [`Metrics`](crate::Metrics)
    /// lists what it reports. Needs the cargo feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(self) -> Self {
        let backend = self.backend.descriptor().name;
        self.observer(Arc::new(crate::metrics::Metrics::new(backend)))
    }

    /// Adds a number to every fencing token, so that tokens continue to rise after a move from
    /// another store ([C4](crate::contract#c4-fencing)).
    pub fn token_base(mut self, token_base: u64) -> Self {
        self.token_base = token_base;
        self
    }

    /// As [`Locker::with_process_gate`], for the parameter of a URL.
    pub(crate) fn gated(mut self, on: bool) -> Self {
        self.gated = on;
        self
    }

    /// As [`Locker::with_defaults`], for the parameters of a URL.
    pub(crate) fn defaults(mut self, defaults: CheckedOptions) -> Self {
        self.defaults = Arc::new(defaults);
        self
    }

    /// Makes the locker. Does no I/O.
    pub fn build(self) -> Locker {
        let Self { backend, clock, observers, token_base, gated, defaults } = self;
        let locker = LockerState::new(clock, &backend, token_base, observers);
        let agenda = Agenda::new(locker, backend.descriptor(), work);
        let keeper = Keeper::new(agenda, Arc::clone(&backend));
        let closed = Arc::new(OnceCell::new());
        Locker { backend, keeper, gated, defaults, closed }
    }
}
