//! Defines the entry point: a store, its keeper, and the defaults of its locks.

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

/// Makes locks that live in one store. A locker is cheap to clone; all clones share one connection
/// and one background task.
///
/// A locker belongs to the tokio runtime that first used it: its background task runs there. If
/// that runtime ends, a new task starts on another runtime. The next call that takes or awaits a
/// lock starts it on its own runtime.
///
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
    pub(crate) gated: bool,
    pub(crate) defaults: Arc<CheckedOptions>,
    closed: Arc<OnceCell<()>>,
}

impl Locker {
    /// Makes a locker over a backend, without the settings of a [builder](Self::builder).
    pub fn new(backend: impl Backend) -> Self {
        Self::builder(Arc::new(backend)).build()
    }

    /// Begins a locker over a backend, which other lockers may share. The builder sets the clock,
    /// observers, metrics and the base for tokens before the first use.
    pub fn builder(backend: Arc<dyn Backend>) -> LockerBuilder {
        LockerBuilder::new(backend)
    }

    /// Makes a locker over a fresh embedded store, for this process only.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(Memory::new())
    }

    /// Returns the same locker with other defaults for the locks that it makes. An option that is
    /// not set keeps its value, such as the value from the URL. Clones that were made before keep
    /// their defaults. All clones share one connection and one background task.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if the options contradict each other.
    pub fn with_defaults(mut self, defaults: LockOptions) -> Result<Self> {
        self.defaults = Arc::new(CheckedOptions::new(defaults.over(self.defaults()))?);
        Ok(self)
    }

    /// The options of a lock that sets no options itself.
    #[must_use]
    pub fn defaults(&self) -> &LockOptions {
        &self.defaults.options
    }

    /// Returns the same locker with the process gate on or off for the locks that it makes; the
    /// gate is on by default. Clones that were made before keep their setting, and all clones
    /// exclude each other.
    ///
    /// With the gate, tasks of this locker that want the same name queue in the process, first
    /// come, first served. Only the first of them waits in the store, so many tasks cost the store
    /// little more than one task does. Readers and permits that can be held together ask at the
    /// same time.
    ///
    /// Where the store can, a release of a mutex transfers the lock to the next task in line in one
    /// request. This happens at most 16 times in a row while other claims wait outside. Without the
    /// gate, each task waits in the store by itself.
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

    /// Lists the capabilities of the backend.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.backend.descriptor().capabilities
    }

    /// Ends the locker and all its clones in order.
    ///
    /// No lock is granted any more, waiting calls end with [`ErrorKind::Closed`], and renewal
    /// stops. Then the call waits for these steps:
    ///
    /// 1. All guards are released, or their leases have ended. This takes at most one ttl. The loss
    ///    signal of a guard that is still held then reports the end. A
    ///    [leaked](crate::LockGuard::leak) guard ends at once.
    /// 2. Everything that dropped guards and futures left behind is released.
    /// 3. The backend is closed. If other lockers share the backend of the
    ///    [builder](Self::builder), it is closed for all of them.
    ///
    /// After three ttls the call closes the backend all the same. It can't wait for ever for a
    /// pinned future of this locker that is no longer polled.
    ///
    /// # Errors
    /// The connections and tasks that the backend did not close in order. A second call tries
    /// again.
    ///
    /// # Cancel safety
    /// Cancel safe: the shutdown continues. A second call waits for its end.
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
                    "closed the locker while claims exist that no task looks after"
                );
            }
            // The bound is outside, because the call that closes may be a pinned call that is no
            // longer polled.
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
        let text = format!("the {store} backend does not support {what}");
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
