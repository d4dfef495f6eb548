//! Watches of elections: a watch reports each settled leader once and in order, and leaves nothing
//! behind.

use std::sync::{Arc, Mutex, PoisonError};

use lockkit_core::{Election, Leader, LeaderWatch, Leadership, LockOptions};
use tokio::time::timeout;

use super::election::{NEEDS, election, settled, told, value};
use crate::{
    case::cases,
    env::{Env, SHORT, long},
    harness::Hook,
    wait::{STEP, slack, soon, step, within},
};

cases! {
    c14_election_an_observer_sees_every_settled_leader: NEEDS,
        "a watch that misses a leader, or reports one twice or out of order";
    c8_election_a_watch_reports_a_vacancy: NEEDS,
        "a watch that does not report a vacancy, at the start or after a leader";
    c8_election_a_watch_that_is_dropped_midway_misses_nothing: NEEDS,
        "a watch that forgets a leader when its future is dropped in a `select!`";
    c8_election_all_watches_hear_of_a_change: NEEDS,
        "an observation that reaches only one of several watches, or that an unpolled watch blocks";
    c6_election_a_dropped_watch_leaves_nothing: NEEDS,
        "a dropped observer that leaves a subscription, a request or a task";
    c13_election_a_watch_reports_a_failing_store: NEEDS.hook(Hook::Pause),
        "a watch that reports an old leader while the store can't be reached, or that never \
         recovers";
}

async fn c14_election_an_observer_sees_every_settled_leader(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let c = env.locker().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let observing = {
        let mut watch = election(&env, &c, long()).watch();
        let told = Arc::clone(&told);
        tokio::spawn(async move {
            loop {
                let leader = watch.changed().await.unwrap();
                let leader = leader.map(|leader| (leader.value, leader.term));
                told.lock().unwrap_or_else(PoisonError::into_inner).push(leader);
            }
        })
    };
    let mut leaders = Vec::new();
    for n in 0..6 {
        let value = format!("leader {n}");
        let leadership = election(&env, [&a, &b][n % 2], long()).campaign(&value).await.unwrap();
        leaders.push((value, leadership.term()));
        within(settled(&env), "the news of a leader", async {
            while told.lock().unwrap().last().and_then(Option::as_ref) != leaders.last() {
                step().await;
            }
        })
        .await;
        if n % 3 == 2 {
            drop(leadership);
        } else {
            leadership.resign().await.unwrap();
        }
    }
    observing.abort();
    drop(observing.await);
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "told twice: {told:?}");
    let mut seen: Vec<_> = told.into_iter().flatten().collect();
    assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].1), "C4: a term fell: {seen:?}");
    // An observer may see a grant that is made in steps before its token is settled.
    seen.dedup_by(|next, earlier| {
        let is_the_same = next.0 == earlier.0;
        if is_the_same {
            earlier.1 = next.1;
        }
        is_the_same
    });
    assert_eq!(seen, leaders, "C14: not each settled leader once and in order");
}

async fn c8_election_a_watch_reports_a_vacancy(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let observer = election(&env, &b, long());
    let mut watch = observer.watch();
    assert!(watch.current().is_none());
    assert!(told(&env, &mut watch).await.is_none(), "nobody leads");
    for n in 0..3 {
        let name = format!("leader {n}");
        let leadership = candidate.try_campaign(&name).await.unwrap().expect("nobody leads");
        let leader = told(&env, &mut watch).await;
        assert_eq!(value(&leader), Some(&*name));
        assert_eq!(watch.current().map(|leader| leader.term), Some(leadership.term()));
        leadership.resign().await.unwrap();
        assert!(told(&env, &mut watch).await.is_none(), "C8: still {:?}", watch.current());
        assert!(watch.current().is_none());
    }
    timeout(settled(&env) * 2, watch.changed()).await.expect_err("nothing has changed");
}

/// Campaigns while a look may be under way that was dropped or is not polled any more. Where such a
/// look takes the free lock for a moment, one try could be refused.
async fn elected(env: &Env, candidate: &Election, value: &str) -> Leadership {
    within(env.poll() + slack(), "a leader", candidate.campaign(value)).await.unwrap()
}

