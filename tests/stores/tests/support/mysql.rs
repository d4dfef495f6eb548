//! MariaDB and MySQL under test: servers of our own, or the one that `LOCKKIT_TEST_MYSQL_URL` names; both strategies.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store, proxy::Proxy};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
    url::StoreUrl,
};
use lockkit_fixture::{SqlServer, TestSql, sql_servers_from_env_or_start};
use lockkit_mysql::{
    Config, MySql, Strategy,
    mysql_async::{Conn, Opts, OptsBuilder, Row, prelude::Queryable as _},
    schema,
};

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// One server and one strategy. Each case works on tables with a random prefix.
#[derive(Debug)]
pub(crate) struct SqlStore {
    name: String,
    address: Address,
    strategy: Strategy,
    strict: bool,
    server: Option<Arc<Mutex<SqlServer>>>,
    descriptor: Descriptor,
}

impl SqlStore {
    /// Starts the servers, or finds one, and asks what each strategy can do.
    pub(crate) fn start() -> Result<Vec<Self>, BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut stores = Vec::new();
        for TestSql { name, url, server, .. } in sql_servers_from_env_or_start()? {
            let admin = server.as_ref().map(SqlServer::admin_url);
            let address = Address::parse(&url, admin)?;
            let server = server.map(|server| Arc::new(Mutex::new(server)));
            for (strategy, strict, suffix) in [
                (Strategy::Optimistic, false, ""),
                (Strategy::Pessimistic, false, "-pessimistic"),
                (Strategy::Pessimistic, true, "-strict"),
            ] {
                let tables = Tables { strategy, strict, prefix: format!("probe{suffix}").replace('-', "_") };
                let descriptor = runtime.block_on(async {
                    let backend = address.connect(address.host, &tables).await?;
                    let descriptor = backend.descriptor().clone();
                    backend.close().await?;
                    tables.drop(&mut address.admin().await?).await?;
                    Ok::<_, BoxError>(descriptor)
                })?;
                let (address, server) = (address.clone(), server.clone());
                stores.push(Self {
                    name: format!("{name}{suffix}"),
                    address,
                    strategy,
                    strict,
                    server,
                    descriptor,
                });
            }
        }
        Ok(stores)
    }

    /// Whether it may be stopped and restarted.
    pub(crate) fn is_ours(&self) -> bool {
        self.server.is_some()
    }
}

#[async_trait]
impl Store for SqlStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.descriptor.clone()
    }

    fn site(&self) -> String {
        self.address.host.to_string()
    }

    fn hooks(&self) -> Vec<Hook> {
        let mut hooks = vec![Hook::Wire];
        // A row that is locked can't be deleted.
        if self.strategy == Strategy::Optimistic {
            hooks.extend([Hook::ClockBack, Hook::Flush]);
        }
        if self.is_ours() {
            hooks.extend([Hook::Pause, Hook::Restart]);
        }
        hooks
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let prefix = format!("t{:016x}", rand::random::<u64>());
        Ok(Box::new(SqlHarness {
            tables: Tables { strategy: self.strategy, strict: self.strict, prefix },
            address: self.address.clone(),
            server: self.server.clone(),
            paused: Mutex::default(),
            proxies: Mutex::default(),
        }))
    }
}

#[derive(Debug)]
struct SqlHarness {
    tables: Tables,
    address: Address,
    server: Option<Arc<Mutex<SqlServer>>>,
    paused: Mutex<bool>,
    /// Kept to the end: what a case leaves behind is cleaned up through them.
    proxies: Mutex<Vec<Arc<Proxy>>>,
}

impl SqlHarness {
    fn server(&self) -> Result<MutexGuard<'_, SqlServer>, BoxError> {
        let server = self.server.as_ref().ok_or("the server is not ours to stop")?;
        Ok(server.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_paused(&self, pause: bool) -> Result<(), BoxError> {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if *paused != pause {
            let server = self.server()?;
            if pause {
                server.pause()?
            } else {
                server.resume()?
            }
            *paused = pause;
        }
        Ok(())
    }
}

#[async_trait]
impl Harness for SqlHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.address.connect(self.address.host, &self.tables).await?))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let proxy = Arc::new(Proxy::start(self.address.host).await?);
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&proxy));
        Ok((Arc::new(self.address.connect(proxy.addr(), &self.tables).await?), proxy))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let mut admin = self.address.admin().await?;
        let key = || (name.kind().as_str(), name.as_str());
        let table = |table| self.tables.table(table);
        match self.tables.strategy {
            Strategy::Optimistic => {
                let row =
                    format!("UPDATE {} SET owner='',expires_us=0 WHERE kind=? AND name=?", table("lock"));
                admin.exec_drop(row, key()).await?;
                let holders = format!("DELETE FROM {} WHERE kind=? AND name=?", table("holder"));
                admin.exec_drop(holders, key()).await?;
            }
            Strategy::Pessimistic => {
                let holder = format!("SELECT thread FROM {} WHERE kind=? AND name=?", table("fence"));
                let thread: Option<u64> = admin.exec_first(holder, key()).await?;
                let thread = thread.ok_or("nobody had it so far")?;
                // Until there is no such connection any more: a killed one takes its time.
                while admin.query_drop(format!("KILL CONNECTION {thread}")).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // An operator who ends a lease does not make the next one wait for it.
                let lease = format!("UPDATE {} SET open_us=0 WHERE kind=? AND name=?", table("fence"));
                admin.exec_drop(lease, key()).await?;
            }
        }
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let mut admin = self.address.admin().await?;
        let mut leaks = Vec::new();
        if self.tables.strategy == Strategy::Optimistic && self.tables.are_there(&mut admin).await? {
            for table in ["lock", "holder"] {
                let live = format!("SELECT name FROM {} WHERE expires_us>{NOW}", self.tables.table(table));
                let names: Vec<Vec<u8>> = admin.query(live).await?;
                leaks.extend(
                    names.iter().map(|name| format!("a live row of {:?}", String::from_utf8_lossy(name))),
                );
            }
        }
        let running = "SELECT ID,STATE,INFO FROM information_schema.PROCESSLIST WHERE COMMAND='Query' \
                       AND INSTR(INFO,?)>0 AND ID<>CONNECTION_ID()";
        let rows: Vec<Row> = admin.exec(running, (&self.tables.prefix,)).await?;
        leaks.extend(rows.into_iter().map(|row| format!("the statement {:?}", row.unwrap())));
        if self.tables.are_there(&mut admin).await? {
            leaks.extend(self.tables.locked_rows(&mut admin).await?);
        }
        Ok(leaks)
    }

    async fn set_clock_back(&self, name: &LockName, by: Duration) -> Result<(), BoxError> {
        let later = format!(
            "UPDATE {} SET expires_us=expires_us+{} WHERE kind=? AND name=?",
            self.tables.table("lock"),
            by.as_micros()
        );
        Ok(self.address.admin().await?.exec_drop(later, (name.kind().as_str(), name.as_str())).await?)
    }

    async fn close(&self) {
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let dropped = async { self.tables.drop(&mut self.address.admin().await?).await };
        if let Err(error) = dropped.await {
            eprintln!("the tables of a case are left behind: {error}");
        }
    }

    async fn flush(&self) -> Result<(), BoxError> {
        let mut admin = self.address.admin().await?;
        for table in ["lock", "holder"] {
            admin.query_drop(format!("DELETE FROM {}", self.tables.table(table))).await?;
        }
        Ok(())
    }

    async fn pause(&self) -> Result<(), BoxError> {
        self.set_paused(true)
    }

    async fn resume(&self) -> Result<(), BoxError> {
        self.set_paused(false)
    }

    async fn restart(&self) -> Result<(), BoxError> {
        Ok(self.server()?.restart()?)
    }
}

