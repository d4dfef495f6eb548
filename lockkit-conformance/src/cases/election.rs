//! Elections: one leader at a time, whose value and term everybody sees.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use lockkit_core::{Election, ErrorKind, FencingToken, Leader, LeaderWatch, LockOptions, Locker, Released};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, long},
    harness::Hook,
    wait::{eventually, ms, soon, within},
    witness::{Stay, Witness},
};

const NEEDS: Needs = Needs::MUTEX.ability(Ability::Labels);

cases! {
    c1_election_one_leads_at_a_time: NEEDS,
        "candidates that do not exclude each other";
    c12_election_candidates_lead_in_their_order: NEEDS.fair(),
        "a race for a leadership that becomes free";
    c14_election_others_see_the_value_and_the_term: NEEDS,
        "a value that comes later than the leadership, or stays longer";
    c13_election_the_value_is_checked_and_kept_as_it_is: NEEDS,
        "a value that breaks a record or a log, or that a store cuts off or changes";
    c4_election_terms_rise_from_leader_to_leader: NEEDS,
        "a term that starts anew when a leader resigned, was dropped, or was evicted";
    c14_election_an_observer_sees_every_settled_leader: NEEDS,
        "a watch that misses a leader, or tells one twice, or the past";
    c8_election_a_watch_tells_that_nobody_leads: NEEDS,
        "a watch that waits for the first leader, or that keeps the last one";
    c8_election_a_watch_that_is_dropped_midway_misses_nothing: NEEDS,
        "a watch that forgets what it saw when a `select!` takes another turn";
    c8_election_all_watches_are_told: NEEDS,
        "a look that only one of several watches hears of, or that a watch which is not polled keeps to itself";
    c7_election_a_resignation_hands_over: NEEDS,
        "a leader that resigned and is waited for until its lease ends";
    c3_election_a_lost_leadership_ends_the_work_and_is_fought_for_again: NEEDS.lease(),
        "work that goes on after the loss, or that is not begun again";
    c7_election_work_that_is_done_ends_the_leadership: NEEDS,
        "a helper that leads on, or keeps the output to itself";
    c6_election_a_dropped_campaign_leaves_nothing: NEEDS,
        "a candidate that is gone and gets its turn";
    c6_election_a_dropped_watch_leaves_nothing: NEEDS,
        "a subscription, a request or a task of an observer that is gone";
    c6_election_a_shutdown_ends_campaigns_and_watches: NEEDS,
        "a watch or a candidate that hangs in a locker that was shut down";
    c13_election_a_watch_tells_of_a_store_in_trouble: NEEDS.hook(Hook::Pause),
        "a watch that goes on telling of a leader whom nobody can ask for, or that gives up for ever";
    c14_election_a_foreign_holder_is_no_leader_of_ours: NEEDS.hook(Hook::Foreign),
        "a leader without a term, or one elected beside it";
}

fn election(env: &Env, locker: &Locker, options: LockOptions) -> Election {
    let election = locker.election("e").unwrap().with_options(options).unwrap();
    env.will_be_free(election.name());
    election
}

/// How long a leader must stand to be seen by all who watch.
fn settled(env: &Env) -> Duration {
    ms(250).min(env.descriptor().poll.max).mul_f64(1.25)
}

/// What a watch tells next, which must be soon.
async fn told(env: &Env, watch: &mut LeaderWatch) -> Option<Leader> {
    within(settled(env), "the news of a change", watch.changed()).await.unwrap()
}

fn value(leader: &Option<Leader>) -> Option<&str> {
    leader.as_ref().map(|leader| leader.value.as_str())
}

/// Waits until a number of candidates beside the leader stand in the queue, where the store knows that.
async fn queued(election: &Election, count: u64) {
    eventually(soon(), async || match election.inspect().await.unwrap().waiters {
        Some(waiters) if waiters == count => Ok(()),
        waiters => Err(format!("{waiters:?} wait, not {count}")),
    })
    .await;
}

