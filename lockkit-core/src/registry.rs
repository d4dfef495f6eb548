//! Finds the backend for a URL. The registry is a plain value, built from the backends that are
//! compiled in.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{
    common::Common,
    error::{Error, ErrorKind, Result},
    locker::{Locker, LockerBuilder},
    memory::MemoryConnector,
    options::CheckedOptions,
    spi::Backend,
    url::StoreUrl,
};

/// Makes a backend from a URL.
///
/// ```
/// use std::sync::Arc;
/// use lockkit_core::{Connector, Memory, Registry, Result, spi::Backend, url::StoreUrl};
///
/// struct Shelf;
///
/// #[async_trait::async_trait]
/// impl Connector for Shelf {
///     fn schemes(&self) -> &'static [&'static str] {
///         &["shelf"]
///     }
///
///     async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
///         url.params.finish()?; // it knows none
///         Ok(Arc::new(Memory::new()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let mut registry = Registry::new();
/// registry.register(Shelf);
/// let locker = registry.connect("shelf://left/").await?;
/// registry.connect("shelf://left/?colour=red").await.unwrap_err();
/// # locker.shutdown().await
/// # }
/// ```
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// The schemes that this connector accepts, in lower case.
    fn schemes(&self) -> &'static [&'static str];

    /// Connects to the store of a URL. `registry` is the registry that was asked: a store that is
    /// made of other stores finds their connectors there.
    ///
    /// # Behavior
    /// * Takes the parameters that it knows out of `url.params`, and calls
    ///   [`finish`](crate::url::Params::finish) before it connects.
    /// * Fails with a clear error when the store can't be used: unreachable, wrong password, wrong
    ///   role.
    ///
    /// # Errors
    /// The fault in the URL, or the error of the store.
    async fn connect(&self, url: StoreUrl, registry: &Registry) -> Result<Arc<dyn Backend>>;
}

/// The known schemes.
///
/// [`Registry::new`] knows `memory://`. Each backend crate has a `register` function that adds its
/// own schemes.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::{ErrorKind, Registry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let registry = Registry::new();
/// let locker = registry.connect("memory://?ttl=10s&label=billing").await?;
/// assert_eq!(locker.defaults().ttl(), Duration::from_secs(10));
/// let error = registry.connect("carrier-pigeon://loft/").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::UnknownScheme);
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Registry {
    entries: Vec<Entry>,
}

#[derive(Clone)]
enum Entry {
    Connector(Arc<dyn Connector>),
    /// The schemes are known, but their backend is not compiled in.
    Missing {
        schemes: &'static [&'static str],
        feature: &'static str,
    },
}

impl Entry {
    fn schemes(&self) -> &'static [&'static str] {
        match self {
            Self::Connector(connector) => connector.schemes(),
            Self::Missing { schemes, .. } => schemes,
        }
    }
}

