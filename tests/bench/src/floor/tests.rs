//! Tests on real servers that the floors send the documented requests, and leave nothing behind.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lockkit::{
    mysql::mysql_async::{Conn, Opts, prelude::Queryable as _},
    redis::redis::Client as RedisClient,
    zk::zookeeper_client::Client as ZkClient,
};
use lockkit_fixture::{
    RedisCluster, RedisOptions, RedisServer, SentinelGroup, SqlFlavor, SqlServer, ZooKeeperServer,
    mysql_is_there,
};

use super::{Rival, rivals};
use crate::{report::Side, server};

mod contenders;

const PAIRS: u64 = 50;

async fn rival(url: &str, side: Side) -> Rival {
    let all = rivals(url, None).await.unwrap();
    all.into_iter().find(|rival| rival.side == side).unwrap()
}

async fn floor(url: &str) -> Rival {
    rival(url, Side::Floor).await
}

/// Requests of one pair, without the first requests of a client.
async fn requests_per_pair(url: &str) -> u64 {
    let server = server::open(url).await.unwrap();
    let floor = floor(url).await;
    let mut clients = floor.clients(2).await.unwrap();
    for (name, client) in clients.iter_mut().enumerate() {
        client.pair(&format!("bench/{name}"), Duration::ZERO).await.unwrap();
    }
    let before = server.requests().await.unwrap().unwrap();
    for _ in 0..PAIRS {
        for (name, client) in clients.iter_mut().enumerate() {
            client.pair(&format!("bench/{name}"), Duration::ZERO).await.unwrap();
        }
    }
    let after = server.requests().await.unwrap().unwrap();
    // A counter that counted its own question would report one more each time.
    assert_eq!(server.requests().await.unwrap().unwrap(), after);
    floor.close().await.unwrap();
    let all = after - before;
    let pairs = PAIRS * u64::try_from(clients.len()).unwrap();
    assert_eq!(all % pairs, 0, "{all} requests for {pairs} pairs");
    all / pairs
}

#[tokio::test]
async fn a_pair_on_redis_is_two_requests_and_leaves_nothing() {
    let server = RedisServer::start().unwrap();
    assert_eq!(requests_per_pair(&server.url()).await, 2);
    assert_eq!(keys_of_names(&server), [""; 0]);
}

/// All keys but those that the lockers of a prefix share.
fn keys_of_names(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<_> =
        server.ask(["KEYS", "*"]).unwrap().elements().iter().map(|key| key.text()).collect();
    keys.retain(|key| key != "lockkit:keys" && !key.starts_with("lockkit:token"));
    keys
}

#[tokio::test]
async fn a_pair_on_a_file_excludes_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let floor = floor(&format!("file://{}", folder.path().display())).await;
    let mut clients = floor.clients(2).await.unwrap();
    let [first, second] = &mut clients[..] else { panic!("not two clients") };
    let hold = Duration::from_millis(200);
    let (held, refused) = tokio::join!(first.pair("bench/x", hold), async {
        tokio::task::yield_now().await;
        second.pair("bench/x", Duration::ZERO).await
    });
    held.unwrap();
    refused.expect_err("two had it");
    second.pair("bench/x", Duration::ZERO).await.unwrap();
    drop(clients);
    floor.close().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_pair_on_a_socket_with_password_and_database_is_two_requests() {
    let server = RedisServer::start_as(RedisOptions::default().with_password("hunter2")).unwrap();
    let url = format!("redis+unix://:hunter2@{}?db=3&prefix=mine", server.socket().display());
    assert_eq!(requests_per_pair(&url).await, 2);
}

