//! Tests elections over a store that obeys the test: lagging replicas, outages, and how often
//! watches ask.

use std::{sync::Arc, time::Duration};

use tokio::time::{self, Instant};

use super::{Election, Leader, LeaderWatch};
use crate::{
    clock::Clock,
    error::{ErrorKind, ErrorStatus},
    fake::{Fake, Fault, Kind, Op, Store},
    locker::Locker,
    options::LockOptions,
    spi::{Holder, Inspection, Mode},
    token::{FencingToken, OwnerId},
};

const TTL: Duration = Duration::from_secs(30);

/// A store that shows the leader that the test orders.
struct Stage {
    store: Arc<Store>,
    look_takes: Duration,
}

impl Stage {
    fn new(look_takes: Duration) -> Self {
        let stage = Self { store: Store::new(0), look_takes };
        stage.show(None);
        stage
    }

    fn show(&self, term: impl Into<Option<u64>>) {
        let holder = term.into().map(|term| {
            let owner = OwnerId::new(term.into());
            let holder = Holder::new(Mode::Exclusive).with_grant(owner, FencingToken::new(term));
            holder.with_label(format!("leader {term}"))
        });
        self.store.heal();
        self.store.show(Inspection::new(holder.into_iter().collect(), None));
        self.store.always(Op::Inspect, Fault::SlowReply(self.look_takes));
    }

    fn fail(&self, kind: ErrorKind) {
        self.store.always(Op::Attempt, Fault::Fail(kind));
        self.store.always(Op::Inspect, Fault::Fail(kind));
    }

    /// Returns the number of looks at the store since the last call of this method.
    fn looks(&self) -> usize {
        let looks = self.store.count(Op::Inspect);
        self.store.forget_log();
        looks
    }

    fn backend(&self) -> Fake {
        Fake::new(Arc::clone(&self.store), Kind::Memory)
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn election(stage: &Stage) -> Election {
    let locker = Locker::builder(Arc::new(stage.backend())).clock(Clock::Tokio).build();
    locker.election("e").unwrap().with_options(LockOptions::new().with_ttl(TTL)).unwrap()
}

async fn told(watch: &mut LeaderWatch) -> Option<u64> {
    let leader = watch.changed().await.unwrap();
    leader.map(|leader: Leader| leader.term.get())
}

#[tokio::test(start_paused = true)]
async fn c4_answers_of_a_lagging_replica_are_ignored_and_lost_data_is_reported() {
    let stage = Stage::new(ms(1));
    let mut watch = election(&stage).watch();
    stage.show(7);
    assert_eq!(told(&mut watch).await, Some(7));
    stage.show(6);
    time::timeout(TTL / 2, watch.changed()).await.expect_err("news of the past");
    assert_eq!(watch.current().map(|leader| leader.term.get()), Some(7));
    let error = watch.changed().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Persistent));
    assert!(error.to_string().contains("the term 6 after the term 7"), "{error}");
    stage.show(None);
    assert_eq!(told(&mut watch).await, None);
    stage.show(5);
    time::timeout(TTL / 2, watch.changed()).await.expect_err("news of the past");
    stage.show(8);
    assert_eq!(told(&mut watch).await, Some(8));
}

/// Checks the documentation of [`LeaderWatch::changed`] about a replica that lags behind. Such a
/// replica may report no leader before it reports the present leader, and also between two looks at
/// that leader.
#[tokio::test(start_paused = true)]
async fn c4_a_watch_reports_each_vacancy_and_no_older_term() {
    let stage = Stage::new(ms(1));
    let mut watch = election(&stage).watch();
    let mut terms = Vec::new();
    for shown in [None, Some(7), None, Some(7), None, Some(8), None, Some(8)] {
        stage.show(shown);
        let heard = time::timeout(TTL / 2, told(&mut watch)).await.expect("it is news");
        assert_eq!(heard, shown, "after {terms:?}");
        assert_eq!(watch.current().map(|leader| leader.term.get()), shown);
        terms.extend(heard);
        if !terms.is_empty() {
            stage.show(6);
            time::timeout(TTL / 2, watch.changed()).await.expect_err("news of the past");
        }
    }
    assert!(terms.is_sorted(), "{terms:?}");
}