impl Registry {
    /// A registry that knows `memory://`.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: vec![Entry::Connector(Arc::new(MemoryConnector))] }
    }

    /// Adds a backend. It takes over the schemes of a backend that was added earlier.
    pub fn register(&mut self, connector: impl Connector) {
        self.entries.insert(0, Entry::Connector(Arc::new(connector)));
    }

    /// Registers a backend whose cargo feature is off, so that its schemes get a helpful error.
    pub fn register_missing(&mut self, schemes: &'static [&'static str], feature: &'static str) {
        self.entries.push(Entry::Missing { schemes, feature });
    }

    /// Connects to the store of a URL.
    ///
    /// Every store takes these parameters:
    ///
    /// * `ttl`, `op_timeout`, `max_hold`, `label` and `group` set the defaults of the locker's
    ///   locks. `max_hold` may be `forever`.
    /// * `token_base` is added to every fencing token.
    /// * `process_gate=false` turns the [process gate](Locker::with_process_gate) off.
    ///
    /// # Errors
    /// The fault in the URL, or the error of the store. No error shows a password.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that is not complete is closed.
    pub async fn connect(&self, url: &str) -> Result<Locker> {
        Ok(self.builder(url).await?.build())
    }

    /// Connects to the store of a URL. Use the builder for a locker with observers or metrics, or
    /// with another clock.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use lockkit_core::{Event, Observer, Registry};
    /// #[derive(Debug)]
    /// struct Log;
    ///
    /// impl Observer for Log {
    ///     fn on_event(&self, event: &Event<'_>) {
    ///         println!("{}: {:?}", event.name, event.what);
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockkit_core::Result<()> {
    /// let builder = Registry::new().builder("memory://?ttl=10s").await?;
    /// let locker = builder.observer(Arc::new(Log)).build();
    /// # locker.shutdown().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn builder(&self, url: &str) -> Result<LockerBuilder> {
        let explain = |error: Error| error.with_operation("connect");
        let url = StoreUrl::parse(url).map_err(explain)?;
        self.connected(url, Common::default()).await.map_err(explain)
    }

    /// Connects to the store of a URL. Each value in `settings` replaces the parameter of the URL.
    pub(crate) async fn connected(
        &self,
        mut url: StoreUrl,
        settings: Common,
    ) -> Result<LockerBuilder> {
        let connector = self.connector(url.scheme())?;
        let common = settings.over(Common::take(&mut url.params)?);
        let defaults = CheckedOptions::new(common.options)?;
        let backend = connector.connect(url, self).await?;
        let builder = Locker::builder(backend).defaults(defaults);
        let token_base = common.token_base.unwrap_or(0);
        Ok(builder.token_base(token_base).gated(common.process_gate.unwrap_or(true)))
    }

    /// Finds the connector of a scheme. A store that is made of other stores connects to them with
    /// it.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFeature`] or [`ErrorKind::UnknownScheme`]; both errors say what to do.
    pub fn connector(&self, scheme: &str) -> Result<&dyn Connector> {
        match self.entries.iter().find(|entry| entry.schemes().contains(&scheme)) {
            Some(Entry::Connector(connector)) => Ok(&**connector),
            Some(Entry::Missing { feature, .. }) => Err(Error::new(
                ErrorKind::MissingFeature,
                format!(
                    "{scheme}:// needs lockkit's cargo feature {feature:?}: cargo add lockkit --features {feature}"
                ),
            )),
            None => {
                let known =
                    self.entries.iter().filter(|entry| !matches!(entry, Entry::Missing { .. }));
                let known: Vec<_> =
                    known.flat_map(|entry| entry.schemes()).map(|s| format!("{s}://")).collect();
                Err(Error::new(
                    ErrorKind::UnknownScheme,
                    format!(
                        "no backend is registered for {scheme}://; known schemes: {}",
                        known.join(", ")
                    ),
                ))
            }
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().flat_map(|entry| entry.schemes())).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{name::Kind, options::LockOptions};

    #[tokio::test]
    async fn the_defaults_of_a_url_stay_where_an_option_is_not_set() {
        let locker =
            Registry::new().connect("memory://?ttl=5s&label=cron&max_hold=1m").await.unwrap();
        let wait = LockOptions::new().with_wait(Duration::from_secs(1));
        let mutex = locker.mutex("a").unwrap().with_options(wait).unwrap();
        let guard =
            mutex.with_options(LockOptions::new().with_group("g")).unwrap().lock().await.unwrap();
        assert!(guard.remaining() <= Duration::from_secs(5));
        let seen = locker.inspect(guard.name()).await.unwrap();
        assert_eq!(seen.holders[0].label.as_deref(), Some("cron"));
        drop(guard);
        let longer = locker
            .clone()
            .with_defaults(LockOptions::new().with_ttl(Duration::from_secs(9)))
            .unwrap();
        let options = longer.defaults();
        assert_eq!((options.ttl(), options.label()), (Duration::from_secs(9), Some("cron")));
        assert_eq!(options.max_hold(), Some(Duration::from_secs(60)));
        locker.shutdown().await.unwrap();
    }

    /// Each kind of lock sets a bound on waiting, and keeps the other options of the URL.
    #[tokio::test]
    async fn ttl_and_label_of_a_url_stay_when_one_lock_sets_another_option() {
        let locker = Registry::new().connect("memory://?ttl=20s&label=cron").await.unwrap();
        let wait = || LockOptions::new().with_wait(Duration::from_secs(1));
        let mutex = locker.mutex("a").unwrap().with_options(wait()).unwrap();
        let rw_lock = locker.rw_lock("a").unwrap().with_options(wait()).unwrap();
        let semaphore = locker.semaphore("a", 1).unwrap().with_options(wait()).unwrap();
        let set = locker.mutex_set(["b"]).unwrap().with_options(wait()).unwrap();
        let again = locker.owner().mutex("c").unwrap().with_options(wait()).unwrap();
        let election = locker.election("a").unwrap().with_options(wait()).unwrap();
        let held = (
            mutex.lock().await.unwrap(),
            rw_lock.read().await.unwrap(),
            semaphore.acquire().await.unwrap(),
            set.lock().await.unwrap(),
            again.lock().await.unwrap(),
        );
        let leadership = election.campaign("10.0.0.7").await.unwrap();
        assert!(leadership.remaining() <= Duration::from_secs(20));
        for name in locker.names("").await.unwrap() {
            let holder = locker.inspect(&name).await.unwrap().holders.remove(0);
            assert!(holder.remaining.unwrap() <= Duration::from_secs(20), "{name:?}");
            // For an election, the value of a candidate replaces its label.
            let label = if name.kind() == Kind::Election { "10.0.0.7" } else { "cron" };
            assert_eq!(holder.label.as_deref(), Some(label), "{name:?}");
        }
        let error = mutex.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "its own option counts");
        let patient = mutex.with_options(LockOptions::new().without_wait_bound()).unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(1_200), patient.lock());
        waiting.await.expect_err("the bound is set back");
        drop((held, leadership));
        locker.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn c13_a_url_with_a_max_hold_below_its_ttl_is_refused() {
        let error = Registry::new().connect("memory://?max_hold=5s").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("at least ttl (30s)"), "{error}");
    }

    #[tokio::test]
    async fn a_url_may_say_that_a_hold_lasts_forever() {
        let locker = Registry::new().connect("memory://?max_hold=forever").await.unwrap();
        assert_eq!(locker.defaults().max_hold(), None);
        assert_ne!(*locker.defaults(), LockOptions::new(), "it is set");
    }
}
