//! Describes MySQL, MariaDB and their relatives.

use std::collections::BTreeMap;

use async_trait::async_trait;
use lockkit::{
    mysql::{
        Config,
        mysql_async::{
            self as my, Conn, Row,
            prelude::{FromRow, Queryable as _},
        },
    },
    url::StoreUrl,
};
use tokio::sync::Mutex;

use super::{Facts, Server, guarantee, setting};
use crate::{
    Error, Result,
    report::{Guarantee, GuaranteeClass},
};

/// The settings to ask for, and their meanings.
const SETTINGS: [(&str, &str); 6] = [
    (
        "innodb_flush_log_at_trx_commit",
        "with 1, the server writes each grant to disk before it answers",
    ),
    ("log_bin", "without a binary log, no replica can take over"),
    ("sync_binlog", "with a binary log and another value than 1, a crash may lose the last grants"),
    ("innodb_flush_method", "with a method without syncs, no write is safe on disk"),
    ("transaction_isolation", "lockkit's own sessions use READ-COMMITTED"),
    ("tx_isolation", "lockkit's own sessions use READ-COMMITTED"),
];
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version','version_comment',\
    'innodb_flush_log_at_trx_commit','log_bin','sync_binlog','innodb_flush_method','transaction_isolation',\
    'tx_isolation','wsrep_on','group_replication_group_name')";
/// Each server accepts only one of the two statements, and only some users may send them.
const REPLICAS: [&str; 2] = ["SHOW REPLICAS", "SHOW SLAVE HOSTS"];

#[derive(Debug)]
pub(crate) struct MySqlServer {
    config: Config,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    conn: Option<Conn>,
    /// The number of this client's own statements so far.
    asked: u64,
}

impl MySqlServer {
    pub(crate) async fn open(url: StoreUrl) -> Result<Self> {
        let config = Config::from_url(url).map_err(opening)?;
        let conn = config.open_bare().await.map_err(opening)?;
        Ok(Self { config, state: Mutex::new(State { conn: Some(conn), asked: 0 }) })
    }
}

impl State {
    /// Sends a statement. The server may have closed a connection that was idle for long, so a
    /// failed statement is sent once more on a new connection.
    async fn ask<R: FromRow + Send + 'static>(
        &mut self,
        config: &Config,
        question: &str,
    ) -> Result<Vec<R>> {
        if let Some(conn) = &mut self.conn {
            self.asked += 1;
            match conn.query(question).await {
                Ok(rows) => return Ok(rows),
                Err(error @ my::Error::Server(_)) => return Err(asking(error)),
                Err(_) => self.conn = None,
            }
        }
        let conn = self.conn.insert(config.open_bare().await.map_err(opening)?);
        self.asked += 1;
        conn.query(question).await.map_err(asking)
    }
}

fn opening(error: lockkit::Error) -> Error {
    Error::of("could not connect to MySQL", error)
}

fn asking(error: my::Error) -> Error {
    Error::of("could not read the state of MySQL", error)
}

#[async_trait]
impl Server for MySqlServer {
    async fn facts(&self) -> Result<Facts> {
        let mut state = self.state.lock().await;
        let rows: Vec<(String, String)> = state.ask(&self.config, VARIABLES).await?;
        let told: BTreeMap<_, _> = rows.into_iter().collect();
        let mut replicas = None;
        for question in REPLICAS {
            if let Ok(rows) = state.ask::<Row>(&self.config, question).await {
                replicas = Some(rows.len());
                break;
            }
        }
        let (product, version) = product(&told);
        // Of the two names of the isolation level, the one that the server knows.
        let known = |name: &str| !name.ends_with("_isolation") || told.contains_key(name);
        let mut settings: Vec<_> = SETTINGS
            .iter()
            .filter(|(name, _)| known(name))
            .map(|(name, meaning)| setting(name, told.get(*name).map(String::as_str), meaning))
            .collect();
        let comment = told.get("version_comment").map(String::as_str);
        settings.push(setting("version_comment", comment, "the build of the server"));
        let count = replicas.map(|count| count.to_string());
        settings.push(setting(
            "replicas",
            count.as_deref(),
            "a replica receives a grant after the server made it",
        ));
        Ok(Facts { product, version, settings, guarantee: judge(&told, replicas) })
    }

    async fn requests(&self) -> Result<Option<u64>> {
        let mut state = self.state.lock().await;
        let question = "SHOW GLOBAL STATUS LIKE 'Questions'";
        let rows: Vec<(String, u64)> = state.ask(&self.config, question).await?;
        Ok(rows.first().map(|(_, count)| count.saturating_sub(state.asked)))
    }
}

fn product(told: &BTreeMap<String, String>) -> (String, String) {
    let text = |name| told.get(name).map_or("", String::as_str);
    let version = text("version");
    let comment = text("version_comment");
    let product = if version.contains("MariaDB")
        || comment.contains("MariaDB")
        || comment.contains("mariadb")
    {
        "MariaDB"
    } else if comment.contains("Percona") {
        "Percona Server"
    } else {
        "MySQL"
    };
    let number = version.split('-').next().filter(|number| !number.is_empty()).unwrap_or("unknown");
    (product.to_owned(), number.to_owned())
}

fn judge(told: &BTreeMap<String, String>, replicas: Option<usize>) -> Guarantee {
    use GuaranteeClass as Class;
    let is = |name: &str, value: &str| {
        told.get(name).is_some_and(|told| told.eq_ignore_ascii_case(value))
    };
    let has_no_log = is("log_bin", "OFF") || is("log_bin", "0");
    let is_synced = told.get("innodb_flush_method").is_some_and(|method| {
        !["nosync", "littlesync"].contains(&method.to_ascii_lowercase().as_str())
    });
    let is_durable = is("innodb_flush_log_at_trx_commit", "1")
        && is_synced
        && (has_no_log || is("sync_binlog", "1"));
    let is_group = is("wsrep_on", "ON")
        || told.get("group_replication_group_name").is_some_and(|name| !name.is_empty());
    let followers = if has_no_log { Some(0) } else { replicas };
    match followers {
        _ if is_group => guarantee(
            Class::AsynchronousFailover,
            "The other servers of the group certify each grant, but do not confirm that they \
             applied it. After a failover the last grants may be missing.",
        ),
        _ if !is_durable => guarantee(
            Class::Volatile,
            "The server answers before a grant is on disk. A crash of the machine loses the last \
             grants.",
        ),
        Some(0) => guarantee(
            Class::OneDurableServer,
            "The server writes each grant to disk before it answers. While it is down, no client \
             gets a lock.",
        ),
        Some(_) => guarantee(
            Class::AsynchronousFailover,
            "A replica that takes over may lack the last grants. Then two clients may hold the \
             same lock.",
        ),
        None => guarantee(
            Class::AsynchronousFailover,
            "The server writes each grant to disk before it answers. This user may not list the \
             replicas, and a replica that takes over may lack the last grants.",
        ),
    }
}
