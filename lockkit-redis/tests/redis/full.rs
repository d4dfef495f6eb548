//! Tests a server without memory for new data. Holders of every kind keep their locks, and waiters
//! keep their places.

use std::num::NonZeroU32;

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, GrantId, Mode, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// Each kind of hold.
fn holds() -> [(Kind, Mode); 5] {
    let permits = |count: u32| {
        let number = |n| NonZeroU32::new(n).unwrap();
        Mode::Permits { count: number(count), limit: number(3) }
    };
    [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::Election, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::Semaphore, permits(2)),
    ]
}

fn name(kind: Kind) -> LockName {
    LockName::new(kind, "a").unwrap()
}

fn spec_of(kind: Kind, mode: Mode) -> ClaimSpec {
    ClaimSpec::new(name(kind), OwnerId::random(), mode, TTL, OP_TIMEOUT)
}

/// The mode of a claim that must wait behind such a hold.
fn behind(mode: Mode) -> Mode {
    if mode == Mode::Shared { Mode::Exclusive } else { mode }
}

async fn fill(store: &Store) {
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let refused = store.admin.try_ask::<()>(&["SET", "filler", "x"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"), "{refused}");
}

/// The memory in use without that of connections, whose buffers come and go. The server counts
/// these buffers once a second, and its figure is meanwhile wrong by their size.
async fn used_memory(store: &Store) -> u64 {
    let mut last = [0; 3];
    while last[0] == 0 || last != [last[0]; 3] {
        sleep(PERIOD).await;
        let info: String = store.admin.ask(&["INFO", "memory"]).await;
        let figure = |name| {
            info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        last.rotate_left(1);
        last[2] = figure("used_memory:").unwrap() - figure("mem_clients_normal:").unwrap();
    }
    last[0]
}

async fn make_room(store: &Store) {
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
}

#[tokio::test]
async fn c7_c10_a_full_server_ends_no_hold_of_any_kind() {
    let store = Store::start().await;
    for (kind, mode) in holds() {
        let mut holder = store.redis.claim(spec_of(kind, mode)).unwrap();
        let token = granted(holder.attempt(Wait::No).await).token;
        fill(&store).await;
        for renewal in 0..3 {
            let outcome = holder.renew(None).await;
            assert!(
                matches!(outcome, Ok(RenewalOutcome::Alive(_))),
                "{kind:?} {mode:?}, renewal {renewal}: {outcome:?}"
            );
        }
        let Ok(RenewalOutcome::Alive(lease)) = holder.renew(Some(TTL * 4)).await else {
            panic!("{kind:?} {mode:?}")
        };
        assert_eq!(lasts(lease), TTL * 4, "{kind:?} {mode:?}");
        // A reply was lost, so the holder asks again.
        assert_eq!(granted(holder.attempt(Wait::No).await).token, token, "{kind:?} {mode:?}");
        assert_eq!(holder.release().await.unwrap(), Released::Freed, "{kind:?} {mode:?}");
        make_room(&store).await;
    }
}

/// Catches a resume that compares the label with the owner's id, or whose first write needs memory.
#[tokio::test]
async fn c2_c10_a_full_server_moves_a_hold_of_any_kind_to_the_claim_that_resumes_it() {
    let store = Store::start().await;
    for (kind, mode) in holds() {
        let mut spec = spec_of(kind, mode);
        spec.label = Some("a:label".into());
        let owner = spec.owner;
        let mut former = store.redis.claim(spec).unwrap();
        let token = granted(former.attempt(Wait::No).await).token;
        fill(&store).await;
        let mut spec = spec_of(kind, mode);
        spec.ttl = TTL * 4;
        spec.resumes = Some(Box::new(GrantId { owner, token }));
        let mut heir = store.redis.claim(spec).unwrap();
        for attempt in 0..2 {
            let grant = granted(heir.attempt(Wait::No).await);
            assert_eq!(grant.token, token, "{kind:?} {mode:?}, attempt {attempt}");
            assert_eq!(lasts(grant.lease), TTL * 4, "{kind:?} {mode:?}, attempt {attempt}");
        }
        let renewed = former.renew(None).await.unwrap();
        assert!(matches!(renewed, RenewalOutcome::Lost(_)), "{kind:?} {mode:?}: {renewed:?}");
        assert_eq!(former.release().await.unwrap(), Released::NotHeld, "{kind:?} {mode:?}");
        assert_eq!(heir.release().await.unwrap(), Released::Freed, "{kind:?} {mode:?}");
        make_room(&store).await;
    }
}

#[tokio::test]
async fn an_idle_name_of_any_kind_leaves_no_key() {
    let store = Store::start().await;
    for (kind, mode) in holds() {
        let name = LockName::new(kind, "account/42").unwrap();
        let spec = |mode| ClaimSpec::new(name.clone(), OwnerId::random(), mode, TTL, OP_TIMEOUT);
        let mut holder = store.redis.claim(spec(mode)).unwrap();
        granted(holder.attempt(Wait::No).await);
        let (mut waiter, signal) = waiter_for(&store, spec(behind(mode)));
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        lock(&mut waiter, &signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        assert_eq!(store.admin.keys().await, [counter_key()], "{kind:?} {mode:?}");
    }
}

/// The figure includes the name's part of the server's tables. The least key takes some 50 bytes.
#[tokio::test]
async fn an_idle_name_takes_no_memory() {
    const NAMES: u64 = 4_000;
    let store = Store::start().await;
    let take = async |number: u64| {
        let mut claim = store.claim(&format!("name{number:06}"));
        granted(claim.attempt(Wait::No).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    };
    // After this, everything but the names is there before the first figure.
    take(NAMES).await;
    let before = used_memory(&store).await;
    for number in 0..NAMES {
        take(number).await;
    }
    let each = used_memory(&store).await.saturating_sub(before) / NAMES;
    assert!(each < 16, "each name takes {each} bytes");
}

#[tokio::test]
async fn c13_a_full_server_refuses_a_free_lock_with_a_remedy() {
    let store = Store::start().await;
    fill(&store).await;
    for (kind, mode) in holds() {
        for wait in [Wait::No, Wait::Queue] {
            let mut claim = store.redis.claim(spec_of(kind, mode)).unwrap();
            let refused = claim.attempt(wait).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::StoreFull, "{kind:?} {mode:?}: {refused}");
            assert!(refused.is_temporary() && !refused.is_outcome_unknown(), "{refused}");
            assert!(refused.to_string().contains("raise maxmemory or remove keys"), "{refused}");
            assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        }
    }
    make_room(&store).await;
    assert_eq!(store.admin.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn c4_a_full_server_raises_the_token_of_a_hold_of_any_kind() {
    let store = Store::start().await;
    for (kind, mode) in holds() {
        let mut holder = store.redis.claim(spec_of(kind, mode)).unwrap();
        let token = granted(holder.attempt(Wait::No).await).token;
        fill(&store).await;
        let floor = FencingToken::new(token.get() + 1);
        assert_eq!(holder.raise_token(floor).await.unwrap(), Some(floor), "{kind:?} {mode:?}");
        assert_eq!(holder.release().await.unwrap(), Released::Freed, "{kind:?} {mode:?}");
        make_room(&store).await;
    }
}

#[tokio::test]
async fn c8_a_full_server_keeps_the_places_of_waiters_and_hands_over_to_them() {
    let store = Store::start().await;
    for (kind, mode) in holds() {
        let mut holder = store.redis.claim(spec_of(kind, mode)).unwrap();
        granted(holder.attempt(Wait::No).await);
        let mut waiters = Vec::new();
        for _ in 0..2 {
            let (mut claim, signal) = waiter_for(&store, spec_of(kind, behind(mode)));
            assert!(busy(claim.attempt(Wait::Queue).await).0);
            waiters.push((claim, signal));
        }
        fill(&store).await;
        let before = store.lives(&name(kind)).await;
        assert_eq!(before.len(), waiters.len());
        let kept = async {
            while !store.live_longer(&name(kind), &before).await {
                for (claim, _) in &mut waiters {
                    let answer = claim.attempt(Wait::Queue).await;
                    assert!(
                        matches!(answer, Ok(Attempt::Busy { .. })),
                        "{kind:?} {mode:?}: {answer:?}"
                    );
                }
                sleep(PERIOD / 4).await;
            }
        };
        timeout(SOON, kept)
            .await
            .unwrap_or_else(|_| panic!("{kind:?} {mode:?}: they are not kept alive"));
        // A waiter whose connection breaks asks by itself, and keeps its place.
        kill_clients(&store).await;
        for (claim, signal) in &mut waiters {
            signal.heard().await;
            let answer = claim.attempt(Wait::Queue).await;
            assert!(matches!(answer, Ok(Attempt::Busy { .. })), "{kind:?} {mode:?}: {answer:?}");
        }
        let mut newcomer = store.redis.claim(spec_of(kind, behind(mode))).unwrap();
        let refused = newcomer.attempt(Wait::Queue).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StoreFull, "{kind:?} {mode:?}: {refused}");
        assert!(refused.is_temporary() && !refused.is_outcome_unknown(), "{refused}");
        given_up(newcomer.release()).await;

        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        for (mut claim, signal) in waiters {
            lock(&mut claim, &signal).await;
            assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
            assert_eq!(claim.release().await.unwrap(), Released::Freed, "{kind:?} {mode:?}");
        }
        make_room(&store).await;
    }
}

#[tokio::test]
async fn c9_a_full_server_hands_a_lapsed_lock_of_any_kind_to_the_first_waiter() {
    let store = Store::start().await;
    for (kind, mode) in holds() {
        let mut holder = store.redis.claim(spec_of(kind, mode)).unwrap();
        granted(holder.attempt(Wait::No).await);
        let (mut claim, signal) = waiter_for(&store, spec_of(kind, behind(mode)));
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        store.end_leases(&name(kind)).await;
        fill(&store).await;
        let grant =
            timeout(SOON, wait_for_long_or_err(&mut claim, &signal)).await.expect("it waits on");
        grant.unwrap_or_else(|error| panic!("{kind:?} {mode:?}: {error}"));
        assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        make_room(&store).await;
    }
}
