//! A server, a backend on it, and a second client that looks at the tables directly.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::{
    LockOptions, Locker,
    spi::{Backend as _, Claim, ClaimSpec, Released, Wait},
    url::StoreUrl,
};
use lockkit_fixture::claims;
pub(crate) use lockkit_fixture::{
    SqlFlavor, SqlServer,
    claims::{busy, granted, mutex, persistently, until},
};
use lockkit_mysql::{
    Config, MySql,
    mysql_async::{
        Conn, Opts,
        prelude::{FromRow, Queryable as _},
    },
};
use tokio::sync::Mutex;

/// A lease that no test outlasts.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// A lease that ends within a test, but not because the server stalls.
pub(crate) const SHORT: Duration = Duration::from_secs(8);
/// A server may stall for two seconds, and then it has a lot to do.
pub(crate) const OP_TIMEOUT: Duration = Duration::from_secs(30);
/// An expected event happens within this time, or a test fails. No test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Store {
    pub(crate) mysql: MySql,
    pub(crate) admin: Admin,
    pub(crate) server: SqlServer,
    query: String,
}

impl Store {
    pub(crate) async fn start(flavor: SqlFlavor) -> Self {
        Self::start_with(flavor, "").await
    }

    /// Uses URL parameters such as `&pool_size=2`.
    pub(crate) async fn start_with(flavor: SqlFlavor, query: &str) -> Self {
        let server = SqlServer::start(flavor).unwrap();
        let mysql = connect(&server, query).await;
        let admin = Admin::to(&server).await;
        Self { mysql, admin, server, query: query.to_owned() }
    }

    pub(crate) fn claim(&self, name: &str) -> Box<dyn Claim> {
        self.claim_for(name, TTL)
    }

    pub(crate) fn claim_for(&self, name: &str, ttl: Duration) -> Box<dyn Claim> {
        self.mysql.claim(spec_for(name, ttl)).unwrap()
    }

    /// A backend with its own pool and line, like another process.
    pub(crate) async fn another(&self) -> MySql {
        connect(&self.server, &self.query).await
    }

    /// Makes the rows of a name, so that the next grant updates the token.
    pub(crate) async fn make_token(&self) {
        let mut claim = self.claim("a");
        granted(claim.attempt(Wait::No).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }

    /// A backend whose way to the server can be disturbed.
    pub(crate) async fn behind_proxy(&self) -> (MySql, Proxy) {
        let port = self.server.port();
        let proxy = Proxy::start((Ipv4Addr::LOCALHOST, port).into()).await.unwrap();
        let url = self.server.url().replace(&port.to_string(), &proxy.addr().port().to_string());
        (connect_at(&url, &self.query).await, proxy)
    }

    pub(crate) async fn locker(&self) -> Locker {
        locker(self.another().await)
    }
}

/// Waits until something is so while an attempt is under way.
pub(crate) async fn before_the_answer<T: std::fmt::Debug>(
    asking: impl Future<Output = T>,
    what: &str,
    is_so: impl AsyncFnMut() -> bool,
) {
    tokio::select! {
        answer = asking => panic!("{answer:?}"),
        () = until(what, is_so) => {}
    }
}

pub(crate) async fn connect(server: &SqlServer, query: &str) -> MySql {
    connect_at(&server.url(), query).await
}

pub(crate) async fn connect_at(url: &str, query: &str) -> MySql {
    // A busy machine may need longer than the default to open a connection.
    let url = format!("{url}?strategy=pessimistic&connect_timeout=20s{query}");
    MySql::connect(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap()).await.unwrap()
}

pub(crate) fn locker(mysql: MySql) -> Locker {
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    // These tests are about the store's own queue.
    Locker::new(mysql).with_defaults(options).unwrap().with_process_gate(false)
}

pub(crate) fn spec_for(name: &str, ttl: Duration) -> ClaimSpec {
    claims::spec(name, ttl, OP_TIMEOUT)
}

/// A second client that may do everything.
#[derive(Clone)]
pub(crate) struct Admin(Arc<Mutex<Conn>>);

impl Admin {
    pub(crate) async fn to(server: &SqlServer) -> Self {
        let conn = Conn::new(Opts::from_url(&server.admin_url()).unwrap()).await.unwrap();
        Self(Arc::new(Mutex::new(conn)))
    }

    pub(crate) async fn run(&self, query: &str) {
        self.0.lock().await.query_drop(query).await.unwrap();
    }

    pub(crate) async fn ask<T: FromRow + Send + 'static>(&self, query: &str) -> T {
        self.0
            .lock()
            .await
            .query_first(query)
            .await
            .unwrap()
            .unwrap_or_else(|| panic!("no row: {query}"))
    }

    pub(crate) async fn count(&self, of: &str) -> u64 {
        self.ask(&format!("SELECT COUNT(*) FROM {of}")).await
    }

    /// A counter of the whole server.
    pub(crate) async fn status(&self, name: &str) -> u64 {
        let (_, count): (String, String) =
            self.ask(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).await;
        count.parse().unwrap()
    }

    /// The connection that was granted a lock last.
    pub(crate) async fn thread(&self, name: &str) -> u64 {
        self.ask(&format!("SELECT thread FROM lockkit_fence WHERE kind='mutex' AND name='{name}'"))
            .await
    }

    /// How many statements wait for a row.
    pub(crate) async fn waiting(&self) -> u64 {
        self.count("information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT GET_LOCK(%'").await
    }

    pub(crate) async fn kill(&self, thread: u64) {
        self.run(&format!("KILL {thread}")).await;
        self.until_ended(thread).await;
    }

    /// Waits until the server has ended a connection, with its locks. MySQL hides the connection
    /// from the list of processes as soon as its socket is closed, and keeps its thread for longer.
    pub(crate) async fn until_ended(&self, thread: u64) {
        let listed = format!("information_schema.PROCESSLIST WHERE ID={thread}");
        let alive = format!("performance_schema.threads WHERE PROCESSLIST_ID={thread}");
        until("a connection ends", || async {
            self.count(&listed).await == 0 && self.count(&alive).await == 0
        })
        .await;
    }
}
