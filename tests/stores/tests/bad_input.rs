//! C13: bad input and unusable stores give clear errors of their own kinds, and nothing panics.

use std::time::Duration;

use lockkit::{Error, ErrorKind, LockOptions, Locker, connect};

/// A server may pause for seconds.
const PATIENT: &str = "?connect_timeout=30s";

fn expect(error: &Error, kind: ErrorKind, texts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    for text in texts {
        assert!(error.to_string().contains(text), "{text:?} is missing in: {error}");
    }
    assert!(!error.to_string().contains('\n'), "more than one line: {error}");
}

async fn refused(url: &str, kind: ErrorKind, texts: &[&str]) {
    let error = connect(url).await.expect_err(url);
    expect(&error, kind, texts);
    assert_eq!(error.operation(), Some("connect"), "{url}");
    assert!(!format!("{error:?} {error}").contains("hunter2"), "a secret is shown: {error:?}");
}

#[test]
fn c13_names_that_no_store_supports_are_refused() {
    let locker = Locker::memory();
    for (name, text) in [
        ("", "must not be empty"),
        (&*"x".repeat(256), "has 256 bytes"),
        ("a\tb", "U+0009 at byte 1"),
    ] {
        expect(&locker.mutex(name).unwrap_err(), ErrorKind::InvalidName, &[text]);
        expect(&locker.rw_lock(name).unwrap_err(), ErrorKind::InvalidName, &[text]);
        expect(&locker.semaphore(name, 1).unwrap_err(), ErrorKind::InvalidName, &[text]);
    }
}

#[tokio::test]
async fn c13_options_that_contradict_each_other_are_refused() {
    let mutex = Locker::memory().mutex("a").unwrap();
    let options = LockOptions::new();
    for (bad, text) in [
        (options.clone().with_ttl(Duration::ZERO), "ttl is 0ns"),
        (
            options
                .clone()
                .with_ttl(Duration::from_secs(1))
                .with_op_timeout(Duration::from_millis(501)),
            "at most half of ttl (1s)",
        ),
        (options.with_label("two\nlines"), "control characters"),
    ] {
        expect(
            &mutex.clone().with_options(bad.clone()).unwrap_err(),
            ErrorKind::InvalidOption,
            &[text],
        );
        expect(
            &Locker::memory().with_defaults(bad).unwrap_err(),
            ErrorKind::InvalidOption,
            &[text],
        );
    }
    let semaphore = |limit| Locker::memory().semaphore("a", limit);
    expect(&semaphore(0).unwrap_err(), ErrorKind::InvalidOption, &["at least 1"]);
    let semaphore = semaphore(3).unwrap();
    for permits in [0, 4] {
        let error = semaphore.try_acquire_many(permits).await.unwrap_err();
        expect(&error, ErrorKind::InvalidOption, &["between 1 and 3"]);
    }
}

#[tokio::test]
async fn c13_meaningless_urls_are_refused() {
    refused("foo://x", ErrorKind::UnknownScheme, &["foo://", "memory://"]).await;
    refused("127.0.0.1:6379", ErrorKind::InvalidUrl, &["no scheme"]).await;
    refused("memory://?tll=3s", ErrorKind::UnknownParameter, &["\"tll\"", "did you mean ttl?"])
        .await;
    refused("memory://?ttl=3", ErrorKind::InvalidUrl, &["ttl", "such as 250ms"]).await;
    refused("memory://?ttl=0s", ErrorKind::InvalidOption, &["ttl is 0ns"]).await;
    refused(
        "memory://?ttl=1s&op_timeout=800ms",
        ErrorKind::InvalidOption,
        &["at most half of ttl"],
    )
    .await;
    refused("memory://?token_base=-1", ErrorKind::InvalidUrl, &["token_base", "whole number"])
        .await;
    refused("memory://?label=%ff", ErrorKind::InvalidUrl, &["must be UTF-8"]).await;
    refused("memory://\n", ErrorKind::InvalidUrl, &["control character"]).await;
    refused("memory://host", ErrorKind::InvalidUrl, &["on memory", "write memory://"]).await;
    refused("memory://?hunter2@host", ErrorKind::UnknownParameter, &["percent-encoded"]).await;
    refused("memory://?label=", ErrorKind::InvalidOption, &["a label must not be empty"]).await;
}

mod mysql {
    use lockkit_fixture::{SqlFlavor, SqlServer};

    use super::*;

    #[tokio::test]
    async fn c13_a_wrong_password_and_an_unknown_database_are_refused() {
        let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
        let at = format!("127.0.0.1:{}", server.port());
        let wrong = format!("mysql://lockkit:hunter2@{at}/lockkit{PATIENT}");
        refused(
            &wrong,
            ErrorKind::Authentication,
            &["connecting to 127.0.0.1", "check the ones in the URL"],
        )
        .await;
        let url = server.admin_url().replace("/lockkit", "/nowhere") + PATIENT;
        refused(&url, ErrorKind::InvalidUrl, &["nowhere", "the database does not exist"]).await;
    }

    #[tokio::test]
    async fn c13_a_closed_port_is_unavailable_at_once() {
        // No server listens on port 1. A port that was free a moment ago may belong to another test
        // by now.
        refused("mysql://me:hunter2@127.0.0.1:1/db", ErrorKind::Unavailable, &["127.0.0.1:1"])
            .await;
    }

    #[tokio::test]
    async fn c13_a_silent_server_is_unavailable_after_the_connect_timeout() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url =
            format!("mysql://me:hunter2@{}/db?connect_timeout=100ms", silent.local_addr().unwrap());
        refused(&url, ErrorKind::Unavailable, &["did not answer within connect_timeout (100ms)"])
            .await;
    }
}

mod redis {
    use lockkit_fixture::RedisServer;

    use super::*;

    #[tokio::test]
    async fn c13_an_invalid_redis_url_is_refused() {
        for (url, kind, text) in [
            ("redis://127.0.0.1/?tll=3s", ErrorKind::UnknownParameter, "did you mean ttl?"),
            ("redis://127.0.0.1/notanumber", ErrorKind::InvalidUrl, "database"),
            ("redis://:hunter2#@127.0.0.1/", ErrorKind::InvalidUrl, "percent-encoded"),
        ] {
            refused(url, kind, &[text]).await;
        }
    }

    #[tokio::test]
    async fn c13_a_wrong_and_a_missing_password_are_refused() {
        let server = RedisServer::start_with(["--requirepass", "hunter2!"]).unwrap();
        let at = format!("127.0.0.1:{}", server.port());
        let refused = async |url: String| {
            let error = connect(&url).await.unwrap_err();
            expect(&error, ErrorKind::Authentication, &["redis", "password"]);
            assert!(!format!("{error:?}").contains("hunter2"), "a secret is shown: {error:?}");
        };
        refused(format!("redis://{at}/{PATIENT}")).await;
        refused(format!("redis://:wrong-hunter2@{at}/{PATIENT}")).await;
        connect(&format!("redis://:hunter2!@{at}/{PATIENT}"))
            .await
            .unwrap()
            .shutdown()
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn c13_a_closed_port_is_unavailable_at_once() {
        refused("redis://:hunter2@127.0.0.1:1/", ErrorKind::Unavailable, &["127.0.0.1:1"]).await;
    }
}