impl Drop for SqlHarness {
    fn drop(&mut self) {
        // A case that failed must not take the next ones with it.
        self.set_paused(false).expect("the server goes on");
    }
}

/// The tables of one case.
#[derive(Debug)]
struct Tables {
    strategy: Strategy,
    strict: bool,
    prefix: String,
}

impl Tables {
    fn table(&self, name: &str) -> String {
        format!("`{}_{name}`", self.prefix)
    }

    async fn are_there(&self, admin: &mut Conn) -> Result<bool, BoxError> {
        let found: Option<u8> = admin
            .exec_first(
                "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME=?",
                (format!("{}_meta", self.prefix),),
            )
            .await?;
        Ok(found.is_some())
    }

    /// What open transactions keep.
    async fn locked_rows(&self, admin: &mut Conn) -> Result<Vec<String>, BoxError> {
        let tables = match self.strategy {
            Strategy::Optimistic => ["lock", "holder"],
            Strategy::Pessimistic => ["row", "fence"],
        };
        let mut leaks = Vec::new();
        // So that rows are seen that were not committed yet.
        admin.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
        for table in tables {
            let table = self.table(table);
            let all: Vec<u8> = admin.query(format!("SELECT 1 FROM {table}")).await?;
            let free: Vec<u8> = admin.query(format!("SELECT 1 FROM {table} FOR UPDATE SKIP LOCKED")).await?;
            if free.len() < all.len() {
                leaks.push(format!("{} locked rows of {table}", all.len() - free.len()));
            }
        }
        Ok(leaks)
    }

    async fn drop(&self, admin: &mut Conn) -> Result<(), BoxError> {
        let statements = schema::sql(self.strategy, &self.prefix);
        let names = statements.split('`').skip(1).step_by(2);
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        admin.query_drop(format!("DROP TABLE IF EXISTS {}", names.join(","))).await?;
        Ok(())
    }
}

/// The parts of a `mysql://` URL.
#[derive(Clone, Debug)]
struct Address {
    /// With its `@`.
    login: String,
    host: SocketAddr,
    database: String,
    /// For somebody who may see and end what others do; ourselves on a user's own server.
    admin: String,
}

impl Address {
    fn parse(url: &str, admin: Option<String>) -> Result<Self, BoxError> {
        let rest = url.strip_prefix("mysql://").ok_or("the URL must start with mysql://")?;
        let (authority, database) = rest.split_once('/').ok_or("the URL must name a database")?;
        let (login, host) = authority.rsplit_once('@').ok_or("the URL must name a user")?;
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:3306") };
        let host = host.to_socket_addrs()?.next().ok_or("the host has no address")?;

        let admin = admin.unwrap_or_else(|| url.to_owned());
        Ok(Self { login: format!("{login}@"), host, database: database.to_owned(), admin })
    }

    async fn connect(&self, host: SocketAddr, tables: &Tables) -> Result<MySql, BoxError> {
        let Self { login, database, .. } = self;
        let strategy = match tables.strategy {
            Strategy::Optimistic => "optimistic",
            Strategy::Pessimistic if tables.strict => "pessimistic&strict_lease=true",
            Strategy::Pessimistic => "pessimistic",
        };
        let url = format!(
            "mysql://{login}{host}/{database}?strategy={strategy}&pool_size=64&table_prefix={}",
            tables.prefix
        );
        Ok(MySql::connect(Config::from_url(StoreUrl::parse(&url)?)?).await?)
    }

    async fn admin(&self) -> Result<Conn, BoxError> {
        let opts = OptsBuilder::from_opts(Opts::from_url(&self.admin)?).prefer_socket(false);
        Ok(Conn::new(opts).await?)
    }
}
