//! Servers, backends on them, and a second client that looks at the tables directly.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::{
    Error, FencingToken, Kind, LockName, LockOptions, Locker, Result,
    spi::{Backend as _, Claim, ClaimSpec, Mode, Wait},
    url::StoreUrl,
};
use lockkit_fixture::claims::given_up;
pub(crate) use lockkit_fixture::claims::{busy, granted, mutex, persistently, texts, until};
use lockkit_fixture::{SqlFlavor, SqlServer, claims};
use lockkit_mysql::{
    Config, MySql,
    mysql_async::{
        self, Conn, Opts, OptsBuilder,
        prelude::{FromRow, Queryable as _},
    },
};
use tokio::time::{Instant, sleep, timeout};

/// A lease that no test outlasts.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// A lease that ends within a test, but not because the server stalls.
pub(crate) const SHORT: Duration = Duration::from_secs(9);
/// A server may stall for two seconds, and then it has a lot to do.
pub(crate) const OP_TIMEOUT: Duration = Duration::from_secs(30);
/// An expected event happens within this time, or a test fails. No test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How long an unhurried machine needs for something that takes no time. It is only a pause,
/// because a busy machine needs longer.
pub(crate) const SLACK: Duration = Duration::from_millis(400);
/// The server gives the same list of transactions again to a client that asks more often.
const AFRESH: Duration = Duration::from_millis(120);
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
/// With this retention, no background task cleans up while statements are counted.
pub(crate) const QUIET: &str = "retention=3650d";
const NO_SUCH_THREAD: u16 = 1094;

/// A server, and a table prefix on it that no other test has.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) server: Arc<SqlServer>,
    pub(crate) prefix: String,
}

