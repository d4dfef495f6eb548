//! Makes a locker from a URL, over the backends that are compiled in.

use lockkit_core::{Locker, LockerBuilder, Registry, Result};

/// Connects to the store of a URL, such as `memory://`, `redis://127.0.0.1:6379/`,
/// `mysql://user:password@host/database` or `zk://host1:2181,host2:2181/`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit::Result<()> {
/// let locker = lockkit::connect("memory://?ttl=10s").await?;
/// locker.mutex("orders/42")?.scope(async |_| println!("alone")).await?;
/// locker.shutdown().await
/// # }
/// ```
///
/// The call connects once, and does not try again. If the store can't be reached, for example
/// because it restarts, the call returns an error that [is
/// temporary](lockkit_core::Error::is_temporary). A connected locker survives a restart of its
/// store.
///
/// # Errors
/// The fault in the URL, or the error of the store; see [`Registry::connect`].
///
/// # Cancel safety
/// Cancel safe: a connection that is not complete is closed.
pub async fn connect(url: &str) -> Result<Locker> {
    registry().connect(url).await
}

/// Connects as [`connect`] does. Use the builder for a locker with observers or metrics, or with
/// another clock.
///
/// ```
/// # async fn connected(observer: std::sync::Arc<dyn lockkit::Observer>) -> lockkit::Result<()> {
/// let locker = lockkit::builder("memory://?ttl=10s").await?.observer(observer).build();
/// # locker.shutdown().await
/// # }
/// ```
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// As [`connect`].
pub async fn builder(url: &str) -> Result<LockerBuilder> {
    registry().builder(url).await
}

/// The registry of the backends that are compiled in. A program can add its own backends.
///
/// ```
/// # async fn connected(pigeons: impl lockkit::Connector) -> lockkit::Result<()> {
/// let mut registry = lockkit::registry();
/// registry.register(pigeons);
/// let locker = registry.connect("pigeons://loft/").await?;
/// # locker.shutdown().await
/// # }
/// ```
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    #[cfg(feature = "file")]
    lockkit_file::register(&mut registry);
    #[cfg(not(feature = "file"))]
    registry.register_missing(&["file"], "file");
    #[cfg(feature = "mysql")]
    lockkit_mysql::register(&mut registry);
    #[cfg(not(feature = "mysql"))]
    registry.register_missing(&["mysql", "mysqls", "mysql+unix"], "mysql");
    #[cfg(feature = "quorum")]
    lockkit_quorum::register(&mut registry);
    #[cfg(not(feature = "quorum"))]
    registry.register_missing(&["quorum"], "quorum");
    #[cfg(feature = "redis")]
    lockkit_redis::register(&mut registry);
    #[cfg(not(feature = "redis"))]
    registry.register_missing(
        &[
            "redis",
            "redis+cluster",
            "redis+sentinel",
            "redis+unix",
            "rediss",
            "rediss+cluster",
            "rediss+sentinel",
        ],
        "redis",
    );
    #[cfg(feature = "zk")]
    lockkit_zk::register(&mut registry);
    #[cfg(not(feature = "zk"))]
    registry.register_missing(&["zk", "zks"], "zk");
    registry
}
