//! Tests of MariaDB and MySQL servers. Each test runs on MariaDB, and on MySQL if that is
//! installed.

use std::{fs, io::Read as _, net::TcpStream, path::PathBuf, time::Duration};

use lockkit_fixture::{ClockDirection, SqlFlavor, SqlServer, on_both};
use mysql_async::{Conn, Opts, OptsBuilder, Result, SslOpts, prelude::Queryable as _};

on_both! {
    a_killed_server_restarts_on_its_port_with_what_was_committed,
    a_paused_server_is_silent_until_it_is_resumed,
    a_stopped_server_has_ended_in_order,
    a_user_may_do_all_in_his_database_and_nothing_else,
    a_bad_option_is_an_error_with_the_log,
    options_take_precedence,
    statements_see_a_clock_of_its_own,
    the_authority_vouches_for_the_server,
    the_database_compares_without_case,
    two_servers_share_nothing,
    what_happens_in_the_server_can_be_seen,
}

async fn connect(url: &str) -> Result<Conn> {
    Conn::new(Opts::from_url(url).unwrap()).await
}

async fn value(conn: &mut Conn, query: &str) -> String {
    conn.query_first(query).await.unwrap().unwrap()
}

fn ended(pid: i32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_err()
}

async fn a_killed_server_restarts_on_its_port_with_what_was_committed(flavor: SqlFlavor) {
    let mut server = SqlServer::start(flavor).unwrap();
    let mut conn = connect(&server.url()).await.unwrap();
    conn.query_drop("CREATE TABLE t (n INT PRIMARY KEY) ENGINE=InnoDB").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    conn.query_drop("BEGIN").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    let port = server.port();
    let pid = server.pid();
    server.restart().unwrap();
    assert!(ended(pid));
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    let mut conn = connect(&server.url()).await.unwrap();
    let rows: Vec<u8> = conn.query("SELECT n FROM t ORDER BY n").await.unwrap();
    assert_eq!(rows, [1]);
}

async fn a_paused_server_is_silent_until_it_is_resumed(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    server.pause().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(stream.read(&mut [0; 8]).is_err(), "a paused server greets");
    server.resume().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_ne!(stream.read(&mut [0; 8]).unwrap(), 0);
}

async fn a_stopped_server_has_ended_in_order(flavor: SqlFlavor) {
    let mut server = SqlServer::start(flavor).unwrap();
    let mut conn = connect(&server.url()).await.unwrap();
    conn.query_drop("CREATE TABLE t (n INT PRIMARY KEY)").await.unwrap();
    let pid = server.pid();
    let socket = server.socket();
    assert!(socket.exists());
    server.stop().unwrap();
    assert!(ended(pid));
    assert!(!socket.exists(), "a server that ends in order removes its socket");
    server.restart().unwrap();
    let mut conn = connect(&server.url()).await.unwrap();
    assert_eq!(value(&mut conn, "SELECT COUNT(*) FROM t").await, "0");
    let folder = socket.parent().unwrap().to_owned();
    let pid = server.pid();
    drop(server);
    assert!(ended(pid));
    assert!(!folder.exists());
}

async fn a_user_may_do_all_in_his_database_and_nothing_else(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    assert!(server.url().ends_with(&format!("@127.0.0.1:{}/lockkit", server.port())));
    assert!(server.url().contains('%'), "a password that needs no escaping tests nothing");
    let mut user = connect(&server.url()).await.unwrap();
    for statement in [
        "CREATE TABLE t (n INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD m INT",
        "DROP TABLE t",
    ] {
        user.query_drop(statement).await.unwrap();
    }
    for statement in ["SELECT * FROM mysql.user", "SET GLOBAL read_only=1", "CREATE DATABASE other"]
    {
        user.query_drop(statement).await.unwrap_err();
    }
    let mut admin = connect(&server.admin_url()).await.unwrap();
    for statement in ["SELECT * FROM mysql.user", "SET GLOBAL read_only=1", "CREATE DATABASE other"]
    {
        admin.query_drop(statement).await.unwrap();
    }
    let others =
        "SELECT CONCAT(user, '@', host) FROM mysql.user WHERE host != '%' AND user NOT LIKE 'm%.%'";
    let others: Vec<String> = admin.query(others).await.unwrap();
    assert!(others.iter().all(|user| user.starts_with("mysql.")), "{others:?}");
}

async fn a_bad_option_is_an_error_with_the_log(flavor: SqlFlavor) {
    let error = SqlServer::start_with(flavor, ["--no-such-thing=1"]).unwrap_err().to_string();
    assert!(error.contains("no-such-thing"), "{error}");
}

