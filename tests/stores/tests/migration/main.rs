//! Moves a lock from one store to another while a fleet uses it, as docs/migrating.md describes.

mod fleet;
mod stores;

use lockkit::{ErrorKind, FencingToken};

use self::{
    fleet::{NAMES, OP_TIMEOUT, connect, roll},
    stores::{
        AHEAD, all_of, base_of_the_page, mariadb, patient, raised, redis, with_base, zookeeper,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_fleet_moves_from_redis_to_mariadb_and_back() {
    let redis = redis();
    let mariadb = mariadb();
    let old = patient(&redis.url());
    let new = patient(&mariadb.url());
    // Without this raise, the new store's tokens would be smaller.
    raised(&old, AHEAD).await;
    let both = all_of(&[&new, &old]);
    roll(&[&old, &both, &new, &both, &old]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_fleet_moves_from_a_folder_to_redis() {
    let folder = tempfile::tempdir().unwrap();
    let redis = redis();
    let old = format!("file://{}", folder.path().display());
    let new = patient(&redis.url());
    raised(&old, AHEAD).await;
    roll(&[&old, &all_of(&[&new, &old]), &new]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_fleet_moves_to_zookeeper_and_back() {
    let redis = redis();
    let zookeeper = zookeeper();
    let old = patient(&redis.url());
    let new = patient(&zookeeper.url());
    raised(&old, AHEAD).await;
    let based = with_base(&new, base_of_the_page());
    let both = all_of(&[&new, &old]);
    let leading = all_of(&[&based, &old]);
    roll(&[&old, &both, &leading, &based, &leading, &both, &old]).await;
}

/// The base of the whole locker remains beside the members, and is added to the new store's base at
/// the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_fleet_with_a_token_base_moves_to_zookeeper_with_the_sum_of_bases() {
    let redis = redis();
    let zookeeper = zookeeper();
    let own = 4_000_000_000_000_000;
    let base = base_of_the_page();
    let old = patient(&redis.url());
    let new = patient(&zookeeper.url());
    let both = with_base(&all_of(&[&new, &old]), own);
    let leading = with_base(&all_of(&[&with_base(&new, base), &old]), own);
    roll(&[&with_base(&old, own), &both, &leading, &with_base(&new, own + base)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_tokens_rise_when_a_stopped_fleet_moves_with_a_token_base() {
    let redis = redis();
    let zookeeper = zookeeper();
    let base = base_of_the_page();
    let mut last = FencingToken::new(0);
    let old = patient(&redis.url());
    let new = with_base(&patient(&zookeeper.url()), base);
    let back = with_base(&patient(&redis.url()), base);
    for url in [&old, &new, &back] {
        last = stop_over(url, last).await;
    }
    // Redis forgets the last token, but its clock plus the base is still above that token.
    redis.ask(["FLUSHALL"]).unwrap();
    for url in [&back, &with_base(&patient(&zookeeper.url()), base + base)] {
        last = stop_over(url, last).await;
    }
    // This shows a forbidden step: after the third URL, no service may use the second URL again.
    let locker = connect(&with_base(&patient(&zookeeper.url()), base)).await;
    let guard = locker.mutex(NAMES[0]).unwrap().lock().await.unwrap();
    assert!(guard.fencing_token() < last, "the base of the fleet counts for nothing");
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

/// Takes the lock a few times, and returns its last token.
async fn stop_over(url: &str, mut last: FencingToken) -> FencingToken {
    let locker = connect(url).await;
    for _ in 0..3 {
        let guard = locker.mutex(NAMES[0]).unwrap().lock().await.unwrap();
        assert!(guard.fencing_token() > last, "{} after {last}, {url}", guard.fencing_token());
        last = guard.fencing_token();
        guard.release().await.unwrap();
    }
    locker.shutdown().await.unwrap();
    last
}

/// The page warns of this case: only the old store's record has a token that was raised above the
/// clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_tokens_fall_if_the_old_store_forgets_while_they_are_ahead_of_its_clock() {
    let redis = redis();
    let zookeeper = zookeeper();
    let old = patient(&redis.url());
    let new = with_base(&patient(&zookeeper.url()), base_of_the_page());
    let last = stop_over(&all_of(&[&new, &old]), FencingToken::new(0)).await;
    let last = stop_over(&all_of(&[&patient(&zookeeper.url()), &old]), last).await;
    redis.ask(["FLUSHALL"]).unwrap();
    let locker = connect(&all_of(&[&patient(&zookeeper.url()), &old])).await;
    let guard = locker.mutex(NAMES[0]).unwrap().lock().await.unwrap();
    assert!(guard.fencing_token() < last, "nothing was forgotten");
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    stop_over(&all_of(&[&new, &old]), last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_a_base_below_the_old_stores_tokens_is_refused_without_leftovers() {
    let redis = redis();
    let zookeeper = zookeeper();
    let low = with_base(&patient(&zookeeper.url()), 1000);
    let leading = connect(&all_of(&[&low, &patient(&redis.url())])).await;
    let error = leading.mutex(NAMES[0]).unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("which includes token_base 1000, is smaller"), "{error}");
    for url in [patient(&redis.url()), patient(&zookeeper.url())] {
        let locker = connect(&url).await;
        let mutex = locker.mutex(NAMES[0]).unwrap();
        let guard = mutex.lock_timeout(OP_TIMEOUT).await.unwrap();
        guard.release().await.unwrap();
        locker.shutdown().await.unwrap();
    }
    leading.shutdown().await.unwrap();
}

/// The fleet of the other tests would detect this: two neighbouring steps of a move must share a
/// store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_without_the_step_in_between_both_stores_grant() {
    let redis = redis();
    let mariadb = mariadb();
    let old = connect(&patient(&redis.url())).await;
    let new = connect(&patient(&mariadb.url())).await;
    let both = connect(&all_of(&[&patient(&mariadb.url()), &patient(&redis.url())])).await;
    let first = old.mutex(NAMES[0]).unwrap().lock().await.unwrap();
    assert!(both.mutex(NAMES[0]).unwrap().try_lock().await.unwrap().is_none());
    let second = new.mutex(NAMES[0]).unwrap().lock().await.unwrap();
    assert!(first.is_held() && second.is_held());
    first.release().await.unwrap();
    assert!(both.mutex(NAMES[0]).unwrap().try_lock().await.unwrap().is_none());
    second.release().await.unwrap();
    for locker in [old, new, both] {
        locker.shutdown().await.unwrap();
    }
}
