//! C4, C14: tests of `token_base`, inspection and release by force.

use tokio::time;

use super::{World, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{Fault, Kind, Op},
    spi::{LossReason, Released},
    token::FencingToken,
};

fn world(base: u64) -> World {
    World::built(Kind::Ttl, |builder| builder.token_base(base))
}

#[tokio::test(start_paused = true)]
async fn c4_the_token_base_is_added_everywhere() {
    let world = world(1_000);
    let mutex = world.mutex("a");
    let guard = mutex.lock().await.unwrap();
    assert_eq!(guard.fencing_token(), FencingToken::new(1_001));
    let holders = mutex.inspect().await.unwrap().holders;
    assert_eq!(holders[0].token, Some(FencingToken::new(1_001)));
    assert_eq!(holders[0].owner, Some(guard.owner()));
    for other in [0, 1, 999, 1_000, 1_002] {
        let released = mutex.force_release(FencingToken::new(other)).await.unwrap();
        assert_eq!(released, Released::NotHeld, "{other}");
    }
    assert_eq!(mutex.force_release(guard.fencing_token()).await.unwrap(), Released::Freed);
    assert_eq!(guard.lost().await, LossReason::Evicted);
    drop((guard, mutex));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c4_a_token_that_overflows_is_an_error_and_not_a_grant() {
    let world = world(u64::MAX);
    let error = world.mutex("a").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.context().contains("token_base 18446744073709551615 plus the token"), "{error}");
    time::sleep(ms(50)).await;
    assert_eq!(world.store.holder("a"), None);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c4_the_largest_token_is_a_token() {
    let world = world(u64::MAX - 1);
    let guard = world.mutex("a").lock().await.unwrap();
    assert_eq!(guard.fencing_token().get(), u64::MAX);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_a_silent_store_does_not_hang_inspection() {
    let world = world(0);
    let mutex = world.mutex("a");
    for (op, operation) in [(Op::Inspect, "inspect"), (Op::ForceRelease, "force release")] {
        for fault in [Fault::Hang, Fault::Panic, Fault::Fail(ErrorKind::Unavailable)] {
            world.store.once(op, [fault]);
            let asking = async {
                match op {
                    Op::Inspect => mutex.inspect().await.map(drop),
                    _ => mutex.force_release(FencingToken::new(1)).await.map(drop),
                }
            };
            let error = time::timeout(secs(5), asking).await.expect("an answer").unwrap_err();
            assert_eq!(
                (error.operation(), error.backend()),
                (Some(operation), Some("fake")),
                "{fault:?}"
            );
        }
    }
    drop(mutex);
    world.clean("").await;
}