impl Bed {
    /// A bed on the server that the tests share, for as long as any of them runs.
    pub(crate) fn shared(flavor: SqlFlavor) -> Self {
        static SERVERS: Mutex<[Weak<SqlServer>; 2]> = Mutex::new([Weak::new(), Weak::new()]);
        // A test that failed with this lock says nothing about the server.
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &mut servers[usize::from(flavor == SqlFlavor::MySql)];
        let server = shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(SqlServer::start(flavor).unwrap());
            *shared = Arc::downgrade(&server);
            server
        });
        Self::on(server)
    }

    /// A bed on a server for one test, which pauses it, misconfigures it, or counts its requests.
    pub(crate) fn own(flavor: SqlFlavor, args: &[&str]) -> Self {
        Self::on(Arc::new(SqlServer::start_with(flavor, args.iter().copied()).unwrap()))
    }

    /// A bed on a server for one test, which never stalls.
    pub(crate) fn steady(flavor: SqlFlavor) -> Self {
        let mut server = SqlServer::start(flavor).unwrap();
        server.never_stall();
        Self::on(Arc::new(server))
    }

    pub(crate) fn on(server: Arc<SqlServer>) -> Self {
        Self { server, prefix: format!("t{:016x}", rand::random::<u64>()) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.port()).into()
    }

    pub(crate) fn url(&self, query: &str) -> String {
        self.url_at(self.addr(), query)
    }

    pub(crate) fn url_at(&self, addr: SocketAddr, query: &str) -> String {
        let url = self.server.url().replace(&self.addr().to_string(), &addr.to_string());
        self.with_prefix(&url, query)
    }

    /// The URL for another user than the usual one.
    pub(crate) fn url_as(&self, user: &str, password: &str, query: &str) -> String {
        self.with_prefix(&format!("mysql://{user}:{password}@{}/lockkit", self.addr()), query)
    }

    pub(crate) fn with_prefix(&self, url: &str, query: &str) -> String {
        // A busy machine may need longer than the default to open a connection.
        let patient = "connect_timeout=20s";
        format!("{url}?table_prefix={}&{patient}&{query}", self.prefix)
            .trim_end_matches('&')
            .to_owned()
    }

    pub(crate) async fn connect(&self, query: &str) -> MySql {
        connect_in_the_end(&self.url(query)).await
    }

    pub(crate) async fn locker(&self, query: &str) -> Locker {
        locker(self.connect(query).await)
    }

    /// A backend whose way to the server can be disturbed.
    pub(crate) async fn behind_proxy(&self, query: &str) -> (MySql, Proxy) {
        let proxy = Proxy::start(self.addr()).await.unwrap();
        (connect_in_the_end(&self.url_at(proxy.addr(), query)).await, proxy)
    }

    pub(crate) fn table(&self, name: &str) -> String {
        format!("`{}_{name}`", self.prefix)
    }

    pub(crate) async fn admin(&self) -> Admin {
        Admin::to(&self.server).await
    }

    /// The statement that counts the locks of that name whose waiters have recorded that they wait.
    pub(crate) fn wanted(&self, name: &str) -> String {
        format!(
            "SELECT COUNT(*) FROM {} WHERE name='{name}' AND wanted_us>{NOW}",
            self.table("lock")
        )
    }

    /// The statement that counts the requests for a mutex that are at work on the server. They take
    /// long only if they wait for the row. A preparation is no such request.
    pub(crate) fn waiting(&self) -> String {
        format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE USER='lockkit' AND COMMAND NOT IN('Sleep','Prepare') \
             AND (INFO LIKE 'INSERT INTO%{0}%' OR INFO LIKE 'UPDATE%{0}%SET fence=LAST_INSERT_ID%')",
            self.prefix
        )
    }

    /// From its next insert on, a connection waits for a row for longer than any test. So a wait by
    /// mistake can't stay hidden.
    pub(crate) async fn wait_for_rows(&self, admin: &mut Admin) {
        self.wait_for_rows_until(admin, SOON * 3).await;
    }

    /// From its next insert on, a connection waits for a row for `longest`.
    pub(crate) async fn wait_for_rows_until(&self, admin: &mut Admin, longest: Duration) {
        for table in ["lock", "holder"] {
            let trigger = format!("{}_{table}_waits", self.prefix);
            let table = self.table(table);
            admin
                .run(format!(
                    "CREATE TRIGGER lockkit.{trigger} BEFORE INSERT ON lockkit.{table} FOR EACH ROW \
                     SET SESSION innodb_lock_wait_timeout={}",
                    longest.as_secs()
                ))
                .await;
        }
    }

    /// Waits until nothing of a storm is left on the server. Without a cleanup, nothing of this
    /// would end before the end of a lease.
    pub(crate) async fn assert_clean(&self) {
        let mut admin = self.admin().await;
        let start = Instant::now();
        loop {
            let left = self.left(&mut admin).await;
            if left.is_empty() {
                println!("clean after {:?}", start.elapsed());
                return;
            }
            assert!(start.elapsed() < SOON, "{left:#?}");
            sleep(AFRESH).await;
        }
    }

    /// Running statements, open transactions, live rows.
    async fn left(&self, admin: &mut Admin) -> Vec<String> {
        let mut left = Vec::new();
        let running = "SELECT CONCAT(ID,' ',COALESCE(STATE,''),' ',COALESCE(INFO,'')) FROM \
                       information_schema.PROCESSLIST WHERE USER='lockkit' AND COMMAND<>'Sleep'";
        left.extend(admin.all::<String>(running).await);
        let open = "SELECT CONCAT('transaction of ',trx_mysql_thread_id) FROM information_schema.INNODB_TRX";
        left.extend(admin.all::<String>(open).await);
        for table in ["lock", "holder"] {
            let live = format!("SELECT name FROM {} WHERE expires_us>{NOW}", self.table(table));
            let names = admin.all::<Vec<u8>>(&live).await;
            left.extend(
                names.iter().map(|name| format!("live: {}", String::from_utf8_lossy(name))),
            );
        }
        left
    }
}

pub(crate) async fn connect(url: &str) -> Result<MySql> {
    MySql::connect(Config::from_url(StoreUrl::parse(url)?)?).await
}

/// As [`connect`], for as long as that may help. If the server stalls while others make the same
/// tables, a statement waits for longer than it may.
pub(crate) async fn connect_in_the_end(url: &str) -> MySql {
    let start = Instant::now();
    loop {
        match connect(url).await {
            Ok(backend) => return backend,
            Err(error) => assert!(error.is_temporary() && start.elapsed() < SOON, "{error}"),
        }
    }
}

