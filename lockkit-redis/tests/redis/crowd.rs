//! Tests thousands of waiters whose processes died. They make no request take longer, and the live
//! waiters are served.

use std::num::NonZeroU32;

use futures_util::future::join_all;
use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, Released, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::time::{sleep, timeout};

use crate::support::*;

const CROWD: u64 = 5000;
/// The most that one request may cost, in commands inside its script.
const MOST_COMMANDS: u64 = 1500;

/// Each kind, the mode that holds it, the mode that waits for it, and the permits in a waiter's
/// entry.
fn kinds() -> [(Kind, Mode, Mode, &'static str); 4] {
    let permits = |count: u32| {
        let number = |n| NonZeroU32::new(n).unwrap();
        Mode::Permits { count: number(count), limit: number(3) }
    };
    [
        (Kind::Mutex, Mode::Exclusive, Mode::Exclusive, ""),
        (Kind::RwLock, Mode::Exclusive, Mode::Exclusive, "2147483647:"),
        (Kind::RwLock, Mode::Exclusive, Mode::Shared, "1:"),
        (Kind::Semaphore, permits(3), permits(1), "1:"),
    ]
}

fn spec_of(kind: Kind, mode: Mode) -> ClaimSpec {
    ClaimSpec::new(LockName::new(kind, "a").unwrap(), OwnerId::random(), mode, TTL, OP_TIMEOUT)
}

fn key(kind: Kind, part: &str) -> String {
    format!("lockkit:{}:{{a}}:{part}", kind.as_str())
}

/// Queues waiters of this many processes without a connection. They count as alive for `lives` ms.
async fn crowd(store: &Store, kind: Kind, permits: &str, processes: u64, lives: i64) {
    let script = "local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        for i = 1, ARGV[1] do
          local waiter = string.format('%016x:3000:%s%032x', 1000000 + i % ARGV[3], ARGV[2], i)
          redis.call('ZADD', KEYS[1], 'NX', now - ARGV[1] + i, waiter)
          redis.call('ZADD', KEYS[2], now + ARGV[4] * 1000, waiter)
        end
        redis.call('PEXPIRE', KEYS[1], 600000)
        redis.call('PEXPIRE', KEYS[2], 600000)";
    let queue = key(kind, "queue");
    let live = key(kind, "live");
    let numbers = [CROWD.to_string(), processes.to_string(), lives.to_string()];
    let words =
        ["EVAL", script, "2", &queue, &live, &numbers[0], permits, &numbers[1], &numbers[2]];
    store.admin.ask::<()>(&words).await;
}

/// How many commands the server has run since its statistics were reset, including those inside
/// scripts.
async fn commands(store: &Store) -> u64 {
    let stats: String = store.admin.ask(&["INFO", "commandstats"]).await;
    let calls = stats.lines().filter_map(|line| line.split_once("calls="));
    calls.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn c8_c9_a_crowd_of_the_dead_costs_no_request_more_than_a_bounded_amount() {
    for (kind, held, waits, permits) in kinds() {
        for processes in [1, CROWD] {
            let store = Store::start().await;
            let mut holder = store.redis.claim(spec_of(kind, held)).unwrap();
            granted(holder.attempt(Wait::No).await);
            crowd(&store, kind, permits, processes, 600_000).await;
            let (mut living, signal) = waiter_for(&store, spec_of(kind, waits));
            assert!(busy(living.attempt(Wait::Queue).await).0);
            let what = format!("{kind:?}, {waits:?}, {processes} processes");

            store.admin.reset_calls().await;
            assert_eq!(holder.release().await.unwrap(), Released::Freed, "{what}");
            let all = commands(&store).await;
            let told = store.admin.calls("publish").await;
            assert!(all <= MOST_COMMANDS, "{what}: a release ran {all} commands");
            assert!(told <= 64, "{what}: a release published {told} messages");

            // The live waiter soon has the lock, by requests that are bounded, too.
            let mut requests = 0;
            timeout(SOON, async {
                loop {
                    store.admin.reset_calls().await;
                    let answer = living.attempt(Wait::Queue).await.unwrap();
                    let all = commands(&store).await;
                    requests += store.admin.requests().await;
                    assert!(all <= 2 * MOST_COMMANDS, "{what}: a look ran {all} commands");
                    match answer {
                        Attempt::Granted(_) => break,
                        Attempt::Busy { retry_after, .. } => {
                            signal.heard_within(retry_after.unwrap()).await;
                        }
                    }
                }
            })
            .await
            .unwrap_or_else(|_| panic!("{what}: not granted"));
            println!("{what}: {all} commands, {told} messages, then {requests} requests");
            assert!(requests <= 2 * CROWD / 100, "{what}: {requests} requests");
            assert_eq!(living.release().await.unwrap(), Released::Freed, "{what}");

            // A claim that comes now pays nothing for the dead waiters.
            store.admin.reset_calls().await;
            let mut next = store.redis.claim(spec_of(kind, waits)).unwrap();
            granted(next.attempt(Wait::No).await);
            assert_eq!(next.release().await.unwrap(), Released::Freed, "{what}");
            let all = commands(&store).await;
            assert!(all <= 60, "{what}: {all} commands after all are set aside");
        }
    }
}

#[tokio::test]
async fn c9_waiters_that_lapsed_are_forgotten_while_the_lock_is_held() {
    for (kind, held, waits, permits) in kinds() {
        let store = Store::start().await;
        let mut holder = store.redis.claim(spec_of(kind, held)).unwrap();
        granted(holder.attempt(Wait::No).await);
        let (mut living, signal) = waiter_for(&store, spec_of(kind, waits));
        assert!(busy(living.attempt(Wait::Queue).await).0);
        crowd(&store, kind, permits, 7, -1000).await;
        let left = async || store.admin.ask::<u64>(&["ZCARD", &key(kind, "queue")]).await;
        let before = left().await;
        let looks = async {
            while left().await == before {
                busy(living.attempt(Wait::Queue).await);
                sleep(PERIOD / 4).await;
            }
        };
        timeout(SOON, looks)
            .await
            .unwrap_or_else(|_| panic!("{kind:?} {waits:?}: all are still there"));
        let gone = before - left().await;
        assert!(gone <= 500, "{kind:?} {waits:?}: one look forgot {gone}");
        assert_eq!(store.admin.ask::<u64>(&["ZCARD", &key(kind, "live")]).await, before - gone);
        assert_eq!(
            store.redis.inspect(&LockName::new(kind, "a").unwrap()).await.unwrap().waiters,
            Some(1)
        );
        given_up(holder.release()).await;
        wait_for(&mut living, &signal).await;
        assert_eq!(living.release().await.unwrap(), Released::Freed);
    }
}

/// While all claims are served at once, no waiter keeps the queue in order.
#[tokio::test]
async fn c6_c9_dead_waiters_do_not_accumulate_on_a_name_without_long_waits() {
    for (kind, held, waits, permits) in kinds() {
        let store = Store::start().await;
        let mut holder = store.redis.claim(spec_of(kind, held)).unwrap();
        granted(holder.attempt(Wait::No).await);
        crowd(&store, kind, permits, 1, 1).await;
        // All of them are set aside, and soon count as dead.
        let (mut waiter, signal) = waiter_for(&store, spec_of(kind, waits));
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        wait_for(&mut waiter, &signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        let mut holder = store.redis.claim(spec_of(kind, held)).unwrap();
        granted(holder.attempt(Wait::No).await);
        let left = async || store.admin.ask::<u64>(&["ZCARD", &key(kind, "queue")]).await;
        let before = left().await;
        assert!(before >= CROWD / 2, "{kind:?} {waits:?}: {before} are set aside");
        for _ in 0..10 {
            let mut newcomer = store.redis.claim(spec_of(kind, waits)).unwrap();
            assert!(busy(newcomer.attempt(Wait::Queue).await).0);
            given_up(newcomer.release()).await;
        }
        let gone = before - left().await;
        assert_eq!(gone, 10 * 100, "{kind:?} {waits:?}");
    }
}

/// A waiter looks after all names of its process in one request.
#[tokio::test]
async fn c9_a_look_at_many_names_forgets_a_bounded_number_of_waiters() {
    let store = Store::start().await;
    let mut waiters = Vec::new();
    for name in ["a", "b", "c", "d"] {
        holder(&store, name).await;
        let (mut waiter, signal) = waiter_for(&store, spec(name));
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        // First 1000 waiters that live without a connection, and then more lapsed ones than one
        // command can name.
        let script = "local time = redis.call('TIME')
            local now = time[1] * 1000000 + time[2]
            for i = 1, 11000 do
              local waiter = string.format('%016x:3000:%032x', 1000000, i)
              redis.call('ZADD', KEYS[1], i, waiter)
              redis.call('ZADD', KEYS[2], i <= 1000 and now + 600000000 or now - 1000000, waiter)
            end
            redis.call('PEXPIRE', KEYS[1], 600000)
            redis.call('PEXPIRE', KEYS[2], 600000)";
        store.admin.ask::<()>(&["EVAL", script, "2", &queue_key(name), &live_key(name)]).await;
        store.admin.ask::<()>(&["DEL", &lock_key(name)]).await;
        waiters.push((waiter, signal));
    }
    // Now all names are due.
    sleep(PERIOD).await;
    store.admin.reset_calls().await;
    let [(waiter, signal), ..] = &mut waiters[..] else { panic!("no waiters") };
    wait_for(waiter, signal).await;
    let errors: String = store.admin.ask(&["INFO", "errorstats"]).await;
    assert!(!errors.contains("errorstat_ERR"), "a script failed: {errors}");
}

/// No timer helps here: a reader looks only when it is woken.
#[tokio::test]
async fn c8_hundreds_of_readers_behind_a_writer_are_served_by_requests_that_are_bounded() {
    let store = Store::start().await;
    let mut writer = store.redis.claim(spec_of(Kind::RwLock, Mode::Exclusive)).unwrap();
    granted(writer.attempt(Wait::No).await);
    let name = LockName::new(Kind::RwLock, "a").unwrap();
    let reader = |_| {
        let spec = ClaimSpec::new(name.clone(), OwnerId::random(), Mode::Shared, TTL, OP_TIMEOUT);
        waiter_for(&store, spec)
    };
    let mut readers: Vec<_> = (0..300).map(reader).collect();
    // All attempts run at once. One after the other, the first readers could be dead when the last
    // one comes.
    let attempts = readers.iter_mut().map(|(claim, _)| claim.attempt(Wait::Queue));
    for attempt in join_all(attempts).await {
        assert!(busy(attempt).0);
    }
    store.admin.reset_calls().await;
    assert_eq!(writer.release().await.unwrap(), Released::Freed);
    let all = commands(&store).await;
    let told = store.admin.calls("publish").await;
    assert!(all <= MOST_COMMANDS, "a release ran {all} commands");
    // The messages go to the readers that have the lock, and to the next one, which must ask.
    assert_eq!(told, 64 + 1);
    let reading = readers.into_iter().map(|(mut claim, signal)| async move {
        lock(&mut claim, &signal).await;
        claim
    });
    let mut holders = join_all(reading).await;
    let seen = store.redis.inspect(&name).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters), (300, Some(0)));
    for holder in &mut holders {
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
    }
}
