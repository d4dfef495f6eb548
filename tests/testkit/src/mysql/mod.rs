//! MariaDB and MySQL servers of our own.

mod galera;
mod program;
mod readiness;
mod server;
mod template;
mod tls;

use std::{
    env, fmt,
    io::{self, Write as _},
    sync::Once,
};

use anyhow::Result;

pub use self::{
    galera::{GALERA_LIBRARIES, GaleraCluster},
    program::{MYSQL_HOME_VARIABLE, mysql_home, mysql_is_there, unpacked_mysql},
    server::SqlServer,
};

/// The variable with the URL of the user's own MariaDB or MySQL for the tests.
pub const MYSQL_URL_VARIABLE: &str = "LOCKKIT_TEST_MYSQL_URL";

/// Which of the two servers: they share one protocol and one dialect, but behave differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlFlavor {
    /// MariaDB.
    MariaDb,
    /// Oracle's MySQL.
    MySql,
}

impl SqlFlavor {
    fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }
}

impl fmt::Display for SqlFlavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A MariaDB or MySQL for the tests.
#[derive(Debug)]
pub struct TestSql {
    /// Which server it is. `None` for the user's own server.
    pub flavor: Option<SqlFlavor>,
    /// A word for the names of tests.
    pub name: &'static str,
    /// The URL.
    pub url: String,
    /// The server, if the tests may pause and kill it.
    pub server: Option<SqlServer>,
}

/// Returns the server that `LOCKKIT_TEST_MYSQL_URL` names. Otherwise starts a MariaDB, and also a
/// MySQL if one is installed.
///
/// If MySQL is missing, a warning goes to standard error, past any capture of a test's output.
///
/// # Errors
/// As for [`SqlServer::start`]. A missing MySQL is no error.
pub fn sql_servers_from_env_or_start() -> Result<Vec<TestSql>> {
    if let Ok(url) = env::var(MYSQL_URL_VARIABLE) {
        return Ok(vec![TestSql { flavor: None, name: "sql", url, server: None }]);
    }
    let mut servers = vec![start(SqlFlavor::MariaDb)?];
    if has_mysql() {
        servers.push(start(SqlFlavor::MySql)?);
    }
    Ok(servers)
}

/// Makes two tests of each asynchronous function of a [`SqlFlavor`]: one on MariaDB, and one on
/// MySQL if that is installed.
#[macro_export]
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod mariadb {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::SqlFlavor::MariaDb).await;
            }
        )*}

        mod mysql {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if $crate::has_mysql() {
                    super::$test($crate::SqlFlavor::MySql).await;
                }
            }
        )*}
    };
}

/// Whether there is a MySQL. If it is missing, one warning goes to standard error, past any capture
/// of a test's output.
pub fn has_mysql() -> bool {
    static ANNOUNCED: Once = Once::new();
    let missing = mysql_is_there().err();
    if let Some(reason) = &missing {
        ANNOUNCED.call_once(|| announce(reason));
    }
    missing.is_none()
}

fn start(flavor: SqlFlavor) -> Result<TestSql> {
    let server = SqlServer::start(flavor)?;
    Ok(TestSql {
        flavor: Some(flavor),
        name: flavor.name(),
        url: server.url(),
        server: Some(server),
    })
}

/// Writes a warning directly: the test harness captures `eprintln!`, and shows it only if the test
/// fails.
fn announce(reason: &str) {
    let line = "=".repeat(80);
    // A test can't react to a warning that can't be written.
    let _ = writeln!(
        io::stderr(),
        "{line}\nWARNING: nothing is tested on MySQL here, only on MariaDB.\n{reason}\n{line}"
    );
}
