//! MariaDB and MySQL under test: servers of this test, or the one that `LOCKKIT_TEST_MYSQL_URL`
//! names; both strategies.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
    url::StoreUrl,
};
use lockkit_fixture::{SqlFlavor, SqlServer, TestSql, sql_servers_from_env_or_start};
use lockkit_mysql::{
    Config, MySql, Strategy,
    mysql_async::{Conn, Opts, OptsBuilder, prelude::Queryable as _},
    schema,
};

use crate::{
    shared::{Address, Proxies, Shared, Spare},
    sql_leaks::leaks,
};

const PORT: u16 = 3306;

/// One server and one strategy. Each case works on tables with a random prefix.
#[derive(Debug)]
pub(crate) struct SqlStore {
    name: String,
    place: Place,
    strategy: Strategy,
    strict: bool,
    descriptor: Descriptor,
    /// `None` on a user's own server.
    flavor: Option<SqlFlavor>,
    spare: Spare<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    address: Address,
    /// The URL of a user that may see and end the work of others. On a user's own server, it is the
    /// given user.
    admin: String,
    server: Shared<SqlServer>,
}

impl SqlStore {
    /// Starts the servers, or finds one, and reads the abilities of each strategy.
    pub(crate) fn start() -> Result<Vec<Self>, BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut stores = Vec::new();
        for TestSql { flavor, name, url, server } in sql_servers_from_env_or_start()? {
            let place = Place::new(url, server)?;
            let spare = Spare::default();
            for (strategy, strict, suffix) in [
                (Strategy::Optimistic, false, ""),
                (Strategy::Pessimistic, false, "-pessimistic"),
                (Strategy::Pessimistic, true, "-strict"),
            ] {
                let tables =
                    Tables { strategy, strict, prefix: format!("probe{suffix}").replace('-', "_") };
                let descriptor = runtime.block_on(async {
                    let backend = tables.connect(&place.address.url()).await?;
                    let descriptor = backend.descriptor().clone();
                    backend.close().await?;
                    tables.drop(&mut place.admin().await?).await?;
                    Ok::<_, BoxError>(descriptor)
                })?;
                let name = format!("{name}{suffix}");
                let place = place.clone();
                let spare = spare.clone();
                stores.push(Self { name, place, strategy, strict, descriptor, flavor, spare });
            }
        }
        Ok(stores)
    }

    /// Whether the server may be stopped and restarted.
    pub(crate) fn is_ours(&self) -> bool {
        self.place.server.are_ours()
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
        self.place.address.host.to_string()
    }

    fn hooks(&self) -> Vec<Hook> {
        let mut hooks = vec![Hook::Wire];
        // These hooks delete or change rows, which is not possible for a locked row.
        if self.strategy == Strategy::Optimistic {
            hooks.extend([Hook::ClockBack, Hook::Flush]);
        }
        if self.is_ours() {
            hooks.extend([Hook::Pause, Hook::Restart]);
        }
        hooks
    }

    fn on_a_server_of_its_own(&self) -> Result<Option<Arc<dyn Store>>, BoxError> {
        let Some(flavor) = self.flavor else { return Ok(None) };
        let place = self.spare.get_or_start(|| {
            let server = SqlServer::start(flavor)?;
            Place::new(server.url(), Some(server))
        })?;
        Ok(Some(Arc::new(Self {
            name: self.name.clone(),
            place,
            strategy: self.strategy,
            strict: self.strict,
            descriptor: self.descriptor.clone(),
            flavor: self.flavor,
            spare: Spare::default(),
        })))
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let prefix = format!("t{:016x}", rand::random::<u64>());
        Ok(Box::new(SqlHarness {
            tables: Tables { strategy: self.strategy, strict: self.strict, prefix },
            place: self.place.clone(),
            proxies: Proxies::default(),
        }))
    }
}

#[derive(Debug)]
struct SqlHarness {
    tables: Tables,
    place: Place,
    proxies: Proxies,
}

