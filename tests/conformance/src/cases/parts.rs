//! Stores with several parts, such as members or replicas, some of which answer late or not at all.

use lockkit_core::{FencingToken, LockGuard, LockOptions, spi::Released};
use tokio::time::{sleep, timeout};

use super::election::election;
use crate::{
    case::{Ability, Needs, cases},
    env::{Env, give_back, lock_soon, long},
    harness::{Faults, Hook, Link},
    lock::AnyLock,
    wait::soon,
};

const NEEDS: Needs = Needs::MUTEX.hook(Hook::Parts);
/// Grants without the silent part. The silent part's own tokens fall behind by this many.
const GRANTS: usize = 10;

cases! {
    c4_tokens_rise_whichever_part_joins_late: NEEDS,
        "a token from the parts that answered, which ignores parts that granted before";
    c14_no_other_token_is_shown_while_a_part_is_late_or_silent: NEEDS,
        "an inspection that shows the state of one part only";
    c14_a_held_lock_is_never_called_free_while_a_part_is_silent: NEEDS,
        "a forced release that reports a held lock as free";
    c14_election_a_leader_has_one_term_whichever_part_is_silent: NEEDS.ability(Ability::Labels),
        "a silent part that makes observers see another term, or no leader";
}

/// A part with this delay does not take part in the grant, if the others are enough.
fn answers_late(env: &Env) -> Faults {
    Faults { reply_delay: env.patience(), ..Faults::NONE }
}

fn heal(env: &Env) {
    env.harness().parts().iter().for_each(|part| part.heal());
}

fn options(env: &Env) -> LockOptions {
    long().with_op_timeout(env.patience() * 10)
}

/// Makes the tokens of this part fall behind those of the others.
async fn leave_behind(lock: &AnyLock, part: &dyn Link) {
    part.set(Faults::SILENCE);
    for _ in 0..GRANTS {
        let Some(guard) = taken_without_a_part(lock).await else { break };
        give_back(guard).await;
    }
}

/// A grant while one part is silent. `None` where each part is needed.
async fn taken_without_a_part(lock: &AnyLock) -> Option<LockGuard> {
    match lock.try_lock().await {
        Ok(Some(guard)) => Some(guard),
        // The background task still removes an earlier grant, which the silent part delays.
        Ok(None) => lock.lock_timeout(soon()).await.ok().flatten(),
        Err(_) => None,
    }
}

async fn c4_tokens_rise_whichever_part_joins_late(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", options(&env));
    let mut last = FencingToken::new(0);
    let parts = env.harness().parts();
    for _ in 0..2 {
        for part in &parts {
            part.set(Faults::SILENCE);
            for _ in 0..GRANTS {
                let Some(guard) = taken_without_a_part(&lock).await else { break };
                assert!(guard.fencing_token() > last, "C4: {} after {last}", guard.fencing_token());
                last = guard.fencing_token();
                give_back(guard).await;
            }
            part.heal();
        }
    }
    // The background task removes what an attempt without an answer left.
    let guard = lock_soon(&lock).await;
    assert!(guard.fencing_token() > last, "C4: a smaller token than {last}");
}

/// One part answers after the grant; then, in turn, each of the others does not answer an observer.
async fn c14_no_other_token_is_shown_while_a_part_is_late_or_silent(env: Env) {
    let locker = env.locker().await;
    let observer = env.locker().await;
    let lock = env.lock(&locker, "x", options(&env));
    let watch = env.lock(&observer, "x", options(&env));
    let parts = env.harness().parts();
    let (late, others) = parts.split_last().expect("a store with parts");
    for silent in others {
        leave_behind(&lock, late.as_ref()).await;
        late.set(answers_late(&env));
        let guard = lock_soon(&lock).await;
        sleep(env.patience() * 2).await;
        silent.set(Faults::SILENCE);
        // An error means that the token is not known.
        if let Ok(seen) = watch.inspect().await {
            let tokens: Vec<_> = seen.holders.iter().map(|holder| holder.token).collect();
            assert_eq!(tokens, [Some(guard.fencing_token())], "C14: of the present holder");
        }
        heal(&env);
        give_back(guard).await;
    }
}

async fn c14_a_held_lock_is_never_called_free_while_a_part_is_silent(env: Env) {
    let locker = env.locker().await;
    let observer = env.locker().await;
    let lock = env.lock(&locker, "x", options(&env));
    let watch = env.lock(&observer, "x", options(&env));
    let parts = env.harness().parts();
    for (place, silent) in parts.iter().enumerate() {
        // The next part has no trace of the grant, if the others are enough.
        let absent = &parts[(place + 1) % parts.len()];
        absent.set(Faults { refuse: true, ..Faults::NONE });
        let guard = lock.try_lock().await.ok().flatten();
        absent.heal();
        let guard = match guard {
            Some(guard) => guard,
            None => lock_soon(&lock).await,
        };
        silent.set(Faults::SILENCE);
        if let Ok(seen) = watch.inspect().await {
            assert_eq!(seen.holders.len(), 1, "C14: it is held");
        }
        let released = watch.force_release(guard.fencing_token()).await;
        assert!(!matches!(released, Ok(Released::NotHeld)), "C14: it is held");
        heal(&env);
        drop(guard.release().await);
    }
}

async fn c14_election_a_leader_has_one_term_whichever_part_is_silent(env: Env) {
    let locker = env.locker().await;
    let observer = env.locker().await;
    let parts = env.harness().parts();
    let late = parts.last().expect("a store with parts");
    leave_behind(&env.lock(&locker, "y", options(&env)), late.as_ref()).await;
    late.set(answers_late(&env));
    let leadership = election(&env, &locker, options(&env)).campaign("a").await.unwrap();
    sleep(env.patience() * 2).await;
    heal(&env);
    let mut watch = election(&env, &observer, options(&env)).watch().with_interval(env.moment());
    for silent in &parts {
        silent.set(Faults::SILENCE);
        let told =
            timeout(options(&env).op_timeout().unwrap() + env.patience(), watch.changed()).await;
        // On a slow machine, the silence may outlast the lease. Then there is no leader.
        if let Ok(Ok(told)) = told
            && leadership.is_leader()
        {
            assert_eq!(
                told.map(|leader| leader.term),
                Some(leadership.term()),
                "C14: of the one leader"
            );
        }
        silent.heal();
    }
    if leadership.is_leader() && watch.current().is_none() {
        let told = timeout(soon(), watch.changed()).await.expect("all parts answer").unwrap();
        assert_eq!(told.map(|leader| leader.term), Some(leadership.term()));
    }
    drop(leadership.resign().await);
}
