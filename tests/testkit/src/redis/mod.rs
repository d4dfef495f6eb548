//! Redis servers for tests: a single server, or any of Redis's ways to run several.

mod cluster;
mod namespaced;
mod options;
mod program;
mod replication;
mod resp;
mod sentinel;
mod server;
mod tls;
mod wait;

use std::env;

use anyhow::Result;

pub use self::{
    cluster::{RedisCluster, RedisClusterOptions, SlotMigration},
    namespaced::NamespacedSentinels,
    options::RedisOptions,
    program::{valkey_home, valkey_server},
    resp::RedisReply,
    sentinel::{SentinelGroup, SentinelOptions},
    server::RedisServer,
    tls::{ClientCertificates, RedisTls},
};

/// The variable with the URL of the user's own Redis server for the tests.
pub const REDIS_URL_VARIABLE: &str = "LOCKKIT_TEST_REDIS_URL";

/// The Redis for the tests.
#[derive(Debug)]
pub struct TestRedis {
    /// The URL.
    pub url: String,
    /// The server, if the tests may pause and kill it.
    pub server: Option<RedisServer>,
}

/// Returns the server that `LOCKKIT_TEST_REDIS_URL` names, or starts one.
///
/// # Errors
/// As for [`RedisServer::start`].
pub fn redis_from_env_or_start() -> Result<TestRedis> {
    if let Ok(url) = env::var(REDIS_URL_VARIABLE) {
        return Ok(TestRedis { url, server: None });
    }
    let server = RedisServer::start()?;
    Ok(TestRedis { url: server.url(), server: Some(server) })
}
