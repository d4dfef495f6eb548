//! Tests of what a confirmed transaction means on a cluster with several primaries.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use lockkit_core::url::StoreUrl;
use lockkit_fixture::GaleraCluster;
use mysql_async::{Opts, prelude::Queryable as _};

use super::*;
use crate::{config::Config, pool::Pool, schema};

/// A server may stall for two seconds, and then it has a lot to do.
const PATIENCE: Duration = Duration::from_secs(60);
const DURATION: Duration = Duration::from_secs(12);
const CONNECTIONS: usize = 8;
const COUNT: &str =
    "UPDATE lockkit_lock SET touched_us=touched_us+1 WHERE kind='mutex' AND name='a'";

/// Catches a commit that Galera repeats after it has rolled the transaction back. The repeated one
/// has nothing to commit, and succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_a_confirmed_transaction_is_committed_on_a_galera_cluster() {
    let cluster = GaleraCluster::start().unwrap();
    let mut pools = Vec::new();
    for node in cluster.nodes() {
        let url = node.url() + "?connect_timeout=20s";
        let pool = Pool::new(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap());
        let mut connection = pool.get(PATIENCE).await.unwrap();
        schema::prepare(&mut connection, pool.config()).await.unwrap();
        pools.push(pool);
    }
    let opts = Opts::from_url(&cluster.nodes()[0].admin_url()).unwrap();
    let mut admin = Conn::new(opts).await.unwrap();
    admin
        .query_drop("INSERT INTO lockkit_lock(kind,name,fence) VALUES('mutex','a',1)")
        .await
        .unwrap();
    let [confirmed, lost] = [AtomicU64::new(0), AtomicU64::new(0)];
    let end = Instant::now() + DURATION;
    let clients = (0..CONNECTIONS).map(async |number| {
        let mut connection = pools[number % 2].get(PATIENCE).await.unwrap();
        while Instant::now() < end {
            match connection.short_transaction(COUNT).await {
                Ok(steps) => confirmed.fetch_add(steps[0].outcome.affected, Relaxed),
                Err(error) => {
                    assert!(error::is_race(&error), "{error}");
                    connection.roll_back().await.unwrap();
                    lost.fetch_add(1, Relaxed)
                }
            };
        }
    });
    join_all(clients).await;
    let [confirmed, lost] = [confirmed, lost].map(AtomicU64::into_inner);
    println!("{confirmed} confirmed, {lost} lost races");
    assert!(confirmed > 0 && lost > 0, "the nodes did not compete");
    // This read waits for the changes of the other node.
    admin.query_drop("SET SESSION wsrep_sync_wait=1").await.unwrap();
    let counted: Option<u64> =
        admin.query_first("SELECT touched_us FROM lockkit_lock").await.unwrap();
    assert_eq!(counted, Some(confirmed), "C1: not all confirmed transactions were committed");
}
