//! ZooKeeper servers of our own: one, or an ensemble.

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

/// The variable that points the tests at a ZooKeeper of the user's own.
pub const ZOOKEEPER_URL_VARIABLE: &str = "LOCKKIT_TEST_ZK_URL";

/// The ZooKeeper that the tests are to use.
#[derive(Debug)]
pub struct TestZooKeeper {
    /// Where it is.
    pub url: String,
    /// The server, if it is ours to pause and kill.
    pub server: Option<ZooKeeperServer>,
}

/// Takes the server that `LOCKKIT_TEST_ZK_URL` names, or starts one.
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
