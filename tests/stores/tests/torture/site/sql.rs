//! One MariaDB or MySQL server.

use std::future::Future;

use libtest_mimic::Failed;
use lockkit::mysql::{
    self,
    mysql_async::{Conn, Error, Opts, OptsBuilder, prelude::Queryable as _},
};
use lockkit_fixture::{ServerProcess, SqlFlavor, SqlServer, WallClock};
use lockkit_torture::site::{BoxError, ServerFault, Site};
use tokio::runtime::{Builder, Runtime};

use super::{
    clock, lasting, momentary,
    server::{Alone, Server, kill, stop},
    weak,
};
use crate::sql_leaks::leaks;

/// Answered writes are on the disk, as in production.
const FLUSHED: &str = "--innodb-flush-log-at-trx-commit=1";

const CONNECTIONS: &str = "connections-used-up";
const KILL_CONNECTIONS: &str = "kill-connections";
const READ_ONLY: &str = "read-only";

/// The fewest connections that MariaDB allows.
const FEW: usize = 10;
const PLENTY: usize = 500;

/// The mechanism of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// A row with a lease.
    Optimistic,
    /// A transaction that holds a row.
    Pessimistic,
    /// A transaction that holds a row, and a lease that the next owner waits for.
    Strict,
}

impl Strategy {
    fn parameters(self) -> &'static str {
        match self {
            Self::Optimistic => "strategy=optimistic",
            Self::Pessimistic => "strategy=pessimistic",
            Self::Strict => "strategy=pessimistic&strict_lease=true",
        }
    }

    /// A fault that ends connections.
    fn disconnects(self, fault: ServerFault) -> ServerFault {
        match self {
            Self::Pessimistic => weak(
                fault,
                "a connection that dies (unless strict_lease=true) frees its locks early",
            ),
            Self::Optimistic | Self::Strict => fault,
        }
    }
}

#[derive(Debug)]
pub(super) struct Sql {
    // This field comes before the runtime that the connections belong to.
    used_up: Vec<Conn>,
    server: SqlServer,
    strategy: Strategy,
    runtime: Runtime,
}

pub(super) fn start(flavor: SqlFlavor, strategy: Strategy) -> Result<Box<dyn Site>, Failed> {
    let name = match (flavor, strategy) {
        (SqlFlavor::MariaDb, Strategy::Optimistic) => "mariadb",
        (SqlFlavor::MariaDb, Strategy::Pessimistic) => "mariadb-pessimistic",
        (SqlFlavor::MariaDb, Strategy::Strict) => "mariadb-strict",
        (SqlFlavor::MySql, Strategy::Optimistic) => "mysql",
        (SqlFlavor::MySql, Strategy::Pessimistic) => "mysql-pessimistic",
        (SqlFlavor::MySql, Strategy::Strict) => "mysql-strict",
    };
    let faults = vec![
        stop(),
        lasting(READ_ONLY, 100..=1_500),
        lasting(CONNECTIONS, 100..=1_500),
        strategy.disconnects(momentary(KILL_CONNECTIONS)),
        strategy.disconnects(kill()),
    ];
    Ok(Box::new(Alone::new(name, Sql::start(flavor, strategy)?, faults)))
}

/// Leases of rows, on a server whose clock is stepped. Waits for a lock inside the server do not
/// follow that clock.
pub(super) fn clock(flavor: SqlFlavor) -> Result<Box<dyn Site>, Failed> {
    let name = match flavor {
        SqlFlavor::MariaDb => "mariadb-clock",
        SqlFlavor::MySql => "mysql-clock",
    };
    let server = Sql::on(SqlServer::start_with_clock(flavor, [FLUSHED])?, Strategy::Optimistic)?;
    let words = "a step of the server's clock ends leases early";
    Ok(Box::new(Alone::new(name, server, clock::faults(words))))
}

impl Sql {
    pub(super) fn start(flavor: SqlFlavor, strategy: Strategy) -> Result<Self, BoxError> {
        Self::on(SqlServer::start_with(flavor, [FLUSHED])?, strategy)
    }

