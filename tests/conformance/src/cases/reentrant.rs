//! An owner that takes the same mutex again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use lockkit_core::{ErrorKind, LockOptions, Locker, Owner, ReentrantMutex, spi::Released};
use tokio::{
    task::{JoinSet, yield_now},
    time::timeout,
};

use crate::{
    case::{Needs, cases},
    env::{Env, SHORT, becomes_free, give_back, long, take},
    faulty::Op,
    harness::{Faults, Link as _},
    judge::judged,
    wait::{STEP, STORM, a_minute, eventually, ms, soon, within},
};

cases! {
    c2_an_owner_takes_it_again_without_a_request: Needs::MUTEX,
        "a reentrant lock that asks the store again, gets another token, or is freed by its first \
         release";
    c1_a_reentrant_lock_excludes_all_others: Needs::MUTEX,
        "a lock that is granted to a plain mutex or another owner of the same process";
    c3_a_lost_hold_is_not_taken_again_under_its_guards: Needs::MUTEX,
        "a new hold while guards of the lost hold still exist";
    c8_only_one_of_two_calls_of_an_owner_asks_the_store: Needs::MUTEX,
        "two claims of one owner, one of which waits for the other";
    c6_a_cancelled_call_of_an_owner_leaves_the_others_going: Needs::MUTEX,
        "a call that waits for a cancelled call";
    c1_c6_owners_under_cancellations_exclude_each_other: Needs::MUTEX,
        "a wrong count of guards after a cancellation, so the lock is freed too early, or never";
}

fn mutex(env: &Env, owner: &Owner, name: &str, options: LockOptions) -> ReentrantMutex {
    env.name(name);
    owner.mutex(name).unwrap().with_options(options).unwrap()
}

async fn c2_an_owner_takes_it_again_without_a_request(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let owner = locker.owner();
    let lock = mutex(&env, &owner, "x", long());
    let first = lock.lock().await.unwrap();
    drop(line.take_calls());
    let mut guards = vec![first];
    for _ in 0..3 {
        guards.push(lock.lock().await.unwrap());
        guards.push(mutex(&env, &owner.clone(), "x", long()).try_lock().await.unwrap().unwrap());
        guards.push(lock.lock_timeout(STEP).await.unwrap());
    }
    let token = guards[0].fencing_token();
    let last = guards.pop().unwrap();
    for (n, guard) in guards.into_iter().enumerate() {
        assert_eq!(guard.fencing_token(), token, "C4");
        if n % 2 == 0 {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
    }
    let calls = line.take_calls();
    assert!(calls.iter().all(|call| call.op == Op::KeepAlive), "the store was asked: {calls:?}");
    assert!(last.is_held());
    last.release().await.unwrap();
    let released = line.take_calls().iter().filter(|call| call.op == Op::Release).count();
    assert_eq!(released, 1);
    give_back(take(&env.lock(&env.locker().await, "x", long())).await).await;
}

async fn c1_a_reentrant_lock_excludes_all_others(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let owner = a.owner();
    let lock = mutex(&env, &owner, "x", long());
    let first = lock.lock().await.unwrap();
    let second = lock.lock().await.unwrap();
    let taken = async |locker: &Locker| {
        let other = mutex(&env, &locker.owner(), "x", long());
        assert!(other.try_lock().await.unwrap().is_none(), "C1: another owner");
        assert!(
            env.lock(locker, "x", long()).try_lock().await.unwrap().is_none(),
            "C1: a plain mutex"
        );
    };
    taken(&a).await;
    taken(&b).await;
    drop(first);
    taken(&a).await;
    let token = second.fencing_token();
    second.release().await.unwrap();
    let plain = take(&env.lock(&b, "x", long())).await;
    assert!(plain.fencing_token() > token, "C4");
    assert!(lock.try_lock().await.unwrap().is_none(), "C1: the previous owner");
    give_back(plain).await;
}

async fn c3_a_lost_hold_is_not_taken_again_under_its_guards(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let lock = mutex(&env, &a.owner(), &turn.name, turn.renewed());
        let first = turn.answer(lock.lock()).await?;
        let second = turn.answer(lock.lock()).await?;
        let token = first.fencing_token();
        let operator = turn.lock(&b, long());
        if turn.answer(operator.force_release(token)).await? == Released::NotHeld {
            return Err("C10: it was lost by itself".to_owned());
        }
        within(turn.ttl, "the loss signal", second.lost().wait()).await;
        for _ in 0..2 {
            assert_eq!(lock.lock().await.unwrap_err().kind(), ErrorKind::Lost);
            assert_eq!(lock.try_lock().await.unwrap_err().kind(), ErrorKind::Lost);
        }
        assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(lock.lock().await.unwrap_err().kind(), ErrorKind::Lost, "one guard is left");
        drop(second);
        let anew = turn.answer(within(soon(), "a new hold", lock.lock())).await?;
        assert!(anew.fencing_token() > token, "C4");
        turn.answer(anew.release()).await
    })
    .await;
}

