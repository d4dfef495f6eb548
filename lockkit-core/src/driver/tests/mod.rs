//! Tests of the driver over fake stores. Almost every test ends with [`World::clean`], which checks
//! that nothing is left anywhere.

mod attachments;
mod callers;
mod cancellation;
mod churn;
mod clean_up;
mod expiring;
mod extend;
mod gate;
mod gate_edges;
mod gate_faults;
mod gate_sharing;
mod leak;
mod loss;
mod manual;
mod max_hold;
mod moved;
mod multi;
mod notes;
mod observing;
mod outside;
mod panics;
mod reentrant;
mod release;
mod renewal;
mod renewal_pacing;
mod requests;
mod runtimes;
mod shutdown;
mod shutdown_races;
mod tickets;
mod tokens;
mod traits;
mod trouble;
mod view;
mod waiting;
mod wakes;

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinSet, time};

use crate::{
    Clock, Locker, LockerBuilder, Mutex,
    driver::{agenda::Agenda, request::Request},
    error::ErrorKind,
    fake::{Fake, Kind, Store},
    options::{CheckedOptions, LockOptions, Renewal},
    spi::Mode,
};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const TTL: Duration = secs(3);

/// The ttl is 3 s, so op_timeout is 1 s.
fn options() -> LockOptions {
    LockOptions::new().with_ttl(TTL)
}

fn manual() -> LockOptions {
    options().with_renewal(Renewal::Manual)
}

fn checked(options: LockOptions) -> Arc<CheckedOptions> {
    Arc::new(CheckedOptions::new(options).unwrap())
}

/// A fake store with 2 ms of latency, and a locker over it.
struct World {
    store: Arc<Store>,
    locker: Locker,
}

impl World {
    fn new(kind: Kind) -> Self {
        Self::built(kind, |builder| builder)
    }

    fn tuned(kind: Kind, tune: impl FnOnce(Fake) -> Fake) -> Self {
        Self::made(kind, tune, |builder| builder)
    }

    fn built(kind: Kind, choose: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Self {
        Self::made(kind, |fake| fake, choose)
    }

    fn made(
        kind: Kind,
        tune: impl FnOnce(Fake) -> Fake,
        choose: impl FnOnce(LockerBuilder) -> LockerBuilder,
    ) -> Self {
        let store = Store::new(0);
        store.set_latency(ms(2));
        let fake = Arc::new(tune(Fake::new(Arc::clone(&store), kind)));
        let locker = choose(Locker::builder(fake).clock(Clock::Tokio)).build();
        // Each task talks to the store by itself, except in the tests of the gate.
        let locker = locker.with_defaults(options()).unwrap().with_process_gate(false);
        Self { store, locker }
    }

    /// With a process gate.
    fn gated(kind: Kind) -> Self {
        let mut world = Self::new(kind);
        world.locker = world.locker.with_process_gate(true);
        world
    }

    /// With a process gate, over a store that can transfer the lock.
    fn transferring() -> Self {
        Self::transferring_as(|builder| builder)
    }

    fn transferring_as(choose: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Self {
        let mut world = Self::made(Kind::Ttl, Fake::with_transfer, choose);
        world.locker = world.locker.with_process_gate(true);
        world
    }

    fn mutex(&self, name: &str) -> Mutex {
        self.locker.mutex(name).unwrap()
    }

    fn mutex_with(&self, name: &str, options: LockOptions) -> Mutex {
        self.mutex(name).with_options(options).unwrap()
    }

    /// A request for a hold without a guard.
    fn request<'a>(&'a self, mutex: &'a Mutex, options: &'a Arc<CheckedOptions>) -> Request<'a> {
        Request {
            backend: &*self.locker.backend,
            keeper: &self.locker.keeper,
            gated: false,
            name: mutex.name(),
            mode: Mode::Exclusive,
            options,
            resumes: None,
        }
    }

    fn agenda(&self) -> Arc<Agenda> {
        Arc::clone(self.locker.keeper.agenda())
    }

    /// Lets twenty tasks ask for one lock. Each must fail with `expected`; returns how long all of
    /// them took.
    async fn tells_a_crowd(&self, expected: ErrorKind) -> Duration {
        let start = time::Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let mutex = self.mutex("a");
            tasks.spawn(async move { mutex.lock().await.unwrap_err().kind() });
        }
        for told in tasks.join_all().await {
            assert_eq!(told, expected);
        }
        start.elapsed()
    }

    /// How many renewals are scheduled, and how many cleanups are left.
    fn sizes(&self) -> (usize, usize) {
        self.locker.keeper.agenda().sizes()
    }

    /// Checks that after a while nothing is left in the store, in the agenda and on the runtime.
    async fn clean(self, what: &str) {
        let virtual_time = self.locker.keeper.locker().clock == Clock::Tokio;
        // On the real clock the wait ends as soon as all is clean, because a busy machine may need
        // long.
        let stop = time::Instant::now() + if virtual_time { ms(2_500) } else { secs(60) };
        while time::Instant::now() < stop && (virtual_time || !self.is_clean()) {
            time::sleep(ms(5)).await;
        }
        self.clean_now(what).await;
    }

    fn is_clean(&self) -> bool {
        let left = self.store.holders() + self.store.queued() + self.store.live_claims();
        // A claim is counted until a moment after its end.
        let counted = self.locker.keeper.locker().live_claims();
        left == 0 && counted == 0 && self.sizes() == (0, 0)
    }

    async fn clean_now(self, what: &str) {
        assert_eq!(self.store.holders(), 0, "holders, {what}");
        assert_eq!(self.store.queued(), 0, "queue entries and owners to wake, {what}");
        assert_eq!(self.store.live_claims(), 0, "claims, {what}");
        assert_eq!(self.locker.keeper.locker().live_claims(), 0, "claims as counted, {what}");
        assert_eq!(self.sizes(), (0, 0), "agenda, {what}");
        assert_eq!(self.locker.keeper.agenda().gates.len(), 0, "names with a gate, {what}");
        let Self { store, locker } = self;
        drop(locker);
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let stop = time::Instant::now() + secs(60);
        while tasks() > 0 && time::Instant::now() < stop {
            time::sleep(ms(1)).await;
        }
        assert_eq!(tasks(), 0, "tasks, {what}");
        assert_eq!(Arc::strong_count(&store), 1, "somebody still has the store, {what}");
    }
}
