//! Tests the reports of real servers, and the facts that the benchmark derives from them.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

#[cfg(feature = "tls")]
use lockkit_fixture::ClientCertificates;
use lockkit_fixture::{
    RedisCluster, RedisOptions, RedisServer, SentinelGroup, SqlFlavor, SqlServer,
    ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer, mysql_is_there,
};
use tokio::time::sleep;

use super::{Facts, open, redis::NOT_OF_CLIENTS};
use crate::{Result, report::GuaranteeClass as Class};

/// Asks again if the server pauses for a moment.
async fn persistently<T>(ask: impl AsyncFn() -> Result<T>) -> T {
    const SOON: Duration = Duration::from_secs(60);
    let start = Instant::now();
    loop {
        match ask().await {
            Err(_) if start.elapsed() < SOON => sleep(Duration::from_millis(50)).await,
            answer => return answer.unwrap(),
        }
    }
}

async fn facts(url: &str) -> Facts {
    persistently(async || open(url).await?.facts().await).await
}

fn value<'a>(facts: &'a Facts, name: &str) -> &'a str {
    &facts.settings.iter().find(|setting| setting.name == name).unwrap().value
}

fn is_version(version: &str) -> bool {
    version.split('.').count() >= 2 && version.split('.').all(|part| part.parse::<u32>().is_ok())
}

#[tokio::test]
async fn memory_reports_no_server() {
    let server = open("memory://").await.unwrap();
    assert_eq!(persistently(async || server.facts().await).await.guarantee.class, Class::Process);
    assert_eq!(server.requests().await.unwrap(), None);
}

#[tokio::test]
async fn redis_is_as_durable_as_its_settings() {
    for (args, class) in [
        (&[][..], Class::Volatile),
        (&["--appendonly", "yes"], Class::Volatile),
        (&["--appendonly", "yes", "--appendfsync", "always"], Class::OneDurableServer),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--no-appendfsync-on-rewrite",
                "yes",
            ],
            Class::Volatile,
        ),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            Class::OneDurableServer,
        ),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--maxmemory-policy",
                "allkeys-lru",
                "--maxmemory",
                "100mb",
            ],
            Class::Volatile,
        ),
    ] {
        let server = RedisServer::start_with(args.iter().copied()).unwrap();
        let facts = facts(&server.url()).await;
        assert_eq!(facts.guarantee.class, class, "{args:?}");
        assert!(facts.product == "Redis" && is_version(&facts.version), "{facts:?}");
        assert_eq!((value(&facts, "save"), value(&facts, "role")), ("off", "master"));
        assert_eq!(value(&facts, "appendonly"), if args.is_empty() { "no" } else { "yes" });
    }
}

