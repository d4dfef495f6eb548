//! A server for measurements, and how long they take.

use std::{
    fs,
    time::{Duration, Instant},
};

use lockkit_core::{Locker, url::StoreUrl};
use lockkit_fixture::SqlServer;
use lockkit_mysql::{Config, MySql, Strategy};
use mysql_async::{Conn, Opts, OptsBuilder, prelude::Queryable as _};

use super::sql::SETTINGS;

pub(crate) struct Stage {
    pub(crate) server: SqlServer,
    /// Whether a commit waits for the disk.
    pub(crate) is_durable: bool,
    is_quick: bool,
}

impl Stage {
    pub(crate) fn new(is_durable: bool, server: SqlServer) -> Self {
        Self { server, is_durable, is_quick: std::env::args().any(|word| word == "--quick") }
    }

    /// How many rounds there are.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        if self.is_quick { 3 } else { usual }
    }

    /// How long one side works in a round.
    pub(crate) fn slice(&self, millis: u64) -> Duration {
        Duration::from_millis(if self.is_quick { millis / 3 } else { millis })
    }

    pub(crate) async fn locker(&self, strategy: Strategy, connections: usize) -> Locker {
        Locker::new(self.backend(strategy, connections).await)
    }

    pub(crate) async fn backend(&self, strategy: Strategy, connections: usize) -> MySql {
        let config = Config::from_url(StoreUrl::parse(&self.server.url()).unwrap()).unwrap();
        let prefix = if strategy == Strategy::Optimistic { "lockkit" } else { "lockkit_rows" };
        let config = config.with_strategy(strategy).with_table_prefix(prefix).unwrap();
        let least = if strategy == Strategy::Optimistic { 1 } else { 2 };
        MySql::connect(config.with_pool_size(connections.max(least)).unwrap()).await.unwrap()
    }

    /// A bare connection, with the settings of lockkit's own.
    pub(crate) async fn open(&self) -> Conn {
        let opts = Opts::from_url(&self.server.admin_url()).unwrap();
        let mut conn = Conn::new(OptsBuilder::from_opts(opts).prefer_socket(false)).await.unwrap();
        conn.query_drop(SETTINGS).await.unwrap();
        conn
    }

    pub(crate) async fn open_many(&self, count: usize) -> Vec<Conn> {
        let mut conns = Vec::with_capacity(count);
        for _ in 0..count {
            conns.push(self.open().await);
        }
        conns
    }

    pub(crate) async fn describe(&self) -> String {
        let question = "SELECT CONCAT('innodb_flush_log_at_trx_commit=',@@innodb_flush_log_at_trx_commit,\
                        ', log_bin=',@@log_bin,', innodb_flush_method=',@@innodb_flush_method)";
        let settings: String = self.open().await.query_first(question).await.unwrap().unwrap();
        let cores = std::thread::available_parallelism().unwrap();
        let load = fs::read_to_string("/proc/loadavg").unwrap();
        let load = load.split(' ').next().unwrap_or_default();
        let flavor = self.server.flavor();
        let version = self.server.version();
        format!("{flavor} {version}: {settings}; {cores} cores, load {load} at the start")
    }

    /// The CPU time of the server so far.
    pub(crate) fn server_cpu(&self) -> Duration {
        cpu_time(&self.server.pid().to_string())
    }

    /// The CPU time of this process so far.
    pub(crate) fn client_cpu(&self) -> Duration {
        cpu_time("self")
    }
}

/// The CPU time of a process's live threads, in ns. The counter of the process itself counts in
/// hundredths of a second.
fn cpu_time(process: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let used = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        let stat = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

/// The statements that clients sent to a server so far.
pub(crate) async fn statements(conn: &mut Conn) -> u64 {
    let row: Option<(String, u64)> =
        conn.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await.unwrap();
    row.unwrap().1
}

/// Runs all works at once and waits for the last.
pub(crate) async fn together<F>(works: impl IntoIterator<Item = F>) -> (Duration, Vec<F::Output>)
where
    F: Future<Output: Send> + Send + 'static,
{
    let start = Instant::now();
    let running: Vec<_> = works.into_iter().map(tokio::spawn).collect();
    let mut outputs = Vec::with_capacity(running.len());
    for task in running {
        outputs.push(task.await.unwrap());
    }
    (start.elapsed(), outputs)
}
