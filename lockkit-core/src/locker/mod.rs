//! The entry point: a store, its keeper, and the defaults of its locks.

mod builder;
pub(crate) mod operator;

pub use self::{builder::LockerBuilder, operator::Health};

use std::{fmt, sync::Arc};

use tokio::sync::OnceCell;

use crate::{
    driver::{
        finishing::Finishing,
        keeper::{Keeper, until_quiet},
    },
    error::{Error, ErrorKind, Result},
    memory::Memory,
    name::LockName,
    options::{CheckedOptions, LockOptions},
    spi::{Backend, Capabilities, Descriptor, bounded},
};

/// Makes locks that live in one store. Cheap to clone; all clones share one connection and one
/// background task.
///
/// A locker belongs to the tokio runtime that first used it: its background task runs there. When
/// that runtime has gone, the next lock, or one that waits, starts a new task on its own runtime.
/// The task takes back what dropped futures leave in the store
/// ([C6](crate::contract#c6-cancellation)).
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::{LockOptions, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let defaults = LockOptions::new().with_ttl(Duration::from_secs(10)).with_label("billing");
/// let locker = Locker::memory().with_defaults(defaults)?;
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// assert!(guard.remaining() < Duration::from_secs(10));
/// drop(guard);
/// locker.shutdown().await?; // waits for the release of what was only dropped
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locker {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) token_base: u64,
    pub(crate) gated: bool,
    pub(crate) defaults: Arc<CheckedOptions>,
    closed: Arc<OnceCell<()>>,
}

impl Locker {
    /// Makes a locker over a backend, without any of the choices of a [builder](Self::builder).
    pub fn new(backend: impl Backend) -> Self {
        Self::builder(Arc::new(backend)).build()
    }

    /// Begins a locker over a backend, which may be shared with others: a clock, observers, metrics
    /// and a base for tokens are chosen before its first use.
    pub fn builder(backend: Arc<dyn Backend>) -> LockerBuilder {
        LockerBuilder::new(backend)
    }

    /// Makes a locker over a fresh embedded store, for this process only.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(Memory::new())
    }

    /// The same locker with other defaults for the locks that are made with it. An option that is
    /// not set stays what it was, such as that of the URL. Clones that were made before keep
    /// theirs; all share one connection and one background task.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if the options contradict each other.
    pub fn with_defaults(mut self, defaults: LockOptions) -> Result<Self> {
        self.defaults = Arc::new(CheckedOptions::new(defaults.over(self.defaults()))?);
        Ok(self)
    }

    /// The options of a lock for which nothing else is set.
    #[must_use]
    pub fn defaults(&self) -> &LockOptions {
        &self.defaults.options
    }

    /// The same locker with the process gate on or off for the locks that are made with it; it is
    /// on by default. Clones that were made before keep theirs, and all exclude each other.
    ///
    /// With it, tasks of this locker that want the same name queue in the process, first come, first
    /// served, and only the first of them waits in the store: a crowd costs the store little more
    /// than one task does. Readers and permits that have room beside each other ask at the same
    /// time. Where the store can, a release of a mutex hands the lock over to the next in line in
    /// one request, at most 16 times in a row while others wait outside. Without the gate, each task
    /// waits in the store by itself.
    #[must_use]
    pub fn with_process_gate(mut self, on: bool) -> Self {
        self.gated = on;
        self
    }

    /// Describes the backend.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        self.backend.descriptor()
    }

    /// Says what the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.backend.descriptor().capabilities
    }

    /// Ends the locker and all its clones in order.
    ///
    /// No lock is granted any more, and waiting calls end with [`ErrorKind::Closed`]. Renewal
    /// stops. Then it waits until all guards are released or their leases have ended, which takes
    /// at most one ttl (a guard that is still held then is told by its loss signal; one that was
    /// [leaked](crate::LockGuard::leak) at once), until everything that dropped guards and futures
    /// left behind is released, and until the backend is closed. A backend that was shared by
    /// its [builder](Self::builder) is closed for all.
    ///
    /// After three ttls the backend is closed all the same: a pinned future of this locker that
    /// nobody polls any more can't be waited for.
    ///
    /// # Errors
    /// What the backend could not close in order. Calling it again tries again.
    ///
    /// # Cancel safety
    /// Cancel safe: the shutdown goes on; calling it again waits for its end.
    pub async fn shutdown(&self) -> Result<()> {
        self.keeper.ensure()?;
        let agenda = Arc::clone(self.keeper.agenda());
        agenda.drain();
        let backend = Arc::clone(&self.backend);
        let closed = Arc::clone(&self.closed);
        let budget = self.defaults.limits.ttl;
        let ended = Finishing::new(self.keeper.agenda(), async move {
            if !until_quiet(&agenda).await {
                tracing::warn!(
                    store = agenda.locker.store,
                    "closed while claims live that nobody works on"
                );
            }
            // The bound is outside: a pinned call that nobody polls any more may be the one that
            // closes.
            let closing = async { closed.get_or_try_init(|| backend.close()).await.copied() };
            let closed = bounded(budget, closing).await;
            if closed.is_ok() {
                agenda.close();
            }
            closed
        });
        ended
            .await
            .map_err(|error| error.with_operation("close").with_backend(self.descriptor().name))
    }

    pub(crate) fn require(&self, capability: bool, what: &str) -> Result<()> {
        if capability {
            return Ok(());
        }
        let store = self.descriptor().name;
        let text = format!("the {store} backend has no {what}");
        Err(Error::new(ErrorKind::Unsupported, text).with_backend(store))
    }

    pub(crate) fn explain(&self, error: Error, operation: &'static str, name: &LockName) -> Error {
        error.with_operation(operation).with_backend(self.descriptor().name).with_name(name)
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("backend", &self.backend)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}
