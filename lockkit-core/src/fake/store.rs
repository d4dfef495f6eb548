//! Defines the store behind the fakes: a memory store, a log of requests, and the orders of the
//! test.

use std::{
    collections::{HashMap, HashSet},
    future,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

use super::orders::{Fault, Op, Orders};
use crate::{
    clock::Clock,
    error::{Error, ErrorKind, Result},
    memory::Memory,
    name::{Kind, LockName},
    options::MAX_TTL,
    spi::Released,
    spi::{
        Admin as _, Attempt, Backend as _, Caller, Claim, ClaimSpec, Inspection, Lease, Mode,
        QueuePolicy, Wait, Wake, Wakeable,
    },
    token::OwnerId,
};

#[derive(Debug)]
pub struct Store {
    pub memory: Memory,
    /// Woken at each release.
    pub signal: Notify,
    /// The number of claim objects that live now.
    pub(super) claims: AtomicUsize,
    /// Attempts that wait inside the store now.
    waiting: AtomicUsize,
    /// The callers of all claims so far.
    pub callers: Mutex<Vec<Caller>>,
    /// The queue policy of each transfer.
    pub policies: Mutex<Vec<QueuePolicy>>,
    /// The [`Wake`] of the claim that got the last transfer.
    pub(super) successor: Mutex<Option<Wake>>,
    /// How many claim objects lived at each close of the backend.
    pub claims_at_close: Mutex<Vec<usize>>,
    /// All owners that have or want a lock in a store that wakes them.
    wakes: Mutex<HashMap<OwnerId, Wake>>,
    pub(super) orders: Mutex<Orders>,
    log: Mutex<Vec<(Op, OwnerId, Instant)>>,
}

impl Store {
    /// Makes a store that gives tokens larger than `last_token`, and counts leases on tokio's
    /// clock.
    pub fn new(last_token: u64) -> Arc<Self> {
        Self::over(Memory::with_tokens_after(Clock::Tokio, last_token))
    }

    /// Makes another store over the same memory store, with its own orders and its own log.
    pub fn over(memory: Memory) -> Arc<Self> {
        Arc::new(Self {
            memory,
            signal: Notify::new(),
            claims: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            callers: Mutex::default(),
            policies: Mutex::default(),
            successor: Mutex::default(),
            claims_at_close: Mutex::default(),
            wakes: Mutex::default(),
            orders: Mutex::default(),
            log: Mutex::default(),
        })
    }

    pub fn set_latency(&self, latency: Duration) {
        lock(&self.orders).latency = latency;
    }

    /// Gives each of the next requests of this sort one of these faults.
    pub fn once(&self, op: Op, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.orders).once.entry(op).or_default().extend(faults);
    }

    /// Gives all requests of this sort this fault.
    pub fn always(&self, op: Op, fault: Fault) {
        lock(&self.orders).always.insert(op, fault);
    }

    /// Gives all requests this fault, and removes all faults that were ordered before.
    pub fn all(&self, fault: Fault) {
        self.heal();
        lock(&self.orders).everything = Some(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        let mut orders = lock(&self.orders);
        orders.once.clear();
        orders.always.clear();
        orders.everything = None;
        orders.dead_shard = false;
    }

    /// Lets renewals of locks whose name starts with "dead" get no answer.
    pub fn kill_shard(&self) {
        lock(&self.orders).dead_shard = true;
    }

    /// Sets the lease that grants and renewals report instead of the real one.
    pub fn set_lease(&self, lease: Lease) {
        lock(&self.orders).lease = Some(lease);
    }

    /// Sets the answer that inspections give instead of the real one.
    pub fn show(&self, shown: Inspection) {
        lock(&self.orders).shown = Some(shown);
    }

    /// Plays one request: the way to the store, `request`, the way back, and the ordered fault.
    pub(super) async fn play<T>(
        &self,
        op: Op,
        owner: OwnerId,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.record(op, owner);
        let latency = lock(&self.orders).latency;
        let fault = lock(&self.orders).next(op);
        pause(latency / 2).await;
        match fault {
            Fault::Fail(kind) => return Err(Error::new(kind, "as ordered")),
            Fault::Hang => future::pending().await,
            Fault::Panic => panic!("as ordered"),
            Fault::SlowRequest(late) => pause(late).await,
            _ => {}
        }
        let answer = request.await;
        pause(latency / 2).await;
        match fault {
            Fault::LoseReply => {
                Err(Error::new(ErrorKind::Unavailable, "the reply is lost").with_outcome_unknown())
            }
            Fault::HangAfter => future::pending().await,
            Fault::PanicAfter => panic!("as ordered"),
            Fault::SlowReply(late) => {
                pause(late).await;
                answer
            }
            _ => answer,
        }
    }

    pub(super) fn record(&self, op: Op, owner: OwnerId) {
        lock(&self.log).push((op, owner, Instant::now()));
    }

    /// Counts an attempt that waits in the store, for as long as the returned value lives.
    pub(super) fn waits(&self) -> impl Drop {
        self.waiting.fetch_add(1, SeqCst);
        Waits(&self.waiting)
    }

    /// The number of attempts that wait inside the store now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// The requests so far, in order.
    pub fn ops(&self) -> Vec<Op> {
        lock(&self.log).iter().map(|entry| entry.0).collect()
    }

    /// The owners of the requests of this sort, in order.
    pub fn owners(&self, op: Op) -> Vec<OwnerId> {
        lock(&self.log).iter().filter(|entry| entry.0 == op).map(|entry| entry.1).collect()
    }

    /// The instants at which requests of this sort were sent.
    pub fn sent(&self, op: Op) -> Vec<Instant> {
        lock(&self.log).iter().filter(|entry| entry.0 == op).map(|entry| entry.2).collect()
    }

    pub fn count(&self, op: Op) -> usize {
        self.sent(op).len()
    }

    /// The number of renewals by owners that had sent their release before (C10).
    pub fn renewals_after_release(&self) -> usize {
        let log = lock(&self.log);
        let mut released = HashSet::new();
        let mut late = 0;
        for (op, owner, _) in log.iter() {
            match op {
                Op::Release => _ = released.insert(*owner),
                Op::KeepAlive => late += usize::from(released.contains(owner)),
                _ => {}
            }
        }
        late
    }

    pub fn forget_log(&self) {
        lock(&self.log).clear();
    }

    /// Takes a mutex for another owner, until the test frees it.
    pub fn take(&self, name: &str) -> OwnerId {
        let owner = OwnerId::random();
        let granted = self.claim(name, owner).attempt(Wait::No).now_or_never().unwrap();
        assert!(matches!(granted, Ok(Attempt::Granted(_))), "{granted:?}");
        owner
    }

    /// Releases the mutex of this owner, and wakes the next.
    pub fn leave(&self, name: &str, owner: OwnerId) {
        assert_eq!(
            self.claim(name, owner).release().now_or_never().unwrap().unwrap(),
            Released::Freed
        );
        self.forget(owner);
    }

    fn claim(&self, name: &str, owner: OwnerId) -> Box<dyn Claim> {
        let mut spec = ClaimSpec::new(mutex(name), owner, Mode::Exclusive, MAX_TTL, MAX_TTL);
        spec.clock = Clock::Tokio;
        self.memory.claim(spec).unwrap()
    }

    /// Removes an owner that has left, and lets the waiters look again.
    pub(super) fn forget(&self, owner: OwnerId) {
        self.ignore(owner);
        self.signal.notify_waiters();
    }

    /// Frees all locks, and wakes all owners that listen.
    pub fn evict_all(&self) {
        for name in self.names() {
            self.free(&name);
        }
        let wakes = std::mem::take(&mut *lock(&self.wakes));
        wakes.values().for_each(Wake::wake);
        self.signal.notify_waiters();
    }

    /// Frees one mutex, and wakes no owner.
    pub fn evict(&self, name: &str) {
        let wakes = std::mem::take(&mut *lock(&self.wakes));
        self.free(&mutex(name));
        lock(&self.wakes).extend(wakes);
    }

    fn free(&self, name: &LockName) {
        for holder in self.look(name).holders {
            let freed = self.memory.force_release(name, holder.token.unwrap());
            assert_eq!(freed.now_or_never().unwrap().unwrap(), Released::Freed);
        }
    }

    /// Lets the store wake the owner from now on, until the owner leaves.
    pub(super) fn listen(&self, spec: &ClaimSpec) {
        lock(&self.wakes).insert(spec.owner, spec.wake.clone());
    }

    pub(super) fn ignore(&self, owner: OwnerId) {
        lock(&self.wakes).remove(&owner);
    }

    /// Wakes all owners for no reason.
    pub fn wake_all(&self) {
        let wakes: Vec<_> = lock(&self.wakes).values().cloned().collect();
        wakes.iter().for_each(Wake::wake);
    }

    /// Wakes the claim that got the last transfer, for no reason.
    pub fn wake_successor(&self) {
        lock(&self.successor).iter().for_each(Wake::wake);
    }

    pub fn holder(&self, name: &str) -> Option<OwnerId> {
        self.look(&mutex(name)).holders.first()?.owner
    }

    pub fn holders(&self) -> usize {
        self.names().iter().map(|name| self.look(name).holders.len()).sum()
    }

    /// The number of places in the queues, plus the number of owners that the store wakes.
    pub fn queued(&self) -> usize {
        let waiters = self.names().iter().filter_map(|name| self.look(name).waiters).sum::<u64>();
        usize::try_from(waiters).unwrap() + lock(&self.wakes).len()
    }

    pub fn live_claims(&self) -> usize {
        self.claims.load(SeqCst)
    }

    fn names(&self) -> Vec<LockName> {
        let of = |kind| self.memory.names(kind, "").now_or_never().unwrap().unwrap();
        Kind::ALL.into_iter().flat_map(of).collect()
    }

    fn look(&self, name: &LockName) -> Inspection {
        self.memory.inspect(name).now_or_never().unwrap().unwrap()
    }
}

/// Receives the wake-ups of the memory store, and passes them on to an owner that listens.
#[derive(Debug)]
pub(super) struct WakeSignal {
    pub(super) store: Weak<Store>,
    pub(super) owner: OwnerId,
}

impl Wakeable for WakeSignal {
    fn wake(self: Arc<Self>) {
        let Some(store) = self.store.upgrade() else { return };
        let wake = lock(&store.wakes).get(&self.owner).cloned();
        wake.iter().for_each(Wake::wake);
    }
}

struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn mutex(name: &str) -> LockName {
    LockName::new(Kind::Mutex, name).unwrap()
}

/// Sleeps only if there is time to sleep, because even a sleep of no length needs a runtime.
async fn pause(time: Duration) {
    if !time.is_zero() {
        time::sleep(time).await;
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
