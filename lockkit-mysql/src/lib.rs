//! lockkit's backend for MySQL and MariaDB.
mod backend;
mod config;
mod connection;
mod error;
mod janitor;
mod optimistic;
mod pessimistic;
mod pool;
mod reaper;
pub mod schema;
mod server;
mod sql;
#[cfg(feature = "tls")]
mod tls;
mod waiting;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for those who share its types.
pub use mysql_async;

pub use self::{
    backend::MySql,
    config::{Config, Strategy},
    pessimistic::LockTransaction,
};

/// The URL schemes of this backend.
pub const SCHEMES: &[&str] = &["mysql", "mysqls", "mysql+unix"];

/// Teaches a registry the schemes of this backend.
pub fn register(registry: &mut Registry) {
    registry.register(MySqlConnector);
}

struct MySqlConnector;
#[async_trait::async_trait]
impl Connector for MySqlConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    async fn connect(&self, url: StoreUrl) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(MySql::connect(Config::from_url(url)?).await?))
    }
}
