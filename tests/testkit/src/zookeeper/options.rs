//! The options of a ZooKeeper for a test.

use std::{path::Path, process, time::Duration};

use anyhow::{Context as _, Result};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

/// Where Linux keeps files in memory.
const MEMORY: &str = "/dev/shm";
/// Containers often have only 64 MiB there, which a few servers fill.
const ENOUGH_MEMORY: u64 = 1 << 30;

/// How to run a ZooKeeper.
///
/// # Default
/// * tick: 200 ms for a single server, 500 ms in an ensemble. Sessions last from 2 to 20 ticks.
/// * plain TCP, no more configuration, no more JVM properties.
/// * not durable.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperOptions {
    tick: Option<Duration>,
    config: Vec<String>,
    java: Vec<String>,
    tls: bool,
    durable: bool,
}

impl ZooKeeperOptions {
    /// The server's unit of time. A session lasts from 2 to 20 ticks, and ends up to one tick late.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// One more line for `zoo.cfg`. It takes precedence over an earlier one for the same key.
    #[must_use]
    pub fn with_config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// One more option of the JVM, such as `-Dznode.container.checkIntervalMs=100`.
    #[must_use]
    pub fn with_java(mut self, option: impl Into<String>) -> Self {
        self.java.push(option.into());
        self
    }

    /// A second port, which speaks TLS with a certificate of the server.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Every write is on disk before its answer, as in production: **for benchmarks**.
    ///
    /// Without this, the data is in memory where possible, and no write waits for a disk. A test
    /// asks what the server does, not what the disk does. A busy disk would stall a server past the
    /// session timeouts of a test. A killed server's data survives either way. The data survives a
    /// crash of the machine only with this.
    #[must_use]
    pub fn with_durable(mut self) -> Self {
        self.durable = true;
        self
    }

    pub(super) fn tick_or(&self, default: Duration) -> Duration {
        self.tick.unwrap_or(default)
    }

    pub(super) fn config(&self) -> &[String] {
        &self.config
    }

    pub(super) fn java(&self) -> &[String] {
        &self.java
    }

    pub(super) fn tls(&self) -> bool {
        self.tls
    }

    pub(super) fn durable(&self) -> bool {
        self.durable
    }

    /// A folder for a server's files, in memory unless they are to be durable.
    pub(super) fn folder(&self) -> Result<TempDir> {
        // The prefix shows whether a folder in memory is in use, or was left by a killed process.
        let prefix = format!("lockkit-zookeeper-{}-", process::id());
        if !self.durable
            && has_enough(Path::new(MEMORY))
            && let Ok(folder) = TempDir::with_prefix_in(&prefix, MEMORY)
        {
            return Ok(folder);
        }
        TempDir::with_prefix(&prefix).context("no temporary folder for ZooKeeper")
    }
}

fn has_enough(folder: &Path) -> bool {
    #[allow(clippy::useless_conversion, reason = "the fields' types differ between systems")]
    statvfs(folder).is_ok_and(|stat| {
        u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size()))
            >= ENOUGH_MEMORY
    })
}
