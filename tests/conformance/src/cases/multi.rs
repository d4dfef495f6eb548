//! Several mutexes as one: all or none, in order, within one bound, without a deadlock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    ErrorKind, LockOptions, Locker, MultiGuard, MutexSet,
    spi::{Mode, Released},
};
use rand::{RngExt as _, seq::IndexedRandom as _};
use tokio::{
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

use crate::{
    case::{Needs, cases},
    env::{Env, SHORT, becomes_free, give_back, lock_soon, long, take, too_slow},
    faulty::Op,
    judge::{judged, loss_of},
    wait::{STEP, STORM, a_minute, at_once, eventually, slack, soon, within},
    witness::{Stay, Witness},
};

cases! {
    c1_all_names_of_a_set_are_locked: Needs::MUTEX,
        "a set that locks only some of its names, or only a name of the set";
    c8_a_set_is_all_or_nothing: Needs::MUTEX,
        "a failed call for a set that keeps the names it took";
    c8_one_bound_holds_for_the_whole_set: Needs::MUTEX,
        "a bound for each name instead of the whole call";
    c11_a_set_is_sorted_and_has_no_name_twice: Needs::MUTEX,
        "a set that is locked in the caller's order, or that waits for itself";
    c7_a_set_is_released_in_reverse: Needs::MUTEX,
        "a set that frees its first name first, so the next holder finds the other names taken";
    c3_a_set_is_lost_with_any_of_its_locks: Needs::MUTEX,
        "a loss signal that watches only the first lock";
    c3_a_loss_while_the_set_waits_ends_the_call: Needs::MUTEX,
        "a set that is granted after one of its locks was lost, or that still waits then";
    c6_a_cancelled_call_for_a_set_leaves_nothing: Needs::MUTEX,
        "a cancelled call that keeps the names it took";
    c1_c6_overlapping_sets_never_lock_each_other_out: Needs::MUTEX,
        "sets that wait for each other in a circle; a set that is partly held after a cancellation";
}

fn set(env: &Env, locker: &Locker, names: &[&str], options: LockOptions) -> MutexSet {
    for name in names {
        env.name(name);
    }
    locker.mutex_set(names).unwrap().with_options(options).unwrap()
}

async fn give_all_back(guard: MultiGuard) {
    guard.release().await.expect("a healthy store");
}

async fn c1_all_names_of_a_set_are_locked(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let all = set(&env, &a, &["c", "a", "b"], long());
    let guard = all.lock().await.unwrap();
    assert!(guard.is_held() && guard.remaining() > Duration::ZERO);
    for name in ["a", "b", "c"] {
        let lock = env.lock(&b, name, long());
        assert!(lock.try_lock().await.unwrap().is_none(), "C1: {name} is free");
        let seen = lock.inspect().await.unwrap().holders[0].token;
        assert_eq!(guard.fencing_token(name), seen, "C4: {name}");
    }
    assert!(set(&env, &b, &["c", "d"], long()).try_lock().await.unwrap().is_none());
    guard.renew().await.unwrap();
    give_all_back(guard).await;
    for name in ["a", "b", "c", "d"] {
        give_back(take(&env.lock(&b, name, long())).await).await;
    }
}

async fn c8_a_set_is_all_or_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let all = set(&env, &a, &["a", "b", "c", "d"], long());
    for busy in ["a", "c", "d"] {
        let held = take(&env.lock(&b, busy, long())).await;
        for _ in 0..3 {
            assert!(all.try_lock().await.unwrap().is_none());
            for name in ["a", "b", "c", "d"].into_iter().filter(|name| *name != busy) {
                // Where the store is slow, the background task releases it.
                becomes_free(&env.lock(&b, name, long())).await;
            }
        }
        give_back(held).await;
    }
    give_all_back(all.try_lock().await.unwrap().expect("all are free")).await;
}

async fn c8_one_bound_holds_for_the_whole_set(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let mut bound = env.patience() * 2;
    let last = take(&env.lock(&b, "c", long())).await;
    eventually(a_minute(), async || {
        let all = set(&env, &a, &["a", "b", "c"], long().with_wait(bound));
        // After an error, the background task gives the name back.
        let first = lock_soon(&env.lock(&b, "a", long())).await;
        let start = Instant::now();
        let call = async { (all.lock().await.unwrap_err(), start.elapsed()) };
        let ((error, took), ()) = tokio::join!(call, async {
            sleep(bound / 2).await;
            give_back(first).await;
        });
        if took > bound * 5 / 4 {
            // The machine may be busy. A bound for each name would make the call half as long
            // again, at any length of the bound.
            bound *= 2;
            return Err(format!("C8: {took:?}"));
        }
        if error.kind() != ErrorKind::Timeout {
            // A store that pauses has no time to answer. At the bound, the last request may be on
            // its way.
            assert!(took < bound || error.is_outcome_unknown(), "C8: at the bound: {error}");
            return Err(too_slow(&error));
        }
        assert!(took >= bound, "C8: {took:?}");
        Ok(())
    })
    .await;
    let all = set(&env, &a, &["a", "b", "c"], long());
    becomes_free(&env.lock(&b, "b", long())).await;
    give_back(last).await;
    give_all_back(all.lock().await.unwrap()).await;
}

