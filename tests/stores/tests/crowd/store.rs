//! Servers, and their own counts of requests.

use libtest_mimic::Failed;
use lockkit_fixture::{RedisServer, SqlFlavor, SqlServer, ZooKeeperServer};
use lockkit_mysql::mysql_async::{Conn, Opts, prelude::Queryable as _};

pub(crate) enum Store {
    Redis(RedisServer, &'static str),
    ZooKeeper(ZooKeeperServer),
    Sql(SqlServer, &'static str),
}

impl Store {
    pub(crate) fn redis() -> Result<Self, Failed> {
        Ok(Self::Redis(RedisServer::start()?, ""))
    }

    /// Each task waits in the queue of the store.
    pub(crate) fn redis_without_gate() -> Result<Self, Failed> {
        Ok(Self::Redis(RedisServer::start()?, "?process_gate=false"))
    }

    pub(crate) fn zookeeper() -> Result<Self, Failed> {
        Ok(Self::ZooKeeper(ZooKeeperServer::start()?))
    }

    pub(crate) fn sql(strategy: &'static str) -> Result<Self, Failed> {
        Ok(Self::Sql(SqlServer::start(SqlFlavor::MariaDb)?, strategy))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server, query) => format!("{}{query}", server.url()),
            Self::ZooKeeper(server) => server.url(),
            Self::Sql(server, strategy) => format!("{}?strategy={strategy}", server.url()),
        }
    }

    /// How many requests of clients the server has had so far. On Redis, the commands inside
    /// scripts do not count.
    pub(crate) async fn requests(&self) -> Result<u64, Failed> {
        match self {
            Self::Redis(server, _) => {
                let stats = server.ask(["INFO", "commandstats"])?.text();
                let sent =
                    ["evalsha", "eval", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"];
                let calls = stats.lines().filter_map(|line| {
                    let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                    let calls: u64 = rest.split(',').next()?.parse().ok()?;
                    sent.contains(&command).then_some(calls)
                });
                Ok(calls.sum())
            }
            Self::ZooKeeper(server) => Ok(server.metric("zk_packets_received")?),
            Self::Sql(server, _) => {
                let mut admin = Conn::new(Opts::from_url(&server.admin_url())?).await?;
                let row: Option<(String, u64)> =
                    admin.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
                admin.disconnect().await?;
                Ok(row.ok_or("the server does not count questions")?.1)
            }
        }
    }
}