async fn c1_election_one_leads_at_a_time(env: Env) {
    let witness = Arc::new(Witness::default());
    let mut candidates = JoinSet::new();
    let lockers = [env.locker().await, env.locker().await];
    for n in 0..6 {
        let election = election(&env, &lockers[n % 2], long());
        let witness = Arc::clone(&witness);
        candidates.spawn(async move {
            for _ in 0..4 {
                let leadership = election.campaign(&format!("candidate {n}")).await.unwrap();
                let mut stay = Stay::begin(leadership.guard());
                let leader = election.leader().await.unwrap().expect("somebody leads");
                assert_eq!((leader.term, leader.owner), (leadership.term(), leadership.owner()));
                assert!(stay.look(leadership.guard()) && leadership.is_leader());
                witness.record(stay);
                assert_eq!(leadership.resign().await.unwrap(), Released::Freed);
            }
        });
    }
    within(soon() * 4, "the end of all terms", candidates.join_all()).await;
    assert_eq!(witness.verify(), 24);
}

async fn c12_election_candidates_lead_in_their_order(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let first = election(&env, &a, long());
    let leading = first.try_campaign("first").await.unwrap().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut candidates = JoinSet::new();
    for n in 0..5 {
        let (election, order) = (election(&env, [&a, &b][n % 2], long()), Arc::clone(&order));
        candidates.spawn(async move {
            let leadership = election.campaign("one of many").await.unwrap();
            order.lock().unwrap_or_else(PoisonError::into_inner).push(n);
            leadership.resign().await.unwrap();
        });
        queued(&first, u64::try_from(n).unwrap() + 1).await;
    }
    leading.resign().await.unwrap();
    within(soon(), "the end of all terms", candidates.join_all()).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4], "C12: not in the order of their campaigns");
}

async fn c14_election_others_see_the_value_and_the_term(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (election_a, election_b) = (election(&env, &a, long()), election(&env, &b, long()));
    assert!(election_b.leader().await.unwrap().is_none());
    let leadership = election_a.try_campaign("10.0.0.7:8080").await.unwrap().expect("nobody leads");
    assert!(leadership.is_leader());
    assert_eq!(leadership.value(), "10.0.0.7:8080");
    let leader = election_b.leader().await.unwrap().expect("somebody leads");
    assert_eq!(leader.value, "10.0.0.7:8080");
    assert_eq!((leader.term, leader.owner), (leadership.term(), leadership.owner()));
    assert!(leader.remaining.is_none_or(|left| left <= long().ttl && !left.is_zero()), "{leader:?}");
    assert!(election_b.try_campaign("10.0.0.8:8080").await.unwrap().is_none(), "C1: two leaders");
    let none = election_b.campaign_timeout("10.0.0.8:8080", ms(50)).await.unwrap();
    assert!(none.is_none(), "C1: two leaders");
    assert_eq!(election_a.leader().await.unwrap().unwrap().term, leadership.term());
    // An election and a mutex of one name have nothing to do with each other.
    let mutex = env.lock(&a, "e", long()).try_lock().await.unwrap().expect("it is free");
    assert_eq!(leadership.resign().await.unwrap(), Released::Freed);
    assert!(election_b.leader().await.unwrap().is_none());
    assert_eq!(mutex.release().await.unwrap(), Released::Freed);
}

async fn c13_election_the_value_is_checked_and_kept_as_it_is(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, observer) = (election(&env, &a, long()), election(&env, &b, long()));
    for bad in ["", &*"x".repeat(256), "a\nb", "a\0b", "\u{7f}", "\u{85}"] {
        let refused = [
            candidate.campaign(bad).await.map(drop),
            candidate.try_campaign(bad).await.map(drop),
            candidate.campaign_timeout(bad, ms(10)).await.map(drop),
            candidate.lead(bad, async |_| ()).await,
            candidate.lead_boxed(bad, |_| Box::pin(async {})).await,
        ];
        for refused in refused {
            let error = refused.expect_err("C13: a value that can't be kept was taken");
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
            assert!(error.to_string().contains("value"), "{error}");
        }
    }
    for good in
        ["7", " ", " a b ", "'; --", "\\", "\u{1f512}", "granted", &*"é".repeat(127), &*"x".repeat(255)]
    {
        let leadership = candidate.try_campaign(good).await.unwrap().expect("nobody leads");
        let leader = observer.leader().await.unwrap().expect("somebody leads");
        assert_eq!(leader.value, good);
        assert_eq!(leadership.resign().await.unwrap(), Released::Freed);
    }
}