async fn c11_a_set_is_sorted_and_has_no_name_twice(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let twice = locker.mutex_set(["b", "a", "b"]).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InvalidName);
    assert!(twice.to_string().contains("\"b\""), "C13: {twice}");
    assert_eq!(
        locker.mutex_set(Vec::<String>::new()).unwrap_err().kind(),
        ErrorKind::InvalidOption
    );
    assert_eq!(locker.lock_all(["a", ""]).await.unwrap_err().kind(), ErrorKind::InvalidName);
    assert!(line.take_calls().is_empty());
    // The busy name in the middle shows in which order the set asks for its names.
    let other = env.locker().await;
    let held = take(&env.lock(&other, "b", long())).await;
    assert!(set(&env, &locker, &["c", "b", "a"], long()).try_lock().await.unwrap().is_none());
    let mut owners: Vec<_> = line.take_calls().iter().filter_map(|call| call.owner).collect();
    owners.dedup();
    assert!((2..=3).contains(&owners.len()), "\"c\" was asked for before \"b\": {owners:?}");
    give_back(held).await;
}

async fn c7_a_set_is_released_in_reverse(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let all = set(&env, &locker, &["c", "a", "b"], long());
    for dropped in [false, true] {
        drop(line.take_calls());
        let guard = all.lock().await.unwrap();
        let of = |op| move |call: crate::faulty::Call| (call.op == op).then_some(call.owner);
        let mut taken: Vec<_> = line.take_calls().into_iter().filter_map(of(Op::Attempt)).collect();
        taken.dedup();
        if dropped {
            drop(guard);
            // The background task releases the names side by side.
            for name in ["a", "b", "c"] {
                becomes_free(&env.lock(&env.locker().await, name, long())).await;
            }
        } else {
            give_all_back(guard).await;
            let released: Vec<_> =
                line.take_calls().into_iter().filter_map(of(Op::Release)).collect();
            taken.reverse();
            assert_eq!(released, taken);
        }
    }
}

async fn c3_a_set_is_lost_with_any_of_its_locks(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let all = set(&env, &a, &["a", "b", "c"], turn.renewed());
        for name in ["a", "b", "c"] {
            let guard = turn.answer(all.lock()).await?;
            let lost = guard.lost();
            let token = guard.fencing_token(name).unwrap();
            assert_eq!(turn.answer(guard.run(async { 7 })).await?, 7);
            let lock = env.lock(&b, name, long());
            if turn.answer(lock.force_release(token)).await? == Released::NotHeld {
                return Err(format!("C10: {name} was lost by itself"));
            }
            let work = guard.run(std::future::pending::<()>());
            let error = within(turn.ttl, "the end of the work", work).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Lost);
            let (first, _) = at_once("the loss signal", lost.wait()).await;
            assert!(!guard.is_held() && guard.remaining().is_zero());
            let error = guard.release().await.expect_err("C7: it was not ours any more");
            if error.kind() != ErrorKind::Lost {
                return Err(loss_of(error));
            }
            let told = error.to_string();
            let names = ["a", "b", "c"].map(|name| env.name(name));
            let named = names.iter().filter(|name| told.contains(&format!("{name:?}")));
            let named: Vec<_> = named.map(|name| name.as_str()).collect();
            assert!(named.contains(&name), "C7: {named:?}, and {name} was not ours any more");
            if first.as_str() != name || named.len() > 1 {
                return Err(format!("C10: {first}, of {named:?}, was lost by itself"));
            }
        }
        give_all_back(set(&env, &a, &["a", "b", "c"], long()).lock().await.unwrap()).await;
        Ok(())
    })
    .await;
}