async fn c8_only_one_of_two_calls_of_an_owner_asks_the_store(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let owner = locker.owner();
    let lock = mutex(&env, &owner, "x", long());
    line.set(Faults { hold_requests: true, ..Faults::NONE });
    // Both calls ask before the store answers.
    let both = async { tokio::join!(biased; lock.lock(), lock.lock(), async { line.heal() }) };
    let (first, second, ()) = within(soon(), "both grants", both).await;
    let first = first.unwrap();
    let second = second.unwrap();
    assert_eq!(first.fencing_token(), second.fencing_token());
    let owners: Vec<_> = line.take_calls().iter().filter_map(|call| call.owner).collect();
    assert!(owners.windows(2).all(|pair| pair[0] == pair[1]), "two claims: {owners:?}");
    drop(first);
    second.release().await.unwrap();
}

async fn c6_a_cancelled_call_of_an_owner_leaves_the_others_going(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let owner = a.owner();
    let busy = take(&env.lock(&b, "x", long())).await;
    let call = || {
        let lock = mutex(&env, &owner, "x", long());
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let asks = call();
    // Wait until this call is the one that asks the store.
    eventually(soon(), async || {
        if format!("{owner:?}").contains("\"x\"") {
            Ok(())
        } else {
            Err("it does not ask".to_owned())
        }
    })
    .await;
    let waits = call();
    let lock = mutex(&env, &owner, "x", long());
    assert!(lock.try_lock().await.unwrap().is_none());
    let bounded = lock.lock_timeout(env.moment());
    let passed = within(env.moment(), "the end at the bound", bounded).await.unwrap_err();
    assert_eq!(passed.kind(), ErrorKind::Timeout);
    asks.abort();
    assert!(asks.await.unwrap_err().is_cancelled());
    give_back(busy).await;
    let guard = within(env.poll() + soon(), "the grant", waits).await.unwrap();
    guard.release().await.unwrap();
}

const OWNERS: usize = 3;

async fn c1_c6_owners_under_cancellations_exclude_each_other(env: Env) {
    let locker = env.locker().await;
    let owners: Vec<_> = (0..OWNERS).map(|_| locker.owner()).collect();
    // The number of guards that each owner has.
    let inside: Arc<[AtomicUsize; OWNERS]> = Arc::default();
    let stop = std::time::Instant::now() + STORM;
    let mut tasks = JoinSet::new();
    for task in 0..12_usize {
        let me = task % OWNERS;
        let inside = Arc::clone(&inside);
        // The end of a lease would free what a cancelled call left.
        let lock = mutex(&env, &owners[me], "x", long().with_ttl(ms(300_000)));
        tasks.spawn(async move {
            let mut grants = 0_usize;
            for round in 0..200_u32 {
                if grants > 0 && std::time::Instant::now() > stop {
                    break;
                }
                // Some calls wait without a bound, so that the storm makes progress on a slow
                // store.
                let call = lock.lock();
                let guard = if round % 3 == 0 {
                    Ok(call.await)
                } else {
                    timeout(STEP * (round % 11), call).await
                };
                let Ok(guard) = guard else { continue };
                let guard = guard.unwrap();
                inside[me].fetch_add(1, SeqCst);
                for other in (0..OWNERS).filter(|other| *other != me) {
                    assert_eq!(inside[other].load(SeqCst), 0, "C1: two owners are in");
                }
                yield_now().await;
                let again = lock.try_lock().await.unwrap().expect("it is this owner's");
                assert!(guard.is_held() && again.fencing_token() == guard.fencing_token());
                drop(guard);
                grants += 1;
                inside[me].fetch_sub(1, SeqCst);
                if round % 2 == 0 {
                    drop(again);
                } else {
                    again.release().await.expect("C2");
                }
            }
            grants
        });
    }
    let grants: Vec<_> = within(STORM + a_minute(), "the end of the storm", tasks.join_all()).await;
    assert!(grants.iter().all(|grants| *grants > 0), "{grants:?}");
    for owner in &owners {
        assert!(!format!("{owner:?}").contains("\"x\""), "{owner:?} keeps an idle name");
    }
    becomes_free(&env.lock(&locker, "x", long())).await;
}
