//! The embedded backend: the model behind one mutex, on one clock.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;

use super::{claim::MemoryClaim, store::Store};
use crate::{
    clock::{Clock, Tick},
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
    spi::{
        Backend, Capabilities, Claim, ClaimSpec, Descriptor, Hint, Inspection, Mode, Note, Released, Role,
    },
    token::FencingToken,
};

/// A waiter is rung whenever it can be granted; the poll is only for leases that end in silence.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// One poll with its jitter of 25 %: that late may a waiter notice that a lease has ended.
const TAKEOVER_DELAY: Duration = Duration::from_millis(1_250);

static DESCRIPTOR: Descriptor = Descriptor::new("memory")
    .with_capabilities(
        Capabilities::none()
            .with_exclusive()
            .with_shared()
            .with_permits()
            .with_fair()
            .with_push()
            .with_waiter_count()
            .with_labels()
            .with_names()
            .with_notes()
            .with_time()
            .with_extend()
            .with_reissue()
            .with_raise_fence(),
    )
    .with_poll(POLL, POLL)
    .with_takeover_delay(TAKEOVER_DELAY);

/// The embedded store: locks between the tasks of one process.
///
/// A clone shares the store; two stores know nothing of each other. Dropping the last clone drops the store, with
/// every lock in it.
///
/// ```
/// use lockkit_core::{Locker, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let store = Memory::new();
/// let locker = Locker::new(store.clone());
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// assert_eq!(store.len(), 1); // a test sees what is left behind
/// guard.release().await?;
/// assert!(store.is_empty());
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

impl Memory {
    /// Makes an empty store on the [`Boot`](Clock::Boot) clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::Boot)
    }

    /// Makes an empty store on another clock; a locker on it must use the same one.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self::with_tokens_after(clock, wall_clock_micros())
    }

    pub(crate) fn with_tokens_after(clock: Clock, last: u64) -> Self {
        Self { shared: Arc::new(Shared { clock, store: Mutex::new(Store::new(last)) }) }
    }

    /// The number of names that somebody holds or waits for now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.with(Store::len)
    }

    /// True when nobody holds or waits for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

#[async_trait]
impl Backend for Memory {
    fn descriptor(&self) -> &Descriptor {
        &DESCRIPTOR
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        if spec.clock != self.shared.clock {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!(
                    "the locker counts time on the {:?} clock and its memory store on the {:?} clock; \
                     give both the same one",
                    spec.clock, self.shared.clock
                ),
            ));
        }
        if let Mode::Permits { count, limit } = spec.mode
            && count > limit
        {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("{count} permits are asked for, and there are only {limit}"),
            ));
        }
        Ok(Box::new(MemoryClaim::new(Arc::clone(&self.shared), spec)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        Ok(self.shared.with(|store, now, _| store.inspect(name, now)))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        Ok(self.shared.with(|store, now, wakes| store.force_release(name, token, now, wakes)))
    }

    async fn probe(&self) -> Result<Role> {
        Ok(Role::Primary)
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        Ok(self.shared.with(|store, now, _| store.names(kind, prefix, now)))
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        Ok(self.shared.with(|store, _, _| store.note(name)))
    }

    async fn time(&self) -> Result<SystemTime> {
        Ok(wall_clock())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// What all clones and claims share.
pub(super) struct Shared {
    clock: Clock,
    store: Mutex<Store>,
}

impl Shared {
    /// Works on the store at one instant, and rings whom that concerns once the store is free again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Store, Tick, &mut Vec<Hint>) -> T) -> T {
        let mut wakes = Vec::new();
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the mutex, so that the model never sees time go back.
        let now = self.clock.now();
        let answer = work(&mut store, now, &mut wakes);
        drop(store);
        wakes.iter().for_each(Hint::ring);
        answer
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "here the process is the server, and tokens follow its time")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn wall_clock_micros() -> u64 {
    let since_epoch = wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(0)
}