async fn c8_election_a_watch_that_is_dropped_midway_misses_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let mut watch = election(&env, &b, long()).watch();
    let mut next = async || {
        within(settled(&env), "the news of a change", async {
            loop {
                if let Ok(leader) = timeout(STEP, watch.changed()).await {
                    return leader.unwrap();
                }
            }
        })
        .await
    };
    assert!(next().await.is_none());
    for _ in 0..3 {
        let leadership = elected(&env, &candidate, "short of time").await;
        assert_eq!(next().await.map(|leader| leader.term), Some(leadership.term()));
        leadership.resign().await.unwrap();
        assert!(next().await.is_none());
    }
}

async fn c8_election_all_watches_hear_of_a_change(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let observer = election(&env, &b, long());
    let mut idle = observer.watch();
    let mut other = observer.watch();
    assert!(told(&env, &mut idle).await.is_none());
    let own = observer.watch().with_interval(settled(&env) / 4);
    let mut watches = vec![observer.watch(), observer.clone().watch(), own];
    // This watch has begun to look, but is not polled any more.
    let mut pinned = Box::pin(other.changed());
    timeout(STEP, &mut pinned).await.ok();
    for _ in 0..3 {
        let leadership = elected(&env, &candidate, "for all").await;
        for watch in &mut watches {
            let leader = within(settled(&env), "the news for all", async {
                loop {
                    if let Some(leader) = watch.changed().await.unwrap() {
                        return leader;
                    }
                }
            })
            .await;
            assert_eq!(leader.term, leadership.term());
        }
        leadership.resign().await.unwrap();
        for watch in &mut watches {
            assert!(told(&env, watch).await.is_none());
        }
    }
    timeout(settled(&env) * 2, idle.changed()).await.expect_err("nobody leads now as then");
}

async fn c6_election_a_dropped_watch_leaves_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let observer = election(&env, &b, long());
    let mut leading = None;
    for wait in env.delays().into_iter().chain([settled(&env)]) {
        let mut watches =
            [observer.watch(), observer.watch(), observer.watch().with_interval(STEP * 3)];
        for watch in &mut watches {
            drop(timeout(wait, watch.changed()).await);
            drop(timeout(wait, watch.changed()).await);
        }
        // The rounds alternate between a leader and no leader.
        match leading.take() {
            None => leading = candidate.try_campaign("a").await.unwrap(),
            Some(leadership) => {
                leadership.resign().await.unwrap();
            }
        }
    }
    drop(leading);
}

/// The next news. On a busy machine, the watch may report trouble before.
async fn news(watch: &mut LeaderWatch) -> Option<Leader> {
    loop {
        if let Ok(leader) = watch.changed().await {
            return leader;
        }
    }
}

async fn c13_election_a_watch_reports_a_failing_store(env: Env) {
    let options = LockOptions::new().with_ttl(env.ttl(SHORT)).with_op_timeout(env.ttl(SHORT) / 3);
    let locker = env.locker().await.with_defaults(options.clone()).unwrap();
    // Only the watch must get short requests, and so be in trouble soon.
    let candidate = election(&env, &locker, long());
    let mut watch = election(&env, &locker, options.clone()).watch();
    assert!(within(soon(), "the first news", news(&mut watch)).await.is_none());
    env.harness().pause().await.unwrap();
    let troubled = async {
        // After its first error, the watch must report another one.
        [watch.changed().await, watch.changed().await]
    };
    let troubled = timeout(options.ttl() * 6 + soon(), troubled).await;
    env.harness().resume().await.unwrap();
    for troubled in troubled.expect("C13: a watch hides that the store is silent") {
        let error = troubled.expect_err("C13: news of a silent store");
        assert!(!error.is_temporary(), "{error:?}");
        assert_eq!(error.operation(), Some("watch"), "{error}");
    }
    let leadership = within(soon(), "a leader", candidate.campaign("a")).await.unwrap();
    let leader = within(soon(), "the news of a change", news(&mut watch)).await;
    assert_eq!(leader.map(|leader| leader.term), Some(leadership.term()));
    leadership.resign().await.unwrap();
}