async fn c3_a_loss_while_the_set_waits_ends_the_call(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let busy = take(&env.lock(&b, "c", long())).await;
        let all = set(&env, &a, &["a", "b", "c"], turn.renewed());
        let waiting = tokio::spawn(async move { all.lock().await });
        let lock = env.lock(&b, "b", long());
        let mut freed = None;
        eventually(turn.ttl + soon(), async || {
            if waiting.is_finished() {
                return Ok(());
            }
            // More than one token may be shown. A quorum may show a smaller one until its members
            // have decided. A call that does not know of its grant yet may get another one.
            let seen = lock.inspect().await.map_err(|error| error.to_string())?;
            if let Some(token) = seen.holders.first().and_then(|holder| holder.token) {
                let answer = lock.force_release(token).await.map_err(|error| error.to_string())?;
                if answer == Released::Freed {
                    freed = Some(Instant::now());
                }
            }
            let since = freed.map(|freed| freed.elapsed());
            let in_time = since < Some(turn.ttl + slack()) || waiting.is_finished();
            assert!(in_time, "C3: the call goes on {since:?} after it");
            Err("the call goes on".to_owned())
        })
        .await;
        let error = waiting.await.unwrap().unwrap_err();
        becomes_free(&env.lock(&b, "a", long())).await;
        becomes_free(&lock).await;
        give_back(busy).await;
        match (freed.is_some(), error.kind(), error.name().map(|name| name.as_str())) {
            (true, ErrorKind::Lost, Some("b")) => Ok(()),
            _ => Err(format!("C10: it ended by itself: {}", loss_of(error))),
        }
    })
    .await;
}

async fn c6_a_cancelled_call_for_a_set_leaves_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let all = set(&env, &a, &["a", "b", "c"], long());
    for busy in ["b", "c"] {
        let held = take(&env.lock(&b, busy, long())).await;
        assert!(timeout(env.moment(), all.lock()).await.is_err(), "{busy} is taken");
        give_back(held).await;
        for name in ["a", "b", "c"] {
            becomes_free(&env.lock(&b, name, long())).await;
        }
    }
}

const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];
const TASKS: usize = 32;

/// 32 tasks take random sets, and drop some of the calls and guards at random points. Every wait
/// for a round is bounded.
async fn c1_c6_overlapping_sets_never_lock_each_other_out(env: Env) {
    let lockers = [env.locker().await, env.locker().await, env.locker().await];
    let witnesses: Arc<[Witness; NAMES.len()]> = Arc::default();
    NAMES.iter().for_each(|name| drop(env.name(name)));
    let stop = Instant::now() + STORM * 2;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let locker = lockers[task % lockers.len()].clone();
        let witnesses = Arc::clone(&witnesses);
        tasks.spawn(async move {
            let mut grants = 0;
            // A call that is not cut is granted in the end, however slow the machine is.
            let fewest = if task % 3 == 0 { 0 } else { 2 };
            while grants < fewest || (Instant::now() < stop && grants < 50) {
                let size = rand::rng().random_range(1..=3);
                let cut = rand::rng().random_range(0..40);
                let names: Vec<_> = NAMES.sample(&mut rand::rng(), size).copied().collect();
                let set = locker.mutex_set(&names).unwrap().with_options(long()).unwrap();
                // A third of the calls is cut; the others wait for as long as they need.
                let guard = match task % 3 {
                    0 => timeout(STEP * cut, set.lock()).await.ok(),
                    _ => Some(set.lock().await),
                };
                let Some(guard) = guard else { continue };
                grants += 1;
                leave(guard.expect("a healthy store"), &names, &witnesses, cut).await;
            }
            grants
        });
    }
    let grants: Vec<usize> =
        within(STORM * 2 + a_minute(), "the end of the storm", tasks.join_all()).await;
    let seen: usize = witnesses.iter().map(Witness::verify).sum();
    assert!(grants.iter().sum::<usize>() >= TASKS && seen >= TASKS, "{grants:?}");
    for name in NAMES {
        becomes_free(&env.lock(&lockers[0], name, long())).await;
    }
}

async fn leave(guard: MultiGuard, names: &[&str], witnesses: &[Witness; NAMES.len()], cut: u32) {
    let from = Instant::now();
    yield_now().await;
    assert!(guard.is_held(), "C2: it was taken away");
    let until = Instant::now();
    for name in names {
        let at = NAMES.iter().position(|one| one == name).unwrap();
        let token = guard.fencing_token(name).unwrap();
        witnesses[at].record(Stay { token, mode: Mode::Exclusive, asked: None, from, until });
    }
    match cut % 3 {
        0 => drop(guard),
        1 => drop(timeout(STEP * cut / 50, guard.release()).await),
        _ => give_all_back(guard).await,
    }
}
