//! Elections: one leader at a time, whose value and term all observers see.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use lockkit_core::{
    Election, Error, ErrorKind, FencingToken, Hold, Leader, LeaderWatch, LockOptions, Locker, Lost,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, SHORT, is_refused, long},
    harness::Hook,
    judge::{Loss, Turn, judged, loss_of},
    lock::in_time,
    wait::{STEP, at_once, eventually, slack, soon, within},
    witness::{Stay, Witness},
};

pub(super) const NEEDS: Needs = Needs::MUTEX.ability(Ability::Labels);

cases! {
    c1_election_one_leads_at_a_time: NEEDS,
        "candidates that do not exclude each other";
    c12_election_candidates_lead_in_their_order: NEEDS.fair(),
        "candidates that race for a free leadership";
    c14_election_others_see_the_value_and_the_term: NEEDS,
        "a value that appears after the leadership starts, or stays after it ends";
    c13_election_the_value_is_checked_and_kept_as_it_is: NEEDS,
        "a value that breaks a record or a log, or that a store truncates or changes";
    c4_election_terms_rise_from_leader_to_leader: NEEDS,
        "a term that restarts after a leader resigned, was dropped, or was evicted";
    c7_election_a_resignation_hands_over: NEEDS,
        "candidates that wait for the lease of a leader that resigned";
    c3_election_a_lost_leadership_ends_the_work_and_is_fought_for_again: NEEDS.lease(),
        "work that continues after the loss, or that does not start again";
    c7_election_work_that_is_done_ends_the_leadership: NEEDS,
        "a helper that still leads after its work, or does not return the output";
    c6_election_a_dropped_campaign_leaves_nothing: NEEDS,
        "a dropped candidate that is elected";
    c6_election_a_shutdown_ends_campaigns_and_watches: NEEDS,
        "a watch or a candidate that hangs after the shutdown of its locker";
    c14_election_a_foreign_holder_is_no_leader_of_ours: NEEDS.hook(Hook::Foreign),
        "a foreign leader without a term, or a second leader beside it";
}

pub(super) fn election(env: &Env, locker: &Locker, options: LockOptions) -> Election {
    let election = locker.election("e").unwrap().with_options(options).unwrap();
    env.will_be_free(election.name());
    election
}

/// How often a watch looks by itself, unless it has another interval.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long a leader must remain in office so that all watches see it.
pub(super) fn settled(env: &Env) -> Duration {
    INTERVAL.min(env.descriptor().poll.max).mul_f64(1.25)
}

/// The next news of a watch, which must come soon.
pub(super) async fn told(env: &Env, watch: &mut LeaderWatch) -> Option<Leader> {
    within(settled(env), "the news of a change", watch.changed()).await.unwrap()
}

pub(super) fn value(leader: &Option<Leader>) -> Option<&str> {
    leader.as_ref().map(|leader| leader.value.as_str())
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
                let mut stay = Stay::begin(&leadership.hold());
                let leader = election.leader().await.unwrap().expect("somebody leads");
                assert_eq!((leader.term, leader.owner), (leadership.term(), leadership.owner()));
                assert!(stay.look(&leadership.hold()) && leadership.is_leader());
                witness.record(stay);
                leadership.resign().await.unwrap();
            }
        });
    }
    within(soon() * 4, "the end of all terms", candidates.join_all()).await;
    assert_eq!(witness.verify(), 24);
}

async fn c12_election_candidates_lead_in_their_order(env: Env) {
    let a = env.locker().await.with_process_gate(false);
    let b = env.locker().await.with_process_gate(false);
    let first = election(&env, &a, long());
    let leading = first.try_campaign("first").await.unwrap().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut candidates = JoinSet::new();
    for n in 0..5 {
        let election = election(&env, [&a, &b][n % 2], long());
        let order = Arc::clone(&order);
        candidates.spawn(async move {
            let leadership = election.campaign("one of many").await.unwrap();
            order.lock().unwrap_or_else(PoisonError::into_inner).push(n);
            leadership.resign().await.unwrap();
        });
        env.queued(n + 1, async || first.inspect().await).await;
    }
    leading.resign().await.unwrap();
    within(soon(), "the end of all terms", candidates.join_all()).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4], "C12: not in the order of their campaigns");
}