#[tokio::test(start_paused = true)]
async fn c8_a_change_is_reported_without_a_poll_even_during_an_inspection() {
    let stage = Stage::new(ms(20));
    let mut watch = election(&stage).watch().with_interval(TTL);
    stage.show(1);
    assert_eq!(told(&mut watch).await, Some(1));
    let start = Instant::now();
    let change = async {
        time::sleep(ms(100)).await;
        stage.show(2);
        stage.store.signal.notify_waiters();
    };
    assert_eq!(tokio::join!(told(&mut watch), change).0, Some(2));
    // The look has begun, and its answer is already fixed.
    let change = async {
        stage.store.signal.notify_waiters();
        time::sleep(ms(10)).await;
        stage.show(3);
        stage.store.signal.notify_waiters();
    };
    assert_eq!(tokio::join!(told(&mut watch), change).0, Some(3));
    assert!(start.elapsed() < ms(200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn endless_wake_ups_do_not_each_cause_a_request() {
    let stage = Stage::new(ms(0));
    let mut watch = election(&stage).watch();
    assert_eq!(told(&mut watch).await, None);
    let waking = async {
        loop {
            stage.store.signal.notify_waiters();
            tokio::task::yield_now().await;
            time::sleep(ms(1)).await;
        }
    };
    stage.looks();
    tokio::select! {
        news = time::timeout(ms(1_000), watch.changed()) => assert!(news.is_err()),
        () = waking => {}
    }
    assert!((100..=210).contains(&stage.looks()));
}

#[tokio::test(start_paused = true)]
async fn many_watches_share_their_requests() {
    let stage = Stage::new(ms(1));
    let election = election(&stage);
    let watches: Vec<_> = (0..50).map(|_| election.clone().watch()).collect();
    let all = watches.into_iter().map(|mut watch| async move {
        assert_eq!(told(&mut watch).await, None);
        told(&mut watch).await
    });
    let change = async {
        time::sleep(ms(10_000)).await;
        stage.show(1);
    };
    let (told, ()) = tokio::join!(futures_util::future::join_all(all), change);
    assert_eq!(told, [Some(1); 50]);
    let looks = stage.looks();
    // The embedded store is polled every 200 ms, with a jitter of a quarter.
    assert!((40..=68).contains(&looks), "{looks} looks in 10 s");
}

#[tokio::test(start_paused = true)]
async fn c13_a_failing_store_is_asked_less_often_and_reported_after_a_ttl() {
    let stage = Stage::new(ms(1));
    let mut watch = election(&stage).watch();
    stage.show(1);
    assert_eq!(told(&mut watch).await, Some(1));
    stage.looks();
    stage.fail(ErrorKind::Unavailable);
    for _ in 0..2 {
        let start = Instant::now();
        let error = watch.changed().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.status()),
            (ErrorKind::Unavailable, ErrorStatus::Persistent)
        );
        assert!((TTL..TTL + ms(2_500)).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert!((24..50).contains(&stage.looks()));
    }
    stage.show(2);
    let start = Instant::now();
    assert_eq!(told(&mut watch).await, Some(2));
    assert!(start.elapsed() < ms(1_300), "{:?}", start.elapsed());
    stage.fail(ErrorKind::PermissionDenied);
    let start = Instant::now();
    let error = watch.changed().await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::PermissionDenied, Some("watch")));
    assert!(start.elapsed() < ms(400), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_old_unfetched_answer_is_not_used() {
    let stage = Stage::new(ms(100));
    let mut watch = election(&stage).watch();
    stage.show(1);
    time::timeout(ms(50), watch.changed()).await.expect_err("the look takes longer");
    time::sleep(TTL).await;
    stage.show(2);
    assert_eq!(told(&mut watch).await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn lead_outlasts_an_outage_and_returns_permanent_errors() {
    let stage = Stage::new(ms(1));
    let election = election(&stage);
    stage.fail(ErrorKind::Unavailable);
    let start = Instant::now();
    let recover = async {
        time::sleep(TTL * 3).await;
        stage.show(None);
    };
    let (led, ()) = tokio::join!(election.lead("a", async |hold| hold.is_held()), recover);
    assert!(led.unwrap());
    assert!((TTL * 3..TTL * 3 + ms(1_300)).contains(&start.elapsed()), "{:?}", start.elapsed());
    stage.fail(ErrorKind::PermissionDenied);
    let refused = election.lead("a", async |_| ()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn work_after_the_end_of_the_lease_is_repeated() {
    let stage = Stage::new(ms(1));
    let election = election(&stage);
    let mut terms = Vec::new();
    let led = election.lead("a", |hold| {
        terms.push(hold.fencing_token());
        let count = terms.len();
        async move {
            if count == 1 {
                // Neither a renewal nor the loss signal runs meanwhile.
                time::advance(TTL * 2).await;
            }
            count
        }
    });
    assert_eq!(led.await.unwrap(), 2);
    assert!(terms[0] < terms[1]);
}

/// The store takes the leadership away, and neither the loss signal nor a renewal notices it.
#[tokio::test(start_paused = true)]
async fn work_of_an_evicted_leader_is_repeated() {
    let store = Store::new(0);
    let backend = Arc::new(Fake::new(Arc::clone(&store), Kind::Memory));
    let locker = Locker::builder(backend).clock(Clock::Tokio).build();
    let election = locker.election("e").unwrap();
    let mut terms = Vec::new();
    let led = election.lead("a", |hold| {
        terms.push(hold.fencing_token());
        if terms.len() == 1 {
            store.evict_all();
        }
        std::future::ready(terms.len())
    });
    assert_eq!(led.await.unwrap(), 2);
    assert!(terms[0] < terms[1]);
}

#[test]
fn watches_and_leaderships_can_be_sent() {
    fn sent<T: Send + Sync>() {}
    sent::<LeaderWatch>();
    sent::<super::Leadership>();
    fn spawned(_: impl Future + Send) {}
    let election = Locker::memory().election("e").unwrap();
    spawned(election.campaign("a"));
    spawned(election.lead("a", |_| async {}));
    spawned(election.watch().changed());
}

#[tokio::test(start_paused = true)]
async fn c13_an_interval_may_be_for_ever() {
    let stage = Stage::new(Duration::ZERO);
    stage.show(3);
    let election = election(&stage);
    let mut watch = election.watch().with_interval(Duration::MAX);
    assert_eq!(watch.changed().await.unwrap().unwrap().term, FencingToken::new(3));
    time::timeout(Duration::from_secs(3_600), watch.changed()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn c4_terms_do_not_fall_with_another_interval() {
    let stage = Stage::new(Duration::ZERO);
    stage.show(3);
    let election = election(&stage);
    let mut watch = election.watch();
    watch.changed().await.unwrap();
    let mut watch = watch.with_interval(Duration::from_millis(10));
    stage.show(2);
    time::timeout(Duration::from_secs(1), watch.changed())
        .await
        .expect_err("a replica lags behind");
}

/// A look that is cut by the end of its runtime waits for a background task that never runs again.
#[test]
fn c6_a_watch_cut_by_the_end_of_its_runtime_keeps_nothing() {
    for _ in 0..20 {
        let stage = Stage::new(ms(200));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let locker = Locker::new(stage.backend());
        let mut watch = locker.election("e").unwrap().watch();
        runtime.spawn(async move { drop(watch.changed().await) });
        // `looks` would forget a look that begins while it counts.
        while stage.store.count(Op::Inspect) == 0 {
            std::thread::yield_now();
        }
        drop(locker);
        drop(runtime);
        assert_eq!(Arc::strong_count(&stage.store), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c13_trouble_that_was_seen_long_ago_is_not_the_trouble_of_now() {
    let stage = Stage::new(ms(1));
    let mut watch = election(&stage).watch();
    stage.fail(ErrorKind::Unavailable);
    time::timeout(ms(500), watch.changed()).await.expect_err("the first errors are not told");
    time::sleep(TTL * 100).await;
    let start = Instant::now();
    assert_eq!(watch.changed().await.unwrap_err().status(), ErrorStatus::Persistent);
    assert!(start.elapsed() >= TTL, "told after {:?}", start.elapsed());
}
