//! Tests on real servers that the locks of contenders exclude, and send the documented requests.

use std::time::{Duration, Instant};

use lockkit_fixture::{
    RedisReply, RedisServer, SqlFlavor, SqlServer, ZooKeeperServer, mysql_is_there,
};
use tokio::task::JoinSet;

use super::{Rival, ZkClient, rival};
use crate::{report::Side, server};

const CLIENTS: u32 = 4;
const GRANTS_EACH: usize = 5;
const HOLD: Duration = Duration::from_millis(10);

/// Catches a contender that is fast because it grants its lock to two clients at once.
async fn excludes(rival: &Rival) {
    let mut tasks = JoinSet::new();
    for mut client in rival.clients(CLIENTS).await.unwrap() {
        tasks.spawn(async move {
            let mut grants = Vec::new();
            for _ in 0..GRANTS_EACH {
                grants.push(client.pair("bench/x", HOLD).await.unwrap());
            }
            grants
        });
    }
    let mut grants: Vec<Instant> = tasks.join_all().await.concat();
    assert!(grants.len() > GRANTS_EACH, "{:?} has one client only", rival.side);
    grants.sort();
    for pair in grants.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= HOLD, "{:?} granted twice within {gap:?}", rival.side);
    }
}

fn keys(server: &RedisServer) -> Vec<String> {
    let all = server.ask(["KEYS", "*"]).unwrap();
    all.elements().iter().map(RedisReply::text).collect()
}

/// How often clients and their scripts called a command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.ask(["INFO", "commandstats"]).unwrap().text();
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_the_classic_on_redis_excludes_and_leaves_nothing() {
    let server = RedisServer::start().unwrap();
    let classic = rival(&server.url(), Side::Classic).await;
    let before = keys(&server);
    excludes(&classic).await;
    assert_eq!(keys(&server), before);
}

#[tokio::test]
async fn a_pair_of_the_classic_on_redis_is_a_set_and_a_script() {
    let server = RedisServer::start().unwrap();
    let classic = rival(&server.url(), Side::Classic).await;
    let mut client = classic.clients(1).await.unwrap().remove(0);
    client.pair("bench/0", Duration::ZERO).await.unwrap();
    server.ask(["CONFIG", "RESETSTAT"]).unwrap();
    for _ in 0..10 {
        client.pair("bench/0", Duration::ZERO).await.unwrap();
    }
    let counts = ["set", "evalsha", "eval", "get", "del"].map(|name| calls(&server, name));
    assert_eq!(counts, [10, 10, 0, 10, 10]);
}

/// The classic must not delete the key of another client after its own lease has ended.
#[tokio::test]
async fn c2_the_classic_on_redis_fails_if_its_key_has_another_token() {
    let server = RedisServer::start().unwrap();
    let classic = rival(&server.url(), Side::Classic).await;
    let before = keys(&server);
    let mut client = classic.clients(1).await.unwrap().remove(0);
    let work = tokio::spawn(async move { client.pair("bench/0", 5 * HOLD).await });
    let key = loop {
        if let Some(key) = keys(&server).into_iter().find(|key| !before.contains(key)) {
            break key;
        }
        tokio::task::yield_now().await;
    };
    server.ask(["SET", &key, "another"]).unwrap();
    let error = work.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "the classic lock on Redis ended before the client released it");
    assert_eq!(server.ask(["GET", &key]).unwrap().text(), "another");
    classic.close().await.unwrap();
    assert_eq!(keys(&server), before, "the end removes the keys of stopped clients");
}

/// Requests of one pair, without the first requests of a client. The number is rounded, because the
/// recipe on ZooKeeper deletes its node in the background, after a pair has ended.
async fn requests_per_pair(url: &str, side: Side) -> u64 {
    const PAIRS: u64 = 20;
    let server = server::open(url).await.unwrap();
    let mut client = rival(url, side).await.clients(1).await.unwrap().remove(0);
    client.pair("bench/0", Duration::ZERO).await.unwrap();
    let before = server.requests().await.unwrap().unwrap();
    for _ in 0..PAIRS {
        client.pair("bench/0", Duration::ZERO).await.unwrap();
    }
    (server.requests().await.unwrap().unwrap() - before + PAIRS / 2) / PAIRS
}