async fn c14_election_others_see_the_value_and_the_term(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let election_a = election(&env, &a, long());
    let election_b = election(&env, &b, long());
    assert!(election_b.leader().await.unwrap().is_none());
    let leadership = election_a.try_campaign("10.0.0.7:8080").await.unwrap().expect("nobody leads");
    assert!(leadership.is_leader());
    assert_eq!(leadership.value(), "10.0.0.7:8080");
    let leader = election_b.leader().await.unwrap().expect("somebody leads");
    assert_eq!(leader.value, "10.0.0.7:8080");
    assert_eq!((leader.term, leader.owner), (leadership.term(), leadership.owner()));
    assert!(
        leader.remaining.is_none_or(|left| left <= long().ttl() && !left.is_zero()),
        "{leader:?}"
    );
    assert!(election_b.try_campaign("10.0.0.8:8080").await.unwrap().is_none(), "C1: two leaders");
    is_refused(async || {
        in_time(election_b.campaign_timeout("10.0.0.8:8080", env.patience()).await)
    })
    .await;
    assert_eq!(election_a.leader().await.unwrap().unwrap().term, leadership.term());
    // An election and a mutex of the same name are independent.
    let mutex = env.lock(&a, "e", long()).try_lock().await.unwrap().expect("it is free");
    leadership.resign().await.unwrap();
    assert!(election_b.leader().await.unwrap().is_none());
    mutex.release().await.unwrap();
}

async fn c13_election_the_value_is_checked_and_kept_as_it_is(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let observer = election(&env, &b, long());
    for bad in ["", &*"x".repeat(256), "a\nb", "a\0b", "\u{7f}", "\u{85}"] {
        let refused = [
            candidate.campaign(bad).await.map(drop),
            candidate.try_campaign(bad).await.map(drop),
            candidate.campaign_timeout(bad, env.patience()).await.map(drop),
            candidate.lead(bad, async |_| ()).await,
        ];
        for refused in refused {
            let error = refused.expect_err("C13: a value that can't be kept was taken");
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
            assert!(error.to_string().contains("value"), "{error}");
        }
    }
    for good in [
        "7",
        " ",
        " a b ",
        "'; --",
        "\\",
        "\u{1f512}",
        "granted",
        &*"é".repeat(127),
        &*"x".repeat(255),
    ] {
        let leadership = candidate.try_campaign(good).await.unwrap().expect("nobody leads");
        let leader = observer.leader().await.unwrap().expect("somebody leads");
        assert_eq!(leader.value, good);
        leadership.resign().await.unwrap();
    }
}

async fn c4_election_terms_rise_from_leader_to_leader(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
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
        let next = within(
            env.poll() + slack(),
            "the next leader",
            election(&env, &b, long()).campaign("b"),
        )
        .await;
        let next = next.unwrap();
        risen(next.term());
        next.resign().await.unwrap();
        drop(leadership);
    }
}

async fn c7_election_a_resignation_hands_over(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let leading =
        election(&env, &a, long()).try_campaign("a").await.unwrap().expect("nobody leads");
    let watch = election(&env, &b, long());
    let candidate = watch.clone();
    let waiting = tokio::spawn(async move { candidate.campaign("b").await });
    env.queued(1, async || watch.inspect().await).await;
    assert!(!waiting.is_finished(), "C1: two leaders");
    let term = leading.term();
    leading.resign().await.unwrap();
    let next = within(env.poll() + slack(), "the next leader", waiting).await.unwrap().unwrap();
    assert!(next.term() > term);
    let observed = election(&env, &a, long()).leader().await.unwrap().expect("somebody leads");
    assert_eq!((observed.value.as_str(), observed.term), ("b", next.term()));
    next.resign().await.unwrap();
}

/// Counts its values that live.
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
    judged(&env, SHORT, async |turn| lost_and_fought_for_again(&env, turn).await).await;
}

/// How many terms the work of a test has. It ends in the last one.
const TERMS: usize = 3;

/// The terms that were begun, each with its loss signal.
type Begun = Arc<Mutex<Vec<(FencingToken, Lost)>>>;

