//! The store behind the fakes: rows, queues, hints, a log of requests, and faults to order.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{self, Instant},
};

use crate::{
    error::{Error, ErrorKind, Result},
    spi::{Caller, Hint, Lease, Outsiders, Released},
    token::OwnerId,
};

/// A request that a claim or a backend can make, or what else the core calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Attachment,
    Attempt,
    Changed,
    Close,
    Extend,
    ForceRelease,
    GuardDropped,
    Inspect,
    KeepAlive,
    Reissue,
    Release,
    WriteNote,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// It fails for certain, before anything is done.
    Fail(ErrorKind),
    /// It never comes back; nothing is done.
    Hang,
    /// It is applied, and never comes back.
    HangAfter,
    /// It is applied, and its reply is lost.
    LoseReply,
    /// It is applied, and answered late.
    Late(Duration),
    /// The backend has a bug.
    Panic,
    /// Its sender panics after it was applied.
    PanicAfter,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) owner: Option<OwnerId>,
    pub(super) until: Option<Instant>,
    pub(super) token: u64,
    pub(super) queue: VecDeque<OwnerId>,
    pub(super) hints: Vec<(OwnerId, Hint)>,
}

impl Row {
    pub(super) fn live_owner(&self) -> Option<OwnerId> {
        self.owner.filter(|_| self.until.is_none_or(|until| until > Instant::now()))
    }
}

#[derive(Debug, Default)]
struct Orders {
    latency: Duration,
    once: HashMap<Op, VecDeque<Fault>>,
    always: HashMap<Op, Fault>,
    dead_shard: bool,
    lease: Option<Lease>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) rows: Mutex<HashMap<String, Row>>,
    /// Woken at each release.
    pub(super) bell: Notify,
    /// Claim objects that live.
    pub(super) claims: AtomicUsize,
    /// Attempts that wait inside the store now.
    pub(super) waiting: AtomicUsize,
    /// Of all claims that there ever were.
    pub(super) callers: Mutex<Vec<Caller>>,
    /// What each hand-over was to mean for those outside.
    pub(super) outsiders: Mutex<Vec<Outsiders>>,
    /// Of the one to whom a lock was handed over last.
    pub(super) heir: Mutex<Option<Hint>>,
    /// How many claim objects lived when the backend was closed.
    pub(super) claims_at_close: Mutex<Vec<usize>>,
    fence: Mutex<u64>,
    orders: Mutex<Orders>,
    log: Mutex<Vec<(Op, OwnerId, Instant)>>,
}

impl Store {
    pub(super) fn set_latency(&self, latency: Duration) {
        lock(&self.orders).latency = latency;
    }

