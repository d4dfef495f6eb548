//! ZooKeeper servers for tests: a single server, or an ensemble.

mod ensemble;
mod four_letter;
mod java;
mod namespaced;
mod options;
mod server;
#[cfg(test)]
mod test_client;
mod tls;

use std::env;

use anyhow::Result;

pub use self::{
    ensemble::ZooKeeperEnsemble,
    java::{
        CLASS_PATH_VARIABLE, CURATOR_CLASS_PATH_VARIABLE, curator_classpath, java_compiler,
        java_runtime,
    },
    namespaced::NamespacedEnsemble,
    options::ZooKeeperOptions,
    server::ZooKeeperServer,
};

/// The variable with the URL of the user's own ZooKeeper for the tests.
pub const ZOOKEEPER_URL_VARIABLE: &str = "LOCKKIT_TEST_ZK_URL";

/// The ZooKeeper for the tests.
#[derive(Debug)]
pub struct TestZooKeeper {
    /// The URL.
    pub url: String,
    /// The server, if the tests may pause and kill it.
    pub server: Option<ZooKeeperServer>,
}

/// Returns the server that `LOCKKIT_TEST_ZK_URL` names, or starts one.
///
/// # Errors
/// As for [`ZooKeeperServer::start`].
pub fn zookeeper_from_env_or_start(options: ZooKeeperOptions) -> Result<TestZooKeeper> {
    if let Ok(url) = env::var(ZOOKEEPER_URL_VARIABLE) {
        return Ok(TestZooKeeper { url, server: None });
    }
    let server = ZooKeeperServer::start_with(options)?;
    Ok(TestZooKeeper { url: server.url(), server: Some(server) })
}
