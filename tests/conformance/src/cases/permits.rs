//! Semaphores: permits that add up to at most the limit.

use std::{collections::BTreeSet, sync::Arc};

use lockkit_core::{ErrorKind, LockOptions, Semaphore, spi::Mode};
use tokio::task::JoinSet;

use super::shares::{assert_shown, granted_by_a_retry};
use crate::{
    case::{Needs, cases},
    doomed::dead_grant,
    env::{Env, SHORT, free_by_force, give_back, long},
    wait::{a_minute, eventually, slack, soon, step, within},
    witness::{Stay, Witness},
};

cases! {
    c1_permits_add_up_to_the_limit: Needs::PERMITS,
        "a limit that is off by one, or that counts holders instead of permits";
    c1_a_storm_on_permits_never_exceeds_the_limit: Needs::PERMITS,
        "a count that goes wrong under load";
    c2_one_permits_release_leaves_the_others: Needs::PERMITS,
        "a release that frees more permits than the claim took";
    c4_no_two_permits_share_a_token: Needs::PERMITS,
        "one token for all permits that are taken together";
    c5_a_permits_lost_reply_same_token: Needs::PERMITS,
        "a retry that takes a second permit";
    c8_a_waiter_gets_a_permit_that_comes_back: Needs::PERMITS,
        "a waiter for many permits that is never woken, or that others overtake";
    c9_a_dead_permit_frees_within_its_lease: Needs::PERMITS.lease(),
        "permits that share one lease";
    c13_impossible_permits_are_refused: Needs::PERMITS,
        "a wait for more permits than the limit";
    c13_a_mismatch_of_limits_is_an_error: Needs::PERMITS,
        "two limits for one name, of which the larger one breaks the smaller one's promise";
    c14_all_permits_are_shown: Needs::PERMITS,
        "an inspection that shows only one holder";
}

const LIMIT: u32 = 3;

async fn semaphore(env: &Env, options: LockOptions) -> Semaphore {
    let semaphore =
        env.locker().await.semaphore("x", LIMIT).unwrap().with_options(options).unwrap();
    env.will_be_free(semaphore.name());
    semaphore
}

fn mode(count: u32) -> Mode {
    Mode::Permits { count: count.try_into().unwrap(), limit: LIMIT.try_into().unwrap() }
}

async fn c1_permits_add_up_to_the_limit(env: Env) {
    let a = semaphore(&env, long()).await;
    let b = semaphore(&env, long()).await;
    let two = a.try_acquire_many(2).await.unwrap().expect("3 are free");
    assert_eq!(two.mode(), mode(2));
    assert!(b.try_acquire_many(2).await.unwrap().is_none(), "C1: 4 of 3 permits");
    let one = b.try_acquire().await.unwrap().expect("1 is free");
    assert!(a.try_acquire().await.unwrap().is_none(), "C1: 4 of 3 permits");
    give_back(two).await;
    assert!(a.try_acquire_many(LIMIT).await.unwrap().is_none(), "C1: 4 of 3 permits");
    give_back(one).await;
    give_back(a.try_acquire_many(LIMIT).await.unwrap().expect("all are free")).await;
}

async fn c1_a_storm_on_permits_never_exceeds_the_limit(env: Env) {
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let semaphore = semaphore(&env, long()).await;
        let witness = Arc::clone(&witness);
        tasks.spawn(async move {
            for round in 0..10 {
                let count = 1 + (task + round) % LIMIT;
                let guard = semaphore.acquire_many(count).await.unwrap();
                let mut stay = Stay::begin(&guard);
                step().await;
                stay.look(&guard);
                witness.record(stay);
                if round % 2 == 0 { drop(guard) } else { give_back(guard).await }
            }
        });
    }
    within(a_minute(), "the end of the storm", tasks.join_all()).await;
    assert_eq!(witness.verify(), 80);
}

async fn c2_one_permits_release_leaves_the_others(env: Env) {
    let semaphore = semaphore(&env, long()).await;
    let one = semaphore.try_acquire().await;
    let two = semaphore.try_acquire_many(2).await;
    let one = one.unwrap().unwrap();
    let two = two.unwrap().unwrap();
    one.release().await.unwrap();
    assert!(
        semaphore.try_acquire_many(2).await.unwrap().is_none(),
        "C2: a release gave too much back"
    );
    two.renew().await.unwrap();
    two.release().await.unwrap();
}