async fn options_take_precedence(flavor: SqlFlavor) {
    let args = ["--innodb-flush-log-at-trx-commit=1", "--read-only=1"];
    let server = SqlServer::start_with(flavor, args).unwrap();
    let mut conn = connect(&server.url()).await.unwrap();
    assert_eq!(value(&mut conn, "SELECT @@innodb_flush_log_at_trx_commit").await, "1");
    conn.query_drop("CREATE TABLE t (n INT)").await.unwrap_err();
}

async fn the_database_compares_without_case(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    let mut conn = connect(&server.url()).await.unwrap();
    assert_eq!(value(&mut conn, "SELECT @@collation_database").await, "utf8mb4_general_ci");
}

/// MySQL has its own keys by default, and MariaDB may have them. Therefore the test checks which
/// files are in use.
async fn the_authority_vouches_for_the_server(flavor: SqlFlavor) {
    let server = SqlServer::start_with_tls(flavor).unwrap();
    let mut conn = connect(&server.admin_url()).await.unwrap();
    let ca = server.tls_ca();
    assert_eq!(value(&mut conn, "SELECT @@ssl_ca").await, ca.display().to_string());
    assert!(fs::read_to_string(&ca).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap());
    let trusting = |ca: PathBuf| SslOpts::default().with_root_certs(vec![ca.into()]);
    let mut conn = Conn::new(opts.clone().ssl_opts(trusting(ca))).await.unwrap();
    let (_, cipher): (String, String) =
        conn.query_first("SHOW STATUS LIKE 'Ssl_cipher'").await.unwrap().unwrap();
    assert!(!cipher.is_empty());
    let other = SqlServer::start_with_tls(flavor).unwrap();
    Conn::new(opts.ssl_opts(trusting(other.tls_ca()))).await.unwrap_err();
}

async fn two_servers_share_nothing(flavor: SqlFlavor) {
    let a = SqlServer::start(flavor).unwrap();
    let b = SqlServer::start(flavor).unwrap();
    assert_ne!(a.port(), b.port());
    if flavor == SqlFlavor::MySql {
        let mut ids = Vec::new();
        for server in [&a, &b] {
            ids.push(
                value(&mut connect(&server.url()).await.unwrap(), "SELECT @@server_uuid").await,
            );
        }
        assert_ne!(ids[0], ids[1]);
    }
    let mut conn = connect(&a.url()).await.unwrap();
    conn.query_drop("CREATE TABLE t (n INT)").await.unwrap();
    let mut conn = connect(&b.url()).await.unwrap();
    conn.query_drop("SELECT * FROM t").await.unwrap_err();
}

async fn what_happens_in_the_server_can_be_seen(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    let mut user = connect(&server.url()).await.unwrap();
    user.query_drop("CREATE TABLE t (n INT PRIMARY KEY)").await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    let mut admin = connect(&server.admin_url()).await.unwrap();
    let processes = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='lockkit'";
    assert_eq!(value(&mut admin, processes).await, "1");
    let transactions = "SELECT COUNT(*) FROM information_schema.INNODB_TRX";
    assert_eq!(value(&mut admin, transactions).await, "1");
    if flavor == SqlFlavor::MySql {
        let processes = "SELECT COUNT(*) FROM performance_schema.processlist WHERE USER='lockkit'";
        assert_eq!(value(&mut admin, processes).await, "1");
    }
}

async fn statements_see_a_clock_of_its_own(flavor: SqlFlavor) {
    let mut server =
        SqlServer::start_with_clock(flavor, ["--innodb-flush-log-at-trx-commit=1"]).unwrap();
    let hour = Duration::from_secs(3600);
    let mut conn = connect(&server.url()).await.unwrap();
    let time = "SELECT CAST(UNIX_TIMESTAMP() AS CHAR)";
    let before: i64 = value(&mut conn, time).await.parse().unwrap();
    for (direction, least) in [(ClockDirection::Forward, 3600), (ClockDirection::Back, 0)] {
        server.clock().unwrap().step(hour, direction).unwrap();
        let after: i64 = value(&mut conn, time).await.parse().unwrap();
        assert!(
            (least..least + 60).contains(&(after - before)),
            "{direction:?}: {before}, then {after}"
        );
    }
    server.clock().unwrap().step(hour, ClockDirection::Forward).unwrap();
    server.restart().unwrap();
    let mut conn = connect(&server.url()).await.unwrap();
    let after: i64 = value(&mut conn, time).await.parse().unwrap();
    assert!(after - before >= 3600, "a restart puts the clock back");
}
