//! Tests `rediss://`.

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Released, Wait},
};
use lockkit_fixture::{ClientCertificates, RedisOptions, RedisServer, RedisTls};

use crate::support::*;

fn start(clients: ClientCertificates) -> RedisServer {
    RedisServer::start_as(RedisOptions::default().with_tls(clients)).unwrap()
}

fn trusting(tls: &RedisTls) -> String {
    format!("?ca={}", tls.ca().display())
}

fn trusted(tls: &RedisTls) -> String {
    let certificate = tls.client_certificate();
    let key = tls.client_key();
    format!("{}&cert={}&key={}", trusting(tls), certificate.display(), key.display())
}

async fn works(url: &str) {
    let redis = connect(url).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    granted(claim.attempt(Wait::No).await);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_a_server_is_trusted_by_its_authority_alone() {
    let server = start(ClientCertificates::Ignored);
    let tls = server.tls().unwrap();
    works(&format!("{}{}", server.url(), trusting(tls))).await;
    let stranger = start(ClientCertificates::Ignored);
    for query in ["".to_owned(), trusting(stranger.tls().unwrap())] {
        let error = connect(&format!("{}{query}", server.url())).await.unwrap_err();
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
        assert!(!error.is_outcome_unknown());
    }
}

#[tokio::test]
async fn c13_a_server_may_demand_a_certificate() {
    let server = start(ClientCertificates::Demanded);
    let tls = server.tls().unwrap();
    works(&format!("{}{}", server.url(), trusted(tls))).await;
    works(&format!("{}{}&keys=raw&prefix=raw", server.url(), trusted(tls))).await;
    let error = connect(&format!("{}{}", server.url(), trusting(tls))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
}

#[tokio::test]
async fn c13_plain_and_encrypted_do_not_meet() {
    let encrypted = start(ClientCertificates::Ignored);
    let plain = RedisServer::start().unwrap();
    for url in [
        format!("redis://127.0.0.1:{}/?connect_timeout=500ms", encrypted.port()),
        format!("rediss://127.0.0.1:{}/?connect_timeout=500ms", plain.port()),
    ] {
        let error = connect(&url).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unexpected),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn c13_files_that_can_not_be_used_are_named() {
    let server = RedisServer::start().unwrap();
    let url = |query: &str| format!("rediss://127.0.0.1:{}/?{query}", server.port());
    let error = connect(&url("ca=/nowhere/ca.pem")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    let error = connect(&url("cert=/nowhere/c.pem")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidOption | ErrorKind::InvalidUrl), "{error}");
}
