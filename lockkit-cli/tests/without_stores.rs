//! C13: the error for a store whose feature is off names the missing feature.
//!
//! The test is here because the facade's own tests can't be built without stores: their
//! dev-dependencies turn all stores on.

#![cfg(not(any(
    feature = "bench",
    feature = "file",
    feature = "mysql",
    feature = "quorum",
    feature = "redis",
    feature = "zk"
)))]

use lockkit::{ErrorKind, connect};

async fn names_its_feature(feature: &str, urls: &[&str]) {
    for url in urls {
        let error = connect(url).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::MissingFeature, "{url}: {error:?}");
        assert!(error.to_string().contains(&format!("feature \"{feature}\"")), "{url}: {error}");
        assert_eq!(error.operation(), Some("connect"), "{url}");
        assert!(!format!("{error:?} {error}").contains("hunter2"), "a secret is shown: {error:?}");
    }
}

#[tokio::test]
async fn c13_files_without_their_feature_say_which_one_is_missing() {
    names_its_feature("file", &["file:///var/lib/app/locks"]).await;
}

#[tokio::test]
async fn c13_mysql_without_its_feature_says_which_one_is_missing() {
    let urls = [
        "mysql://user:hunter2@127.0.0.1/db",
        "mysqls://h/db",
        "mysql+unix:///run/mysqld.sock?db=a",
    ];
    names_its_feature("mysql", &urls).await;
}

#[tokio::test]
async fn c13_quorums_without_their_feature_say_which_one_is_missing() {
    names_its_feature("quorum", &["quorum://?member=redis%3A%2F%2F:hunter2%40h%2F"]).await;
}

#[tokio::test]
async fn c13_redis_without_its_feature_says_which_one_is_missing() {
    let urls = [
        "redis://:hunter2@127.0.0.1/",
        "redis+cluster://h/",
        "redis+sentinel://h/service",
        "redis+unix:///run/redis.sock",
        "rediss://:hunter2@h/",
        "rediss+cluster://h/",
        "rediss+sentinel://h/service",
    ];
    names_its_feature("redis", &urls).await;
}

#[tokio::test]
async fn c13_zookeeper_without_its_feature_says_which_one_is_missing() {
    names_its_feature("zk", &["zk://user:hunter2@127.0.0.1/", "zks://h1,h2/chroot"]).await;
}
