//! The embedded backend: the model behind one mutex, with one clock.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;

use super::{claim::MemoryClaim, record::POLL, shared::Shared, store::Store};
use crate::{
    clock::Clock,
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
    spi::{
        Admin, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Inspection, Mode, Note, Poll,
        Released, Role,
    },
    token::FencingToken,
};

/// One poll with its jitter of 25 %: a waiter may notice the end of a lease this late.
const TAKEOVER_DELAY: Duration = Duration::from_millis(1_250);

static DESCRIPTOR: Descriptor = Descriptor {
    capabilities: Capabilities {
        exclusive: true,
        shared: true,
        permits: true,
        fair: true,
        push: true,
        waiter_count: true,
        labels: true,
        names: true,
        notes: true,
        time: true,
        extend: true,
        transfer: true,
        raise_token: true,
        tickets: true,
    },
    poll: Poll { min: POLL, max: POLL },
    takeover_delay: TAKEOVER_DELAY,
    ..Descriptor::new("memory")
};

/// The embedded store: locks between the tasks of one process.
///
/// A clone shares the store; two stores know nothing of each other. When the last clone is dropped,
/// the store and every lock in it are dropped.
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

    /// Makes an empty store on another clock. A locker over it must use the same clock.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self::with_tokens_after(clock, wall_clock_micros())
    }

    pub(crate) fn with_tokens_after(clock: Clock, last: u64) -> Self {
        Self { shared: Arc::new(Shared::new(clock, last)) }
    }

    /// The number of names that have a holder or a waiter now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.with(Store::len)
    }

    /// True if no name has a holder or a waiter.
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
                    "the locker uses the {:?} clock, and its memory store uses the {:?} clock; \
                     give both the same clock",
                    spec.clock, self.shared.clock
                ),
            ));
        }
        if let Mode::Permits { count, limit } = spec.mode
            && count > limit
        {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("the claim wants {count} permits, but the semaphore has only {limit}"),
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

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Admin for Memory {
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
}

#[expect(
    clippy::disallowed_methods,
    reason = "here the process is the server, and tokens follow its time"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn wall_clock_micros() -> u64 {
    let since_epoch = wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(0)
}