#[tokio::test]
async fn a_redis_with_replicas_may_fail_over() {
    let options =
        RedisOptions::default().with_args(["--appendonly", "yes", "--appendfsync", "always"]);
    let server = RedisServer::start_as(options).unwrap();
    let replica = RedisServer::start_replica_of(&server).unwrap();
    replica.wait_in_sync().unwrap();
    let facts = facts(&server.url()).await;
    assert_eq!(
        (facts.guarantee.class, value(&facts, "connected_slaves")),
        (Class::AsynchronousFailover, "1")
    );
    // A replica makes nothing durable.
    server.ask(["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    assert_eq!(self::facts(&server.url()).await.guarantee.class, Class::Volatile);
}

#[tokio::test]
async fn facts_of_the_locker_are_added() {
    let server = RedisServer::start().unwrap();
    let locker = lockkit::connect(&server.url()).await.unwrap();
    let facts = facts(&server.url()).await.of(&locker).await;
    assert!(
        facts.guarantee.text.ends_with("A step of the server's clock ends leases early or late."),
        "{facts:?}"
    );
    assert!(value(&facts, "round trip").ends_with(" µs"), "{facts:?}");
    locker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_redis_that_hides_its_settings_is_not_trusted() {
    let server =
        RedisServer::start_with(["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    server
        .ask(["ACL", "SETUSER", "poor", "on", ">hunter2", "~*", "&*", "+@all", "-config", "-info"])
        .unwrap();
    let server = persistently(async || {
        open(&format!("redis://poor:hunter2@127.0.0.1:{}/", server.port())).await
    })
    .await;
    let facts = persistently(async || server.facts().await).await;
    assert_eq!(
        (value(&facts, "appendonly"), value(&facts, "role")),
        ("not reported", "not reported")
    );
    assert_eq!((facts.guarantee.class, &*facts.version), (Class::Volatile, "unknown"));
    assert_eq!(server.requests().await.unwrap(), None);
}

#[tokio::test]
async fn topologies_of_redis_are_reported() {
    let cluster = RedisCluster::start().unwrap();
    let of_cluster = facts(&cluster.url()).await;
    assert!(value(&of_cluster, "failover").starts_with("a cluster of "), "{of_cluster:?}");
    let group = SentinelGroup::start().unwrap();
    let of_sentinels = facts(&group.url()).await;
    assert_eq!(
        (value(&of_sentinels, "failover"), of_sentinels.guarantee.class),
        ("sentinels", Class::Volatile)
    );
}

#[tokio::test]
async fn valkey_is_reported_as_valkey() {
    let Some(server) = RedisServer::start_valkey().unwrap() else {
        return eprintln!("skipped: there is no Valkey");
    };
    let facts = facts(&server.url()).await;
    assert!(
        facts.product == "Valkey" && is_version(&facts.version) && !facts.version.starts_with("7."),
        "{facts:?}"
    );
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn servers_behind_tls_report_their_settings() {
    let redis =
        RedisServer::start_as(RedisOptions::default().with_tls(ClientCertificates::Demanded))
            .unwrap();
    let files = redis.tls().unwrap();
    let ca = files.ca();
    let cert = files.client_certificate();
    let key = files.client_key();
    let url = format!(
        "{}?ca={}&cert={}&key={}",
        redis.url(),
        ca.display(),
        cert.display(),
        key.display()
    );
    let redis_facts = facts(&url).await;
    assert_eq!((&*redis_facts.product, value(&redis_facts, "appendonly")), ("Redis", "no"));
    let sql = SqlServer::start_with_tls(SqlFlavor::MariaDb).unwrap();
    let url =
        sql.url().replace("mysql://", "mysqls://") + &format!("?ca={}", sql.tls_ca().display());
    assert_eq!(facts(&url).await.product, "MariaDB");
    // The four-letter words go unencrypted, so this TLS port answers none of them.
    let zookeeper = ZooKeeperServer::start_with(ZooKeeperOptions::default().with_tls()).unwrap();
    let ca = zookeeper.tls_certificate();
    let server = persistently(async || {
        open(&format!("zks://{}/?ca={}", zookeeper.tls_addr(), ca.display())).await
    })
    .await;
    assert_eq!(server.requests().await.unwrap(), None);
    assert_eq!(persistently(async || server.facts().await).await.guarantee.class, Class::Volatile);
}

/// The count must include neither a `GET` inside a script nor the request for the count.
#[tokio::test]
async fn redis_counts_only_requests_of_clients() {
    let redis = RedisServer::start().unwrap();
    let server = persistently(async || open(&redis.url()).await).await;
    let before = server.requests().await.unwrap().unwrap();
    redis.ask(["EVAL", "redis.call('GET', 'a') return redis.call('TIME')", "0"]).unwrap();
    redis.ask(["PING"]).unwrap();
    assert_eq!(server.requests().await.unwrap().unwrap() - before, 2);
}

/// Catches a command of a script that counts as a request: one request would count twice.
#[test]
fn no_command_of_a_script_counts_as_a_request() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lockkit-redis/src/scripts");
    let families = ["", "counted", "exclusive"].map(|family| scripts.join(family));
    let files = families
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|file| file.unwrap().path());
    let mut seen = 0;
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "lua")) {
        let text = fs::read_to_string(&file).unwrap();
        for call in text.split("call('").skip(1) {
            let command = call.split('\'').next().unwrap().to_ascii_lowercase();
            assert!(NOT_OF_CLIENTS.contains(&&*command), "{command} in {}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} calls were found");
}

#[tokio::test]
async fn zookeeper_is_as_durable_as_its_syncs() {
    for (options, class, syncs) in [
        (ZooKeeperOptions::default(), Class::Volatile, "seen on 0 of 1"),
        (ZooKeeperOptions::default().with_durable(), Class::OneDurableServer, "seen on 1 of 1"),
    ] {
        let mut server = ZooKeeperServer::start_with(options).unwrap();
        server.never_stall();
        let facts = facts(&server.url()).await;
        assert_eq!((facts.guarantee.class, value(&facts, "forceSync")), (class, syncs));
        assert!(is_version(&facts.version), "{facts:?}");
        assert_eq!(
            (value(&facts, "voters"), value(&facts, "mode")),
            ("1, no ensemble", "standalone")
        );
    }
}

#[tokio::test]
async fn a_majority_that_syncs_is_consensus() {
    for (options, class) in [
        (ZooKeeperOptions::default(), Class::AsynchronousFailover),
        (ZooKeeperOptions::default().with_durable(), Class::Consensus),
    ] {
        let mut ensemble = ZooKeeperEnsemble::start(3, options).unwrap();
        // A server that stalls reports nothing.
        (0..3).for_each(|index| ensemble.node_mut(index).never_stall());
        let facts = facts(&ensemble.url()).await;
        assert_eq!((facts.guarantee.class, value(&facts, "voters")), (class, "3"), "{facts:?}");
        // One server's address does not prove what the three servers are.
        let of_one = self::facts(&ensemble.node(0).url()).await;
        assert_eq!(of_one.guarantee.class, Class::AsynchronousFailover);
    }
}

#[tokio::test]
async fn a_zookeeper_without_four_letter_words_is_not_trusted() {
    let options =
        ZooKeeperOptions::default().with_durable().with_config("4lw.commands.whitelist=srvr,envi");
    let zookeeper = ZooKeeperServer::start_with(options).unwrap();
    let server = persistently(async || open(&zookeeper.url()).await).await;
    let facts = persistently(async || server.facts().await).await;
    assert_eq!(
        (facts.guarantee.class, value(&facts, "forceSync")),
        (Class::Volatile, "not reported")
    );
    assert_eq!(server.requests().await.unwrap(), None);
}

async fn sql(flavor: SqlFlavor, product: &str) {
    for (args, class) in [
        (&[][..], Class::Volatile),
        (&["--innodb-flush-log-at-trx-commit=1"], Class::OneDurableServer),
        (
            &[
                "--innodb-flush-log-at-trx-commit=1",
                "--log-bin=b",
                "--server-id=7",
                "--sync-binlog=0",
            ],
            Class::Volatile,
        ),
        // The user may not ask for replicas.
        (
            &[
                "--innodb-flush-log-at-trx-commit=1",
                "--log-bin=b",
                "--server-id=7",
                "--sync-binlog=1",
            ],
            Class::AsynchronousFailover,
        ),
    ] {
        let server = SqlServer::start_with(flavor, args.iter().copied()).unwrap();
        let facts = facts(&server.url()).await;
        assert_eq!(facts.guarantee.class, class, "{args:?}: {facts:?}");
        assert!(facts.product == product && is_version(&facts.version), "{facts:?}");
        assert!(server.version().contains(&facts.version), "{facts:?}");
        if class == Class::AsynchronousFailover {
            assert_eq!(value(&facts, "replicas"), "not reported");
            let of_admin = self::facts(&server.admin_url()).await;
            let told = (value(&of_admin, "replicas"), of_admin.guarantee.class);
            assert_eq!(told, ("0", Class::OneDurableServer), "{of_admin:?}");
        }
    }
}

#[tokio::test]
async fn mariadb_is_as_durable_as_its_settings() {
    sql(SqlFlavor::MariaDb, "MariaDB").await;
}

#[tokio::test]
async fn mysql_is_as_durable_as_its_settings() {
    match mysql_is_there() {
        Ok(()) => sql(SqlFlavor::MySql, "MySQL").await,
        Err(reason) => eprintln!("skipped: {reason}"),
    }
}
