//! Tests how a server's settings are judged.

use lockkit_core::spi::{Admin, Diagnostic, Severity};

use crate::support::*;

async fn severity(redis: &impl Admin, what: &str) -> Severity {
    let diagnostics = redis.diagnose().await.unwrap();
    let found = diagnostics.iter().find(|diagnostic: &&Diagnostic| diagnostic.what == what);
    found.unwrap_or_else(|| panic!("no {what} in {diagnostics:?}")).severity
}

#[tokio::test]
async fn c14_a_server_configured_to_keep_its_locks_is_rated_better() {
    let store = Store::start().await;
    assert_eq!(severity(&store.redis, "persistence").await, Severity::Weak);
    assert_eq!(severity(&store.redis, "maxmemory-policy").await, Severity::Good);
    assert_eq!(severity(&store.redis, "replication").await, Severity::Note);
    for (setting, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
        store.admin.ask::<()>(&["CONFIG", "SET", setting, value]).await;
    }
    assert_eq!(severity(&store.redis, "persistence").await, Severity::Good);
    for (setting, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        store.admin.ask::<()>(&["CONFIG", "SET", setting, value]).await;
    }
    assert_eq!(severity(&store.redis, "maxmemory-policy").await, Severity::Unsafe);
}

#[tokio::test]
async fn c13_a_setting_that_the_user_may_not_read_is_unknown_and_no_error() {
    let store = Store::start().await;
    let rules =
        ["ACL", "SETUSER", "u", "reset", "on", ">hunter2", "~*", "&*", "+@all", "-config", "-info"];
    store.admin.ask::<()>(&rules).await;
    let redis =
        connect(&format!("redis://u:hunter2@127.0.0.1:{}/", store.server.port())).await.unwrap();
    for what in ["persistence", "maxmemory-policy", "replication"] {
        assert_eq!(severity(&redis, what).await, Severity::Unknown);
    }
}