async fn c4_no_two_permits_share_a_token(env: Env) {
    let a = semaphore(&env, long()).await;
    let b = semaphore(&env, long()).await;
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let guards = [a.try_acquire().await, b.try_acquire().await, a.try_acquire().await]
            .map(|g| g.unwrap().unwrap());
        for guard in guards {
            let token = guard.fencing_token();
            assert!(
                seen.last().is_none_or(|last| *last < token),
                "C4: token {token} follows {seen:?}"
            );
            seen.insert(token);
            drop(guard);
        }
        eventually(soon(), async || match a.inspect().await.unwrap().holders.len() {
            0 => Ok(()),
            n => Err(format!("{n} dropped permits are still held")),
        })
        .await;
    }
}

async fn c5_a_permits_lost_reply_same_token(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let faulty = locker.semaphore("x", LIMIT).unwrap().with_options(long()).unwrap();
    let healthy = semaphore(&env, long()).await;
    give_back(healthy.try_acquire_many(2).await.unwrap().unwrap()).await;
    let attempt = async move { faulty.acquire_many(2).await };
    let guard = granted_by_a_retry(&*link, attempt, async || healthy.inspect().await).await;
    give_back(healthy.try_acquire().await.unwrap().expect("C5: permits were taken twice")).await;
    guard.release().await.unwrap();
}

async fn c8_a_waiter_gets_a_permit_that_comes_back(env: Env) {
    let a = semaphore(&env, long()).await;
    let b = semaphore(&env, long()).await;
    let [one, other] =
        [a.try_acquire().await, a.try_acquire_many(2).await].map(|guard| guard.unwrap().unwrap());
    let waiting = tokio::spawn(async move { b.acquire_many(LIMIT).await });
    for guard in [one, other] {
        env.pause().await;
        assert!(!waiting.is_finished(), "C1: more permits than there are");
        give_back(guard).await;
    }
    give_back(within(env.poll() + slack(), "the waiter's grant", waiting).await.unwrap().unwrap())
        .await;
}

async fn c9_a_dead_permit_frees_within_its_lease(env: Env) {
    let semaphore = semaphore(&env, long()).await;
    let short = env.fleeting(SHORT);
    let ttl = short.ttl();
    dead_grant(&env, "x", short, mode(2)).await;
    let live = semaphore.try_acquire().await.unwrap().unwrap();
    let bound = ttl + env.descriptor().takeover_delay + env.poll() + slack();
    let taken_over =
        within(bound, "the permits of a dead holder", semaphore.acquire_many(2)).await.unwrap();
    assert!(live.is_held());
    give_back(live).await;
    give_back(taken_over).await;
}

async fn c13_impossible_permits_are_refused(env: Env) {
    let locker = env.locker().await;
    assert_eq!(locker.semaphore("x", 0).unwrap_err().kind(), ErrorKind::InvalidOption);
    let semaphore = semaphore(&env, long()).await;
    for impossible in [0, LIMIT + 1] {
        assert_eq!(
            semaphore.acquire_many(impossible).await.unwrap_err().kind(),
            ErrorKind::InvalidOption
        );
        assert_eq!(
            semaphore.try_acquire_many(impossible).await.unwrap_err().kind(),
            ErrorKind::InvalidOption
        );
    }
}

async fn c13_a_mismatch_of_limits_is_an_error(env: Env) {
    let right = semaphore(&env, long()).await;
    let wrong = env.locker().await.semaphore("x", LIMIT + 1).unwrap();
    let held = right.try_acquire().await.unwrap().unwrap();
    let error = wrong.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error:?}");
    give_back(held).await;
}

async fn c14_all_permits_are_shown(env: Env) {
    let semaphore = semaphore(&env, long()).await;
    let guards = [semaphore.try_acquire().await, semaphore.try_acquire_many(2).await]
        .map(|guard| guard.unwrap().unwrap());
    assert_shown(&semaphore.inspect().await.unwrap(), &guards);
    let [one, two] = guards;
    free_by_force(async || semaphore.force_release(one.fencing_token()).await).await;
    assert!(
        semaphore.try_acquire_many(2).await.unwrap().is_none(),
        "C14: more was freed than asked for"
    );
    two.release().await.unwrap();
    assert_eq!(one.release().await.unwrap_err().kind(), ErrorKind::Lost);
}