#[tokio::test]
async fn a_pair_on_a_cluster_is_two_requests_and_leaves_nothing() {
    let cluster = RedisCluster::start().unwrap();
    assert_eq!(requests_per_pair(&cluster.url()).await, 2);
    let left: Vec<_> = cluster.nodes().iter().flat_map(keys_of_names).collect();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn a_pair_behind_sentinels_goes_to_the_primary() {
    let group = SentinelGroup::start().unwrap();
    let floor = floor(&group.url()).await;
    floor.clients(1).await.unwrap().remove(0).pair("bench/0", Duration::ZERO).await.unwrap();
    floor.close().await.unwrap();
}

/// If lockkit's arguments change, the floor's arguments must change too.
#[tokio::test]
async fn the_floor_on_redis_sends_the_requests_of_lockkit() {
    let server = RedisServer::start().unwrap();
    let locker = lockkit::connect(&server.url()).await.unwrap();
    let mutex = locker.mutex("bench/0/floor").unwrap();
    let floor = floor(&server.url()).await;
    let mut client = floor.clients(1).await.unwrap().remove(0);
    // The server learns the scripts here.
    mutex.lock().await.unwrap().release().await.unwrap();
    client.pair("bench/0", Duration::ZERO).await.unwrap();

    let monitor = RedisClient::open(server.url()).unwrap().get_async_monitor().await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    client.pair("bench/0", Duration::ZERO).await.unwrap();
    let lines = monitor.into_on_message::<String>().filter_map(async |line| request(&line));
    let requests: Vec<_> = lines.take(4).collect().await;
    assert_eq!(requests[..2], requests[2..]);
    assert!(requests[0].iter().any(|word| word == "evalsha"), "{requests:?}");
}

/// One request of a client, without the parts that differ between any two clients.
fn request(line: &str) -> Option<Vec<String>> {
    let (from, words) = line.split_once("] ")?;
    if from.ends_with("lua") {
        return None;
    }
    Some(words.split(' ').map(|word| shape(word.trim_matches('"'))).collect())
}

fn shape(word: &str) -> String {
    if word.eq_ignore_ascii_case("evalsha") {
        return word.to_ascii_lowercase();
    }
    // This is a time of the server, in µs.
    if word.parse().is_ok_and(|number: u64| number > 1_000_000_000_000_000) {
        return "<time>".to_owned();
    }
    let parts = word.split(':').map(|part| match part.len() {
        16 | 32 if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => format!("<{}>", part.len()),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(":")
}

#[tokio::test]
async fn a_pair_on_zookeeper_is_three_requests_and_leaves_nothing() {
    let mut server = ZooKeeperServer::start().unwrap();
    // The reason is the same as in the test below.
    server.never_stall();
    let url = format!("{}?session_timeout=20s", server.url());
    assert_eq!(requests_per_pair(&url).await, 3);
    let client = ZkClient::connect(&server.addr().to_string()).await.unwrap();
    assert_eq!(client.list_children("/lockkit/mutex").await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pair_on_zookeeper_without_a_queue_is_two_requests() {
    let mut server = ZooKeeperServer::start().unwrap();
    // While the server pauses, the client sends a heartbeat, and the server counts it.
    server.never_stall();
    assert_eq!(
        requests_per_pair(&format!("{}?fair=false&session_timeout=20s", server.url())).await,
        2
    );
}

#[tokio::test]
async fn a_folder_that_the_servers_removed_is_created_again() {
    let server = ZooKeeperServer::start().unwrap();
    let floor = floor(&server.url()).await;
    let mut client = floor.clients(1).await.unwrap().remove(0);
    client.pair("bench/0", Duration::ZERO).await.unwrap();
    floor.close().await.unwrap();
    client.pair("bench/0", Duration::ZERO).await.unwrap();
    floor.close().await.unwrap();
}

async fn tables(server: &SqlServer) -> Vec<String> {
    let mut admin = Conn::new(Opts::from_url(&server.admin_url()).unwrap()).await.unwrap();
    let tables = admin.query("SHOW TABLES LIKE 'lockkit_bench%'").await.unwrap();
    admin.disconnect().await.unwrap();
    tables
}

async fn sql(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    for (strategy, statements) in [("optimistic", 2), ("pessimistic", 4)] {
        let url = format!("{}?strategy={strategy}", server.url());
        assert_eq!(requests_per_pair(&url).await, statements, "{flavor}, {strategy}");
        assert_eq!(tables(&server).await, Vec::<String>::new());
    }
    let floor = floor(&format!("{}?pool_size=3", server.url())).await;
    assert_eq!((floor.clients(64).await.unwrap().len(), tables(&server).await.len()), (3, 2));
    floor.close().await.unwrap();
    floor.close().await.unwrap();
    assert_eq!(tables(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pair_on_mariadb_measures_its_case_and_leaves_nothing() {
    sql(SqlFlavor::MariaDb).await;
}

#[tokio::test]
async fn a_pair_on_mysql_measures_its_case_and_leaves_nothing() {
    match mysql_is_there() {
        Ok(()) => sql(SqlFlavor::MySql).await,
        Err(reason) => eprintln!("skipped: {reason}"),
    }
}

#[tokio::test]
async fn an_error_for_a_missing_right_names_the_table_rights() {
    let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
    let mut admin = Conn::new(Opts::from_url(&server.admin_url()).unwrap()).await.unwrap();
    admin.query_drop("CREATE DATABASE poor; CREATE USER poor@'%' IDENTIFIED BY 'hunter2'; GRANT SELECT ON poor.* TO poor@'%'").await.unwrap();
    let url = format!("mysql://poor:hunter2@127.0.0.1:{}/poor", server.port());
    let floor = floor(&url).await;
    let error = floor.absence().unwrap();
    assert!(error.contains("rights CREATE and DROP") && !error.contains("hunter2"), "{error}");
}

/// A client that gives back at once would be compared with work that includes the hold.
#[tokio::test]
async fn a_pair_holds_the_name_for_the_requested_time() {
    const HOLD: Duration = Duration::from_millis(40);
    let redis = RedisServer::start().unwrap();
    let zookeeper = ZooKeeperServer::start().unwrap();
    let sql = SqlServer::start(SqlFlavor::MariaDb).unwrap();
    let pessimistic = format!("{}?strategy=pessimistic", sql.url());
    for url in [redis.url(), zookeeper.url(), sql.url(), pessimistic] {
        let floor = floor(&url).await;
        let mut client = floor.clients(1).await.unwrap().remove(0);
        let asked = Instant::now();
        let granted = client.pair("bench/0", HOLD).await.unwrap();
        assert!(granted > asked && granted.elapsed() >= HOLD, "{url}");
        floor.close().await.unwrap();
    }
}

#[tokio::test]
async fn memory_has_no_rival() {
    assert_eq!(floor("memory://").await.absence(), Some("this store uses no driver"));
}

#[tokio::test]
async fn an_opening_error_is_one_line_without_the_password() {
    let redis = RedisServer::start_with(["--requirepass", "secret"]).unwrap();
    let sql = SqlServer::start(SqlFlavor::MariaDb).unwrap();
    for url in [
        format!("redis://:hunter2@127.0.0.1:{}/", redis.port()),
        format!("mysql://root:hunter2@127.0.0.1:{}/lockkit", sql.port()),
        "redis://:hunter2@127.0.0.1:1/".to_owned(),
        "mysql://root:hunter2@127.0.0.1:1/lockkit".to_owned(),
        "zk://user:hunter2@127.0.0.1:1/".to_owned(),
        "etcd://user:hunter2@127.0.0.1:1/".to_owned(),
        "user:hunter2".to_owned(),
    ] {
        let absences = match rivals(&url, None).await {
            Ok(all) => all.iter().map(|one| one.absence().unwrap().to_owned()).collect(),
            Err(error) => vec![error.to_string()],
        };
        let server = server::open(&url).await.unwrap_err().to_string();
        for error in absences.into_iter().chain([server]) {
            assert!(!error.contains("hunter2") && !error.contains('\n'), "{url}: {error}");
            println!("{error}");
        }
    }
}