async fn c4_election_terms_rise_from_leader_to_leader(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let mut last = FencingToken::new(0);
    let mut risen = |term| {
        assert!(term > last, "C4: term {term} follows {last}");
        last = term;
    };
    for _ in 0..2 {
        let leadership = election(&env, &a, long()).campaign("a").await.unwrap();
        risen(leadership.term());
        leadership.resign().await.unwrap();
        let leadership = election(&env, &b, long()).campaign("b").await.unwrap();
        risen(leadership.term());
        drop(leadership);
        let leadership = election(&env, &a, long()).campaign("a").await.unwrap();
        risen(leadership.term());
        env.harness().expire_now(election(&env, &a, long()).name()).await.unwrap();
        let next = within(env.poll(), "the next leader", election(&env, &b, long()).campaign("b")).await;
        let next = next.unwrap();
        risen(next.term());
        assert_eq!(next.resign().await.unwrap(), Released::Freed);
        drop(leadership);
    }
}

async fn c14_election_an_observer_sees_every_settled_leader(env: Env) {
    let (a, b, c) = (env.locker().await, env.locker().await, env.locker().await);
    let told = Arc::new(Mutex::new(Vec::new()));
    let observing = {
        let (mut watch, told) = (election(&env, &c, long()).watch(), Arc::clone(&told));
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
                sleep(ms(2)).await;
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
    let seen: Vec<_> = told.into_iter().flatten().collect();
    assert_eq!(seen, leaders, "C14: not each settled leader once and in order");
}

async fn c8_election_a_watch_tells_that_nobody_leads(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, observer) = (election(&env, &a, long()), election(&env, &b, long()));
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

async fn c8_election_a_watch_that_is_dropped_midway_misses_nothing(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, mut watch) = (election(&env, &a, long()), election(&env, &b, long()).watch());
    let mut next = async || {
        within(settled(&env), "the news of a change", async {
            loop {
                if let Ok(leader) = timeout(ms(1), watch.changed()).await {
                    return leader.unwrap();
                }
            }
        })
        .await
    };
    assert!(next().await.is_none());
    for _ in 0..3 {
        let leadership = candidate.try_campaign("short of time").await.unwrap().expect("nobody leads");
        assert_eq!(next().await.map(|leader| leader.term), Some(leadership.term()));
        leadership.resign().await.unwrap();
        assert!(next().await.is_none());
    }
}