#[async_trait]
impl Harness for SqlHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.tables.connect(&self.place.address.url()).await?))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let address = &self.place.address;
        let proxy = self.proxies.start(address.host).await?;
        Ok((Arc::new(self.tables.connect(&address.url_through(proxy.addr())).await?), proxy))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let mut admin = self.place.admin().await?;
        let key = || (name.kind().as_str(), name.as_str());
        let table = |table| self.tables.table(table);
        match self.tables.strategy {
            Strategy::Optimistic => {
                let row = format!(
                    "UPDATE {} SET owner='',expires_us=0 WHERE kind=? AND name=?",
                    table("lock")
                );
                admin.exec_drop(row, key()).await?;
                let holders = format!("DELETE FROM {} WHERE kind=? AND name=?", table("holder"));
                admin.exec_drop(holders, key()).await?;
            }
            Strategy::Pessimistic => {
                let holder =
                    format!("SELECT thread,fence FROM {} WHERE kind=? AND name=?", table("fence"));
                let present: Option<(u64, u64)> = admin.exec_first(&holder, key()).await?;
                let (thread, _) = present.ok_or("no connection has had the lock so far")?;
                // Waits until the connection has ended and the row is free, because a killed
                // connection needs some time to end.
                while admin.query_drop(format!("KILL CONNECTION {thread}")).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let free = format!(
                    "SELECT 1 FROM {} WHERE kind=? AND name=? FOR UPDATE NOWAIT",
                    table("row")
                );
                while admin.exec_drop(&free, key()).await.is_err() {
                    if admin.exec_first(&holder, key()).await? != present {
                        // The next owner has it already.
                        return Ok(());
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // When an operator ends a lease, the next owner need not wait for it.
                let lease =
                    format!("UPDATE {} SET open_us=0 WHERE kind=? AND name=?", table("fence"));
                admin.exec_drop(lease, key()).await?;
            }
        }
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let Tables { strategy, prefix, .. } = &self.tables;
        Ok(leaks(&mut self.place.admin().await?, *strategy, prefix).await?)
    }

    async fn set_clock_back(&self, name: &LockName, by: Duration) -> Result<(), BoxError> {
        let later = format!(
            "UPDATE {} SET expires_us=expires_us+{} WHERE kind=? AND name=?",
            self.tables.table("lock"),
            by.as_micros()
        );
        Ok(self
            .place
            .admin()
            .await?
            .exec_drop(later, (name.kind().as_str(), name.as_str()))
            .await?)
    }

    async fn close(&self) {
        self.proxies.end();
        let dropped = async { self.tables.drop(&mut self.place.admin().await?).await };
        if let Err(error) = dropped.await {
            eprintln!("the tables of a case are left behind: {error}");
        }
    }

    async fn flush(&self) -> Result<(), BoxError> {
        let mut admin = self.place.admin().await?;
        for table in ["lock", "holder"] {
            admin.query_drop(format!("DELETE FROM {}", self.tables.table(table))).await?;
        }
        Ok(())
    }

    async fn pause(&self) -> Result<(), BoxError> {
        self.place.server.pause()
    }

    async fn resume(&self) -> Result<(), BoxError> {
        self.place.server.resume()
    }

    async fn restart(&self) -> Result<(), BoxError> {
        Ok(self.place.server.lock()?.restart()?)
    }
}

impl Place {
    fn new(url: String, server: Option<SqlServer>) -> Result<Self, BoxError> {
        let address = Address::parse(&url, PORT)?;
        let admin = server.as_ref().map_or(url, SqlServer::admin_url);
        Ok(Self { address, admin, server: Shared::new(server) })
    }

    async fn admin(&self) -> Result<Conn, BoxError> {
        let opts = OptsBuilder::from_opts(Opts::from_url(&self.admin)?).prefer_socket(false);
        Ok(Conn::new(opts).await?)
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
    /// The store at a URL, on these tables.
    async fn connect(&self, url: &str) -> Result<MySql, BoxError> {
        let strategy = match self.strategy {
            Strategy::Optimistic => "optimistic",
            Strategy::Pessimistic if self.strict => "pessimistic&strict_lease=true",
            Strategy::Pessimistic => "pessimistic",
        };
        let url = format!(
            "{url}?strategy={strategy}&pool_size=64&connect_timeout=8s&table_prefix={}",
            self.prefix
        );
        Ok(MySql::connect(Config::from_url(StoreUrl::parse(&url)?)?).await?)
    }

    fn table(&self, name: &str) -> String {
        format!("`{}_{name}`", self.prefix)
    }

    async fn drop(&self, admin: &mut Conn) -> Result<(), BoxError> {
        let statements = schema::sql(self.strategy, &self.prefix);
        let names = statements.split('`').skip(1).step_by(2);
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        admin.query_drop(format!("DROP TABLE IF EXISTS {}", names.join(","))).await?;
        Ok(())
    }
}