/// Leads for [`TERMS`] terms. The work of all but the last term ends only by a loss.
fn lead_again_and_again(
    election: &Election,
    living: &Arc<AtomicUsize>,
    terms: &Begun,
) -> JoinHandle<Result<usize, Error>> {
    let election = election.clone();
    let living = Arc::clone(living);
    let terms = Arc::clone(terms);
    tokio::spawn(async move {
        let work = |hold: Hold| {
            let alive = Living::new(&living);
            let term = hold.fencing_token();
            let lost = hold.lost();
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
        election.lead("again and again", work).await
    })
}

async fn lost_and_fought_for_again(env: &Env, turn: &Turn<'_>) -> Result<(), Loss> {
    let locker = turn.locker().await;
    let ttl = turn.ttl;
    let election = election(env, &locker, turn.renewed());
    let living = Arc::<AtomicUsize>::default();
    let terms = Begun::default();
    let leading = lead_again_and_again(&election, &living, &terms);
    for n in 1..TERMS {
        eventually(soon(), async || match terms.lock().unwrap().len() {
            count if count >= n || leading.is_finished() => Ok(()),
            count => Err(format!("{count} terms were begun, not {n}")),
        })
        .await;
        let term = terms.lock().unwrap().get(n - 1).cloned();
        let Some((_, lost)) = term.filter(|(_, lost)| !lost.is_lost()) else {
            leading.abort();
            return Err(format!("C10: term {n} was lost by itself, or never won"));
        };
        env.harness().expire_now(election.name()).await.unwrap();
        within(ttl, "the loss of the leadership", lost.wait()).await;
        assert!(lost.is_lost());
    }
    let output = within(ttl + env.poll(), "the last term", leading).await.unwrap();
    let output = output.map_err(loss_of)?;
    assert_eq!(output, TERMS);
    assert_eq!(living.load(SeqCst), 0);
    assert!(
        terms.lock().unwrap().windows(2).all(|pair| pair[0].0 < pair[1].0),
        "C4: terms must rise"
    );
    assert!(
        election.leader().await.unwrap().is_none(),
        "C7: it leads on although the work is done"
    );
    Ok(())
}

async fn c7_election_work_that_is_done_ends_the_leadership(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let observer = election(&env, &b, long());
    for n in 0..3 {
        let done = candidate
            .lead("worker", async |hold| {
                let leader = observer.leader().await.unwrap().expect("somebody leads");
                assert_eq!((leader.term, leader.value.as_str()), (hold.fencing_token(), "worker"));
                assert!(hold.is_held());
                n
            })
            .await;
        assert_eq!(done.unwrap(), n);
        assert!(
            observer.leader().await.unwrap().is_none(),
            "C7: it leads on although the work is done"
        );
    }
}

async fn c6_election_a_dropped_campaign_leaves_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let other = election(&env, &b, long());
    let leading = candidate.try_campaign("a").await.unwrap().expect("nobody leads");
    for wait in env.delays() {
        drop(timeout(wait, other.campaign("b")).await);
        drop(
            timeout(wait, other.lead("b", async |_| panic!("C6: a dropped candidate leads"))).await,
        );
    }
    env.queued(0, async || candidate.inspect().await).await;
    leading.resign().await.unwrap();
    for wait in env.delays() {
        drop(timeout(wait, other.campaign("b")).await);
        drop(timeout(wait, other.lead("b", async |_| std::future::pending::<()>().await)).await);
    }
    eventually(soon(), async || match candidate.leader().await.unwrap() {
        None => Ok(()),
        leader => Err(format!("C6: {leader:?} was dropped")),
    })
    .await;
    let leading = within(env.poll() + slack(), "a leader", candidate.campaign("a")).await.unwrap();
    leading.resign().await.unwrap();
}

async fn c6_election_a_shutdown_ends_campaigns_and_watches(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let leading =
        election(&env, &a, long()).try_campaign("a").await.unwrap().expect("nobody leads");
    let election = election(&env, &b, long());
    let mut watch = election.watch();
    assert!(told(&env, &mut watch).await.is_some());
    let campaign = election.clone();
    let lead = election.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { campaign.campaign("b").await.map(drop) });
    waiting.spawn(async move { lead.lead("b", |_| async {}).await });
    waiting.spawn(async move { watch.changed().await.map(drop) });
    // The calls of these watches are dropped while they ask the store.
    let mut idle: Vec<_> =
        (1..5).map(|n| election.watch().with_interval(env.moment() / n)).collect();
    for (watch, steps) in idle.iter_mut().zip([0, 1, 2, 5]) {
        drop(timeout(STEP * steps, watch.changed()).await);
    }
    env.pause().await;
    let shutdown = tokio::spawn(async move { b.shutdown().await });
    for ended in at_once("the end of what waits", waiting.join_all()).await {
        assert_eq!(ended.expect_err("the locker was shut down").kind(), ErrorKind::Closed);
    }
    within(soon(), "the shutdown", shutdown).await.unwrap().unwrap();
    drop(idle);
    let closed = election.watch().changed().await.expect_err("the locker was shut down");
    assert_eq!(closed.kind(), ErrorKind::Closed);
    assert_eq!(
        election.leader().await.expect_err("the locker was shut down").kind(),
        ErrorKind::Closed
    );
    leading.resign().await.unwrap();
}

async fn c14_election_a_foreign_holder_is_no_leader_of_ours(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let candidate = election(&env, &a, long());
    let observer = election(&env, &b, long());
    let mut watch = observer.watch();
    env.harness().foreign_lock(candidate.name(), long().ttl()).await.unwrap();
    assert!(
        candidate.try_campaign("a").await.unwrap().is_none(),
        "C1: elected beside another program"
    );
    assert!(observer.leader().await.unwrap().is_none());
    assert!(told(&env, &mut watch).await.is_none());
    assert_eq!(observer.inspect().await.unwrap().holders.len(), 1);
    assert!(env.harness().foreign_unlock(candidate.name()).await.unwrap());
    let leadership =
        within(env.poll() + slack(), "a leader", candidate.campaign("a")).await.unwrap();
    assert_eq!(told(&env, &mut watch).await.map(|leader| leader.term), Some(leadership.term()));
    leadership.resign().await.unwrap();
}