async fn c8_election_all_watches_are_told(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, observer) = (election(&env, &a, long()), election(&env, &b, long()));
    let (mut idle, mut other) = (observer.watch(), observer.watch());
    assert!(told(&env, &mut idle).await.is_none());
    let own = observer.watch().with_interval(ms(20));
    let mut watches = vec![observer.watch(), observer.clone().watch(), own];
    // It has begun to look, and is not polled any more.
    let mut pinned = Box::pin(other.changed());
    timeout(ms(1), &mut pinned).await.ok();
    for _ in 0..3 {
        let leadership = candidate.try_campaign("for all").await.unwrap().expect("nobody leads");
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

async fn c7_election_a_resignation_hands_over(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let leading = election(&env, &a, long()).try_campaign("a").await.unwrap().expect("nobody leads");
    let waiting = election(&env, &b, long());
    let waiting = tokio::spawn(async move { waiting.campaign("b").await });
    sleep(ms(50)).await;
    assert!(!waiting.is_finished(), "C1: two leaders");
    let term = leading.term();
    assert_eq!(leading.resign().await.unwrap(), Released::Freed);
    let next = within(env.poll(), "the next leader", waiting).await.unwrap().unwrap();
    assert!(next.term() > term);
    let observed = election(&env, &a, long()).leader().await.unwrap().expect("somebody leads");
    assert_eq!((observed.value.as_str(), observed.term), ("b", next.term()));
    assert_eq!(next.resign().await.unwrap(), Released::Freed);
}

/// Counts those that live.
struct Living(Arc<AtomicUsize>);

impl Living {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        assert_eq!(count.fetch_add(1, SeqCst), 0, "C3: the work of an earlier term goes on");
        Self(Arc::clone(count))
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

async fn c3_election_a_lost_leadership_ends_the_work_and_is_fought_for_again(env: Env) {
    const TERMS: usize = 3;
    let locker = env.locker().await;
    let options = long().with_ttl(env.ttl(600)).with_op_timeout(env.ttl(600) / 3);
    let election = election(&env, &locker, options.clone());
    let (living, terms) = (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(Vec::new())));
    let leading = {
        let (election, living, terms) = (election.clone(), Arc::clone(&living), Arc::clone(&terms));
        tokio::spawn(async move {
            let work = |leadership: &lockkit_core::Leadership| {
                let (alive, term, lost) = (Living::new(&living), leadership.term(), leadership.lost());
                let count = {
                    let mut terms = terms.lock().unwrap();
                    terms.push((term, lost));
                    terms.len()
                };
                async move {
                    let _alive = alive;
                    if count < TERMS {
                        std::future::pending::<()>().await;
                    }
                    count
                }
            };
            election.lead_boxed("again and again", |leadership| Box::pin(work(leadership))).await
        })
    };
    for n in 1..TERMS {
        eventually(soon(), async || match terms.lock().unwrap().len() {
            count if count == n => Ok(()),
            count => Err(format!("{count} terms were begun, not {n}")),
        })
        .await;
        let (_, lost) = terms.lock().unwrap()[n - 1].clone();
        assert!(!lost.is_lost());
        env.harness().expire_now(election.name()).await.unwrap();
        within(options.ttl, "the loss of the leadership", lost.wait()).await;
        assert!(lost.is_lost());
    }
    let output = within(options.ttl + env.poll(), "the last term", leading).await.unwrap().unwrap();
    assert_eq!(output, TERMS);
    assert_eq!(living.load(SeqCst), 0);
    assert!(terms.lock().unwrap().windows(2).all(|pair| pair[0].0 < pair[1].0), "C4: terms must rise");
    assert!(election.leader().await.unwrap().is_none(), "C7: it leads on although the work is done");
}

async fn c7_election_work_that_is_done_ends_the_leadership(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, observer) = (election(&env, &a, long()), election(&env, &b, long()));
    for n in 0..3 {
        let done = candidate
            .lead("worker", async |leadership| {
                let leader = observer.leader().await.unwrap().expect("somebody leads");
                assert_eq!((leader.term, leader.value.as_str()), (leadership.term(), "worker"));
                assert!(leadership.is_leader());
                n
            })
            .await;
        assert_eq!(done.unwrap(), n);
        assert!(observer.leader().await.unwrap().is_none(), "C7: it leads on although the work is done");
    }
}

async fn c6_election_a_dropped_campaign_leaves_nothing(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, other) = (election(&env, &a, long()), election(&env, &b, long()));
    let leading = candidate.try_campaign("a").await.unwrap().expect("nobody leads");
    for wait in [0, 1, 5, 30] {
        drop(timeout(ms(wait), other.campaign("b")).await);
        drop(timeout(ms(wait), other.lead("b", async |_| panic!("C6: a dropped candidate leads"))).await);
    }
    if env.descriptor().capabilities.waiter_count {
        queued(&candidate, 0).await;
    }
    leading.resign().await.unwrap();
    for wait in [0, 1, 5, 30] {
        drop(timeout(ms(wait), other.campaign("b")).await);
        drop(timeout(ms(wait), other.lead("b", async |_| std::future::pending::<()>().await)).await);
    }
    eventually(soon(), async || match candidate.leader().await.unwrap() {
        None => Ok(()),
        leader => Err(format!("C6: {leader:?} was dropped")),
    })
    .await;
    let leading = within(env.poll(), "a leader", candidate.campaign("a")).await.unwrap();
    assert_eq!(leading.resign().await.unwrap(), Released::Freed);
}

async fn c6_election_a_dropped_watch_leaves_nothing(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, observer) = (election(&env, &a, long()), election(&env, &b, long()));
    let mut leading = None;
    for wait in [0, 1, 2, 5, 30, 300] {
        let mut watches = [observer.watch(), observer.watch(), observer.watch().with_interval(ms(3))];
        for watch in &mut watches {
            drop(timeout(ms(wait), watch.changed()).await);
            drop(timeout(ms(wait), watch.changed()).await);
        }
        // While somebody leads, and while nobody does.
        match leading.take() {
            None => leading = candidate.try_campaign("a").await.unwrap(),
            Some(leadership) => drop::<Released>(lockkit_core::Leadership::resign(leadership).await.unwrap()),
        }
    }
    drop(leading);
}

