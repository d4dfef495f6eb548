//! Real servers for lockkit's own tests: child processes on free ports of 127.0.0.1, with their
//! data in a temporary folder. Each server is killed with the test that started it.
//!
//! There are also [names] for property tests, [claims] (with the feature of that name) to use a
//! backend, and helpers to wait.

mod cache;
mod certificates;
#[cfg(feature = "claims")]
pub mod claims;
mod clock;
mod crowd;
mod cut;
mod mysql;
pub mod names;
mod namespaced;
mod network;
mod peer;
mod ports;
mod process;
mod redis;
mod wait;
mod zookeeper;

pub use self::{
    clock::{ClockDirection, WallClock},
    crowd::Crowd,
    cut::cut,
    mysql::{
        GALERA_LIBRARIES, GaleraCluster, MYSQL_HOME_VARIABLE, MYSQL_URL_VARIABLE, SqlFlavor,
        SqlServer, TestSql, has_mysql, mysql_home, mysql_is_there, sql_servers_from_env_or_start,
        unpacked_mysql,
    },
    namespaced::Namespaced,
    peer::{Peer, end_with_parent, next_line, role},
    process::{STALLS_VARIABLE, ServerProcess, is_alive, state_of},
    redis::{
        ClientCertificates, NamespacedSentinels, REDIS_URL_VARIABLE, RedisCluster,
        RedisClusterOptions, RedisOptions, RedisReply, RedisServer, RedisTls, SentinelGroup,
        SentinelOptions, SlotMigration, TestRedis, redis_from_env_or_start, valkey_home,
        valkey_server,
    },
    wait::{slack, until},
    zookeeper::{
        CLASS_PATH_VARIABLE, CURATOR_CLASS_PATH_VARIABLE, NamespacedEnsemble, TestZooKeeper,
        ZOOKEEPER_URL_VARIABLE, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer,
        curator_classpath, java_compiler, java_runtime, zookeeper_from_env_or_start,
    },
};