    pub(super) fn on(server: SqlServer, strategy: Strategy) -> Result<Self, BoxError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { used_up: Vec::new(), server, strategy, runtime })
    }

    /// Runs work as a user that has all rights.
    fn as_admin<T, F: Future<Output = Result<T, Error>>>(
        &self,
        work: impl FnOnce(Admin) -> F,
    ) -> Result<T, BoxError> {
        let url = self.server.admin_url();
        Ok(self.runtime.block_on(async { work(Admin { conn: connect(&url).await? }).await })?)
    }

    /// Runs one statement as that user.
    pub(super) fn run(&self, sql: &str) -> Result<(), BoxError> {
        self.as_admin(async |mut admin| {
            admin.conn.query_drop(sql).await?;
            admin.conn.disconnect().await
        })
    }

    /// The account that lockkit uses.
    fn user(&self) -> String {
        let url = self.server.url();
        let login = url.strip_prefix("mysql://").and_then(|rest| rest.split_once(':'));
        login.map_or_else(String::new, |(user, _)| user.to_owned())
    }

    /// Uses up all free connections, except the one that will free them again.
    fn use_up(&mut self) -> Result<(), BoxError> {
        let url = self.server.url();
        let admin_url = self.server.admin_url();
        let held = self.runtime.block_on(async {
            let mut held = vec![connect(&admin_url).await?];
            held[0].query_drop(format!("SET GLOBAL max_connections={FEW}")).await?;
            loop {
                match connect(&url).await {
                    Ok(conn) => held.push(conn),
                    Err(Error::Server(_)) => return Ok::<_, Error>(held),
                    Err(error) => return Err(error),
                }
            }
        })?;
        self.used_up = held;
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), BoxError> {
        let mut held = std::mem::take(&mut self.used_up);
        self.runtime.block_on(async {
            if let Some(admin) = held.first_mut() {
                admin.query_drop(format!("SET GLOBAL max_connections={PLENTY}")).await?;
            }
            for conn in held {
                conn.disconnect().await?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(())
    }

    fn set_read_only(&self, on: bool) -> Result<(), BoxError> {
        let on = u8::from(on);
        self.as_admin(async |mut admin| {
            // The statement waits for open transactions, and delays new ones in the meantime.
            admin.conn.query_drop("SET SESSION lock_wait_timeout=10").await?;
            admin.conn.query_drop(format!("SET GLOBAL read_only={on}")).await?;
            admin.conn.disconnect().await
        })
    }

    pub(super) fn kill_connections(&self) -> Result<usize, BoxError> {
        let user = self.user();
        self.as_admin(async |mut admin| {
            let all = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER=?";
            let threads: Vec<u64> = admin.conn.exec(all, (user,)).await?;
            for thread in &threads {
                match admin.conn.query_drop(format!("KILL CONNECTION {thread}")).await {
                    // The connection may have ended by itself.
                    Ok(()) | Err(Error::Server(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            admin.conn.disconnect().await?;
            Ok(threads.len())
        })
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        // A connection that is dropped says goodbye to the server on the runtime.
        let _inside = self.runtime.enter();
        self.used_up.clear();
    }
}

struct Admin {
    conn: Conn,
}

async fn connect(url: &str) -> Result<Conn, Error> {
    Conn::new(OptsBuilder::from_opts(Opts::from_url(url)?).prefer_socket(false)).await
}

impl Server for Sql {
    fn url(&self, namespace: &str) -> String {
        let parameters = self.strategy.parameters();
        format!("{}?{parameters}&pool_size=64&table_prefix={namespace}", self.server.url())
    }

    fn leaks(&self, namespace: &str) -> Result<Vec<String>, BoxError> {
        let strategy = match self.strategy {
            Strategy::Optimistic => mysql::Strategy::Optimistic,
            Strategy::Pessimistic | Strategy::Strict => mysql::Strategy::Pessimistic,
        };
        self.as_admin(async |mut admin| {
            let leaks = leaks(&mut admin.conn, strategy, namespace).await?;
            admin.conn.disconnect().await?;
            Ok(leaks)
        })
    }

    fn clock(&self) -> Option<&WallClock> {
        self.server.clock()
    }

    fn process(&mut self) -> &mut ServerProcess {
        &mut self.server
    }

    fn restart(&mut self) -> Result<(), BoxError> {
        Ok(self.server.restart()?)
    }

    fn strike(&mut self, kind: &str) -> Result<String, BoxError> {
        match kind {
            CONNECTIONS => {
                self.use_up()?;
                Ok("every new connection".to_owned())
            }
            KILL_CONNECTIONS => Ok(format!("{} connections", self.kill_connections()?)),
            READ_ONLY => {
                self.set_read_only(true)?;
                Ok("every write".to_owned())
            }
            kind => Err(format!("no fault of an SQL server: {kind}").into()),
        }
    }

    fn heal(&mut self, kind: &str) -> Result<(), BoxError> {
        match kind {
            CONNECTIONS => self.make_room(),
            READ_ONLY => self.set_read_only(false),
            _ => Ok(()),
        }
    }
}