/// The error of a URL that must be refused.
pub(crate) async fn refused(url: &str) -> Error {
    connect(url).await.map(drop).expect_err("it was not refused")
}

pub(crate) fn locker(backend: MySql) -> Locker {
    with_ttl(backend, TTL)
}

/// A locker whose requests may take half of the lease, so that none of them fails by a stall of the
/// server.
pub(crate) fn with_ttl(backend: MySql, ttl: Duration) -> Locker {
    let options = LockOptions::new().with_ttl(ttl).with_op_timeout(OP_TIMEOUT.min(ttl / 2));
    // These tests are about the store's own queue.
    Locker::new(backend).with_defaults(options).unwrap().with_process_gate(false)
}

pub(crate) fn spec(name: &str) -> ClaimSpec {
    claims::spec(name, TTL, OP_TIMEOUT)
}

pub(crate) fn claim(backend: &MySql, name: &str) -> Box<dyn Claim> {
    backend.claim(spec(name)).unwrap()
}

pub(crate) fn claim_in(backend: &MySql, kind: Kind, name: &str, mode: Mode) -> Box<dyn Claim> {
    let mut spec = spec(name);
    (spec.name, spec.mode) = (LockName::new(kind, name).unwrap(), mode);
    backend.claim(spec).unwrap()
}

/// The token of one more grant, which is released at once.
pub(crate) async fn next_token(backend: &MySql, name: &str) -> FencingToken {
    let mut claim = claim(backend, name);
    let token = granted(claim.attempt(Wait::No).await).token;
    given_up(claim.release()).await;
    token
}

/// Fails if `future` takes longer than `limit`.
pub(crate) async fn within<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    timeout(limit, future).await.unwrap_or_else(|_| panic!("{what} took longer than {limit:?}"))
}

/// Drops a request whose reply is lost, once it is applied.
pub(crate) async fn unanswered<T: fmt::Debug>(
    request: impl Future<Output = T>,
    is_applied: impl AsyncFnMut() -> bool,
) {
    tokio::select! {
        answer = request => panic!("the reply was not lost: {answer:?}"),
        () = until("it is applied", is_applied) => {}
    }
}

/// A second client, with the plain client library, that may do everything.
pub(crate) struct Admin(Conn);

impl Admin {
    async fn to(server: &SqlServer) -> Self {
        let opts = OptsBuilder::from_opts(Opts::from_url(&server.admin_url()).unwrap())
            .prefer_socket(false);
        let mut conn = Conn::new(opts).await.unwrap();
        // The server's own settings do not count here.
        conn.query_drop("SET autocommit=1,time_zone='+00:00',completion_type='NO_CHAIN'")
            .await
            .unwrap();
        Self(conn)
    }

    pub(crate) async fn run(&mut self, sql: impl fmt::Display) {
        let sql = sql.to_string();
        self.0.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) async fn all<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Vec<T> {
        self.0.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) async fn one<T: FromRow + Send + 'static>(&mut self, sql: impl fmt::Display) -> T {
        let sql = sql.to_string();
        self.all(&sql).await.pop().unwrap_or_else(|| panic!("{sql}: no row"))
    }

    /// A counter of the whole server.
    pub(crate) async fn status(&mut self, name: &str) -> u64 {
        let row: (String, String) = self.one(format!("SHOW GLOBAL STATUS LIKE '{name}'")).await;
        row.1.parse().unwrap()
    }

    /// Ends every connection of the usual user.
    pub(crate) async fn kill_all(&mut self) -> usize {
        let users = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='lockkit'";
        let ids = self.all::<u64>(users).await;
        for id in &ids {
            match self.0.query_drop(format!("KILL {id}")).await {
                // The connection has ended by itself meanwhile.
                Err(mysql_async::Error::Server(gone)) if gone.code == NO_SUCH_THREAD => {}
                killed => killed.unwrap_or_else(|error| panic!("KILL {id}: {error}")),
            }
        }
        ids.len()
    }
}