    /// The next requests of this sort meet these faults, one each.
    pub(super) fn once(&self, op: Op, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.orders).once.entry(op).or_default().extend(faults);
    }

    /// All requests of this sort meet this fault.
    pub(super) fn always(&self, op: Op, fault: Fault) {
        lock(&self.orders).always.insert(op, fault);
    }

    /// No fault is left.
    pub(super) fn heal(&self) {
        let mut orders = lock(&self.orders);
        orders.once.clear();
        orders.always.clear();
        orders.dead_shard = false;
    }

    /// Locks whose name starts with "dead" get no answer to a renewal.
    pub(super) fn kill_shard(&self) {
        lock(&self.orders).dead_shard = true;
    }

    /// What a grant or renewal answers instead of the kind's own lease.
    pub(super) fn set_lease(&self, lease: Lease) {
        lock(&self.orders).lease = Some(lease);
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        lock(&self.orders).lease
    }

    /// Plays one request: the way there, `apply`, the way back, and the fault that was ordered.
    pub(super) async fn play<T>(
        &self,
        op: Op,
        owner: OwnerId,
        name: &str,
        apply: impl AsyncFnOnce() -> T,
    ) -> Result<T> {
        self.note(op, owner);
        let (latency, fault) = {
            let mut orders = lock(&self.orders);
            let dead = orders.dead_shard && op == Op::KeepAlive && name.starts_with("dead");
            let once = orders.once.get_mut(&op).and_then(VecDeque::pop_front);
            let fault = once.or(orders.always.get(&op).copied()).or(dead.then_some(Fault::Hang));
            (orders.latency, fault)
        };
        travel(latency / 2).await;
        match fault {
            Some(Fault::Fail(kind)) => return Err(Error::new(kind, "as ordered")),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("as ordered"),
            _ => {}
        }
        let answer = apply().await;
        travel(latency / 2).await;
        match fault {
            Some(Fault::LoseReply) => {
                Err(Error::new(ErrorKind::Unavailable, "the reply is lost").with_outcome_unknown())
            }
            Some(Fault::HangAfter) => std::future::pending().await,
            Some(Fault::PanicAfter) => panic!("as ordered"),
            Some(Fault::Late(late)) => {
                time::sleep(late).await;
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }

    pub(super) fn note(&self, op: Op, owner: OwnerId) {
        lock(&self.log).push((op, owner, Instant::now()));
    }

    /// Counts an attempt that waits in the store, for as long as the answer lives.
    pub(super) fn waits(&self) -> impl Drop {
        self.waiting.fetch_add(1, SeqCst);
        Waits(&self.waiting)
    }

    /// What was done, in order.
    pub(super) fn ops(&self) -> Vec<Op> {
        lock(&self.log).iter().map(|entry| entry.0).collect()
    }

    /// Grants the row if it is free, or was granted to the same owner before.
    pub(super) fn take(&self, name: &str, owner: OwnerId, ttl: Option<Duration>) -> Option<u64> {
        let mut rows = lock(&self.rows);
        let row = rows.entry(name.to_owned()).or_default();
        match row.live_owner() {
            Some(live) if live == owner => return Some(row.token),
            Some(_) => return None,
            None => {}
        }
        let mut fence = lock(&self.fence);
        *fence += 1;
        (row.owner, row.until, row.token) = (Some(owner), ttl.map(|ttl| Instant::now() + ttl), *fence);
        Some(*fence)
    }

    /// Gives what `from` has to `to`.
    pub(super) fn reissue(
        &self,
        name: &str,
        from: OwnerId,
        to: OwnerId,
        ttl: Option<Duration>,
    ) -> Option<u64> {
        let mut rows = lock(&self.rows);
        let row = rows.get_mut(name).filter(|row| row.live_owner() == Some(from))?;
        let mut fence = lock(&self.fence);
        *fence += 1;
        (row.owner, row.until, row.token) = (Some(to), ttl.map(|ttl| Instant::now() + ttl), *fence);
        Some(*fence)
    }

    /// Takes everything of this owner out, and wakes the next.
    pub(super) fn leave(&self, name: &str, owner: OwnerId) -> Released {
        let (outcome, next) = {
            let mut rows = lock(&self.rows);
            let Some(row) = rows.get_mut(name) else { return Released::NotHeld };
            row.queue.retain(|queued| *queued != owner);
            row.hints.retain(|(hinted, _)| *hinted != owner);
            let outcome = if row.live_owner() == Some(owner) { Released::Freed } else { Released::NotHeld };
            if row.owner == Some(owner) {
                row.owner = None;
            }
            let front = row.queue.front();
            (
                outcome,
                row.hints.iter().find(|(hinted, _)| front == Some(hinted)).map(|(_, hint)| hint.clone()),
            )
        };
        if let Some(hint) = next {
            hint.ring();
        }
        self.bell.notify_waiters();
        outcome
    }

    /// Deletes all rows and tells whoever has a hint.
    pub(super) fn evict_all(&self) {
        let rows = std::mem::take(&mut *lock(&self.rows));
        rows.values().flat_map(|row| &row.hints).for_each(|(_, hint)| hint.ring());
        self.bell.notify_waiters();
    }

    /// Deletes one row; its hints stay.
    pub(super) fn evict(&self, name: &str) {
        if let Some(row) = lock(&self.rows).get_mut(name) {
            row.owner = None;
        }
    }

    /// Rings all hints for no reason.
    pub(super) fn ring_all(&self) {
        let rows = lock(&self.rows);
        rows.values().flat_map(|row| &row.hints).for_each(|(_, hint)| hint.ring());
    }

    /// Rings the one to whom a lock was handed over last, for no reason.
    pub(super) fn ring_heir(&self) {
        lock(&self.heir).iter().for_each(Hint::ring);
    }

    pub(super) fn holder(&self, name: &str) -> Option<OwnerId> {
        lock(&self.rows).get(name).and_then(Row::live_owner)
    }

    pub(super) fn holders(&self) -> usize {
        lock(&self.rows).values().filter_map(Row::live_owner).count()
    }

    /// Queue entries and hints.
    pub(super) fn queued(&self) -> usize {
        lock(&self.rows).values().map(|row| row.queue.len() + row.hints.len()).sum()
    }

    pub(super) fn live_claims(&self) -> usize {
        self.claims.load(SeqCst)
    }

    /// When requests of this sort were sent.
    pub(super) fn sent(&self, op: Op) -> Vec<Instant> {
        lock(&self.log).iter().filter(|entry| entry.0 == op).map(|entry| entry.2).collect()
    }

    pub(super) fn count(&self, op: Op) -> usize {
        self.sent(op).len()
    }

    /// How many renewals were sent by an owner that had sent its release before (C10).
    pub(super) fn renewals_after_release(&self) -> usize {
        let log = lock(&self.log);
        let mut released = std::collections::HashSet::new();
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

    pub(super) fn forget_log(&self) {
        lock(&self.log).clear();
    }
}

struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

async fn travel(time: Duration) {
    if !time.is_zero() {
        time::sleep(time).await;
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
