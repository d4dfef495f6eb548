//! Tests claims in states that a server rarely brings about. Requests come late, really or by a wrong
//! idea of the server's time, or a place in the queue can't be left.

use lockkit_core::{Kind, LockName, OwnerId, spi::Mode};
use lockkit_fixture::{ClockDirection, RedisReply, RedisServer};

use super::*;
use crate::config::Config;

/// A server may not answer for seconds.
const PATIENCE: Duration = Duration::from_secs(30);
const OP_TIMEOUT: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(600);

/// A claim, and its server, which already knows the scripts.
async fn claim() -> (RedisClaim, RedisServer) {
    let server = RedisServer::start_with_clock().unwrap();
    let config = Config::new("127.0.0.1", server.port()).with_connect_timeout(PATIENCE).unwrap();
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let keys = config.keyspace().keys(&name).unwrap();
    let spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, TTL, OP_TIMEOUT);
    let mut claim = RedisClaim::new(Arc::new(Store::new(config)), keys, spec).unwrap();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    (claim, server)
}

/// Makes the link believe that the server's time is an hour earlier, as if the server's clock had
/// been set forward since.
async fn believe_it_is_earlier(claim: &RedisClaim) {
    let link = claim.store.route(0).next().await.unwrap().link;
    let now = Clock::Boot.now();
    link.clock().observe(now, link.clock().at(now) - 3_600_000_000, now);
}

#[tokio::test]
async fn c5_a_wrong_idea_of_the_servers_time_costs_one_request_and_no_error() {
    let (mut claim, _server) = claim().await;
    believe_it_is_earlier(&claim).await;
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c5_a_late_attempt_does_not_hide_an_earlier_one_that_was_applied() {
    let (mut claim, server) = claim().await;
    server.pause().unwrap();
    let lost = tokio::time::timeout(Duration::from_millis(20), claim.attempt(Wait::No)).await;
    assert!(lost.is_err());
    server.resume().unwrap();
    believe_it_is_earlier(&claim).await;
    claim.spec.op_timeout = Duration::ZERO;
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, false));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c5_a_late_note_is_not_written_and_a_wrong_idea_of_the_servers_time_is_no_error() {
    let (mut claim, server) = claim().await;
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    let first = Note::default().next("a");
    believe_it_is_earlier(&claim).await;
    assert_eq!(claim.write_note(&first).await.unwrap(), Noted::Written);
    server.pause().unwrap();
    let late = first.next("late");
    assert!(
        tokio::time::timeout(Duration::from_millis(20), claim.write_note(&late)).await.is_err()
    );
    // By the server's clock, the late note comes after its time.
    server.clock().unwrap().step(OP_TIMEOUT * 2, ClockDirection::Forward).unwrap();
    server.resume().unwrap();
    assert_eq!(
        claim.write_note(&first.next("b")).await.unwrap(),
        Noted::Written,
        "the late one was written"
    );
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// Catches an error that says that nothing is left, although the claim has a place in the queue.
#[tokio::test]
async fn c5_a_place_that_could_not_be_left_may_still_be_there() {
    let (mut claim, server) = claim().await;
    let link = claim.store.route(0).next().await.unwrap().link;
    server.ask(["SET", &claim.keys.base, "another"]).unwrap();
    let queued = claim.attempt(Wait::Queue).await.unwrap();
    assert!(matches!(queued, Attempt::Busy { queued: true, .. }), "{queued:?}");
    // The server can't send messages any more, so the claim has to leave its place.
    link.disable_pushes();
    claim.in_doubt = true;
    let places = format!("{}:queue", claim.keys.base);
    server.ask(["ACL", "SETUSER", "default", "-zrem"]).unwrap();
    let error = claim.attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    server.ask(["ACL", "SETUSER", "default", "+zrem"]).unwrap();
    assert_eq!(
        server.ask(["ZCARD", &places]).unwrap(),
        RedisReply::Integer(1),
        "the test shows nothing"
    );
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    assert_eq!(server.ask(["ZCARD", &places]).unwrap(), RedisReply::Integer(0));
}