async fn c6_election_a_shutdown_ends_campaigns_and_watches(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let leading = election(&env, &a, long()).try_campaign("a").await.unwrap().expect("nobody leads");
    let election = election(&env, &b, long());
    let mut watch = election.watch();
    assert!(told(&env, &mut watch).await.is_some());
    let (campaign, lead) = (election.clone(), election.clone());
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { campaign.campaign("b").await.map(drop) });
    waiting.spawn(async move { lead.lead_boxed("b", |_| Box::pin(async {})).await });
    waiting.spawn(async move { watch.changed().await.map(drop) });
    // These were dropped while they asked the store.
    let mut idle: Vec<_> = (1..5).map(|n| election.watch().with_interval(ms(10 * n))).collect();
    for (watch, wait) in idle.iter_mut().zip([0, 1, 2, 5]) {
        drop(timeout(ms(wait), watch.changed()).await);
    }
    sleep(ms(100)).await;
    let shutdown = tokio::spawn(async move { b.shutdown().await });
    for ended in within(ms(0), "the end of what waits", waiting.join_all()).await {
        assert_eq!(ended.expect_err("the locker was shut down").kind(), ErrorKind::Closed);
    }
    within(ms(0), "the shutdown", shutdown).await.unwrap().unwrap();
    drop(idle);
    let closed = election.watch().changed().await.expect_err("the locker was shut down");
    assert_eq!(closed.kind(), ErrorKind::Closed);
    assert_eq!(election.leader().await.expect_err("the locker was shut down").kind(), ErrorKind::Closed);
    assert_eq!(leading.resign().await.unwrap(), Released::Freed);
}

async fn c13_election_a_watch_tells_of_a_store_in_trouble(env: Env) {
    let options = LockOptions::new().with_ttl(env.ttl(600)).with_op_timeout(env.ttl(600) / 3);
    let locker = env.locker().await.with_defaults(options.clone()).unwrap();
    let election = election(&env, &locker, options.clone());
    let mut watch = election.watch();
    assert!(told(&env, &mut watch).await.is_none());
    env.harness().pause().await.unwrap();
    let troubled = async {
        // Its own words again, after it has said so once.
        [watch.changed().await, watch.changed().await]
    };
    let troubled = timeout(options.ttl * 6 + soon(), troubled).await;
    env.harness().resume().await.unwrap();
    for troubled in troubled.expect("C13: a watch hides that the store is silent") {
        let error = troubled.expect_err("C13: news of a silent store");
        assert!(!error.is_temporary(), "{error:?}");
        assert_eq!(error.operation(), Some("watch"), "{error}");
    }
    let leadership = within(soon(), "a leader", election.campaign("a")).await.unwrap();
    let leader = within(soon(), "the news of a change", watch.changed()).await.unwrap();
    assert_eq!(leader.map(|leader| leader.term), Some(leadership.term()));
    assert_eq!(leadership.resign().await.unwrap(), Released::Freed);
}

async fn c14_election_a_foreign_holder_is_no_leader_of_ours(env: Env) {
    let (a, b) = (env.locker().await, env.locker().await);
    let (candidate, observer) = (election(&env, &a, long()), election(&env, &b, long()));
    let mut watch = observer.watch();
    env.harness().foreign_lock(candidate.name(), ms(30_000)).await.unwrap();
    assert!(candidate.try_campaign("a").await.unwrap().is_none(), "C1: elected beside another program");
    assert!(observer.leader().await.unwrap().is_none());
    assert!(told(&env, &mut watch).await.is_none());
    assert_eq!(observer.inspect().await.unwrap().holders.len(), 1);
    assert!(env.harness().foreign_unlock(candidate.name()).await.unwrap());
    let leadership = within(env.poll(), "a leader", candidate.campaign("a")).await.unwrap();
    assert_eq!(told(&env, &mut watch).await.map(|leader| leader.term), Some(leadership.term()));
    assert_eq!(leadership.resign().await.unwrap(), Released::Freed);
}
