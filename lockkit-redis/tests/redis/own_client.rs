//! Tests lockers on the server of a client that belongs to the program.

use std::time::Duration;

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Released, Wait},
};
use lockkit_fixture::{RedisOptions, RedisServer};
use lockkit_redis::{
    Config, Redis,
    redis::{AsyncConnectionConfig, Client, RedisResult, cmd},
};

use crate::support::*;

const PASSWORD: &str = "hunter2";
/// A server may hang for shorter than this.
const PATIENCE: Duration = Duration::from_secs(30);

fn guarded() -> RedisServer {
    RedisServer::start_as(RedisOptions::default().with_password(PASSWORD)).unwrap()
}

/// A client that speaks RESP2, as it does by default.
fn program(server: &RedisServer, password: &str, database: u32) -> Client {
    let port = server.port();
    Client::open(format!("redis://:{password}@127.0.0.1:{port}/{database}")).unwrap()
}

fn config(client: &Client) -> Config {
    Config::from_client(client).with_connect_timeout(PATIENCE).unwrap()
}

/// Catches a locker that ignores a part of the client's settings.
#[tokio::test]
async fn c1_c4_a_client_of_the_program_leads_to_the_same_locks() {
    let server = guarded();
    let url = |database: u32| format!("redis://:{PASSWORD}@127.0.0.1:{}/{database}", server.port());
    let own = Redis::connect(config(&program(&server, PASSWORD, 3))).await.unwrap();
    assert!(own.descriptor().capabilities.push, "the protocol is lockkit's own");
    let other = connect(&url(3)).await.unwrap();
    let elsewhere = connect(&url(0)).await.unwrap();
    let mut a = own.claim(spec("a")).unwrap();
    let mut b = other.claim(spec("a")).unwrap();
    let mut c = elsewhere.claim(spec("a")).unwrap();
    let first = granted(a.attempt(Wait::No).await).token;
    assert!(!busy(b.attempt(Wait::No).await).0);
    granted(c.attempt(Wait::No).await);
    assert_eq!(a.release().await.unwrap(), Released::Freed);
    assert!(granted(b.attempt(Wait::No).await).token > first);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
}

/// Catches a locker that ends what belongs to the program.
#[tokio::test]
async fn a_closed_locker_leaves_the_connections_of_the_program() {
    let server = guarded();
    let client = program(&server, PASSWORD, 0);
    let patient =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let opening = client.get_multiplexed_async_connection_with_config(&patient);
    let mut connection = opening.await.unwrap();
    let own = Redis::connect(config(&client)).await.unwrap();
    own.close().await.unwrap();
    let answer: RedisResult<String> = cmd("PING").query_async(&mut connection).await;
    assert_eq!(answer.unwrap(), "PONG");
}

#[tokio::test]
async fn c13_a_refused_login_of_a_client_shows_no_password() {
    let server = guarded();
    let config = config(&program(&server, "swordfish", 0));
    assert!(!format!("{config:?}").contains("swordfish"));
    let error = Redis::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert!(!format!("{error} {error:?}").contains("swordfish"));
}