async fn sql(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    for (side, requests) in [(Side::Classic, 2), (Side::RowLock, 3)] {
        let contender = rival(&server.url(), side).await;
        excludes(&contender).await;
        contender.drop_clients().await;
        contender.close().await.unwrap();
        assert_eq!(requests_per_pair(&server.url(), side).await, requests, "{flavor}, {side:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_get_lock_and_a_row_lock_exclude_on_mariadb() {
    sql(SqlFlavor::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_get_lock_and_a_row_lock_exclude_on_mysql() {
    match mysql_is_there() {
        Ok(()) => sql(SqlFlavor::MySql).await,
        Err(reason) => eprintln!("skipped: {reason}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_the_recipe_on_zookeeper_excludes_in_three_requests_and_leaves_nothing() {
    let mut server = ZooKeeperServer::start().unwrap();
    // While the server pauses, the client sends a heartbeat, and the server counts it.
    server.never_stall();
    let url = format!("{}?session_timeout=20s", server.url());
    let recipe = rival(&url, Side::Classic).await;
    excludes(&recipe).await;
    recipe.close().await.unwrap();
    let client = ZkClient::connect(&server.addr().to_string()).await.unwrap();
    assert_eq!(client.list_children("/lockkit/mutex").await.unwrap(), Vec::<String>::new());
    assert_eq!(requests_per_pair(&url, Side::Classic).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_locked_file_excludes_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let classic = rival(&format!("file://{}", folder.path().display()), Side::Classic).await;
    excludes(&classic).await;
    classic.close().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A thread that waits for a file must not keep the lock for a client that was stopped.
#[tokio::test(flavor = "multi_thread")]
async fn c6_a_client_stopped_during_its_wait_does_not_keep_the_file_lock() {
    let folder = tempfile::tempdir().unwrap();
    let classic = rival(&format!("file://{}", folder.path().display()), Side::Classic).await;
    let mut clients = classic.clients(2).await.unwrap();
    let mut next = clients.remove(1);
    let mut stopped = clients.remove(0);
    let files = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let held = std::fs::File::create(files.join("bench_x")).unwrap();
    held.lock().unwrap();
    let waiter = tokio::spawn(async move { stopped.pair("bench/x", Duration::ZERO).await });
    // The waiter has probably reached its thread by then. The test is right in any case.
    tokio::time::sleep(HOLD).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled(), "it did not wait");
    drop(held);
    next.pair("bench/x", Duration::ZERO).await.unwrap();
}

#[cfg(feature = "rslock")]
mod rslock {
    use super::*;
    use crate::{floor::rivals, peer::Peer};

    async fn rslock(url: &str) -> Rival {
        let all = rivals(url, Some(Peer::Rslock)).await.unwrap();
        all.into_iter().find(|rival| rival.side == Side::Rslock).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn c1_rslock_excludes_and_leaves_nothing() {
        let server = RedisServer::start().unwrap();
        let rslock = rslock(&server.url()).await;
        let before = keys(&server);
        excludes(&rslock).await;
        assert_eq!(keys(&server), before);
    }

    /// Catches a run that waits for its time limit, because rslock repeats a failed request for
    /// ever.
    #[tokio::test]
    async fn an_unreachable_server_gives_rslock_a_reason_without_the_password() {
        let rslock = rslock("redis://:hunter2@127.0.0.1:1/").await;
        let reason = rslock.absence().unwrap();
        assert!(
            reason.starts_with("could not open rslock: ") && !reason.contains("hunter2"),
            "{reason}"
        );
    }

    #[tokio::test]
    async fn rslock_uses_the_password_and_the_database_of_the_url() {
        let options = lockkit_fixture::RedisOptions::default().with_password("hunter2");
        let server = RedisServer::start_as(options).unwrap();
        let url = format!("redis://:hunter2@127.0.0.1:{}/3?prefix=mine", server.port());
        let rslock = rslock(&url).await;
        assert_eq!(rslock.absence(), None);
        excludes(&rslock).await;
    }
}
