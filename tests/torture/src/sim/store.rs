//! The scripted store: its names, its sessions, and the history of its changes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit::{
    FencingToken, LockName, Released,
    spi::{Attempt, Inspection, Noted, QueuePolicy, RenewalOutcome, Transferred, Wait, Wake},
};
use tokio::{sync::Notify, time::Instant};

use super::{
    log::{Log, lock},
    row::{Asker, Deeds, Row},
    scenario::{Leases, StoreSort, Waiting},
};
use crate::history::DIRECTOR;

/// Longer than any run.
const AGES: Duration = Duration::from_secs(100_000);

/// The store that all virtual processes share.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) sort: StoreSort,
    /// Notified at each change that may free a lock for a waiter.
    pub(super) signal: Notify,
    log: Arc<Log>,
    rows: Mutex<BTreeMap<LockName, Row>>,
}

/// The waiters to wake, by process.
pub(super) type Wakes = Vec<(u32, Wake)>;

impl Store {
    pub(super) fn new(sort: StoreSort, log: Arc<Log>) -> Self {
        Self { sort, signal: Notify::new(), log, rows: Mutex::default() }
    }

    /// The end of a lease that the store grants now.
    fn ends(&self, ttl: Duration) -> Instant {
        Instant::now()
            + match self.sort.leases {
                Leases::Own => ttl,
                Leases::Session(timeout) => timeout,
                Leases::Bound(_) => AGES,
            }
    }

    /// Makes a change to one name.
    fn change<T>(
        &self,
        process: u32,
        name: &LockName,
        work: impl FnOnce(&mut Row, Instant, &mut Deeds) -> T,
    ) -> (T, Wakes) {
        let now = Instant::now();
        let mut rows = lock(&self.rows);
        let mut deeds = Deeds::new();
        let mut wakes = self.purge(&mut rows, now, &mut deeds);
        if let Leases::Session(timeout) = self.sort.leases {
            rows.values_mut().for_each(|row| row.prolong(process, now + timeout));
        }
        let row = rows.entry(name.clone()).or_default();
        let answer = work(row, now, &mut deeds);
        wakes.extend(row.wakes());
        drop(rows);
        for (at, event) in deeds {
            self.log.write_at(at, DIRECTOR, event);
        }
        if !wakes.is_empty() {
            self.signal.notify_waiters();
        }
        if self.sort.waiting != Waiting::Rung {
            wakes.clear();
        }
        (answer, wakes)
    }

    fn purge(&self, rows: &mut BTreeMap<LockName, Row>, now: Instant, deeds: &mut Deeds) -> Wakes {
        let mut wakes = Wakes::new();
        for row in rows.values_mut() {
            row.purge(now, deeds);
            wakes.extend(row.wakes());
        }
        wakes
    }

    pub(super) fn attempt(&self, asker: &Asker, wait: Wait) -> (Attempt, Wakes) {
        let ends = self.ends(asker.spec.ttl);
        let (attempt, wakes) = self.change(asker.process, &asker.spec.name, |row, now, deeds| {
            row.attempt(self.sort, asker, wait, (now, ends), deeds)
        });
        let hidden = match attempt {
            Attempt::Busy { queued, .. } if !self.sort.tells_lapse => {
                Attempt::Busy { queued, retry_after: None }
            }
            told => told,
        };
        (hidden, wakes)
    }

    /// The time when the next lease or place of this name ends by itself.
    pub(super) fn changes_at(&self, name: &LockName) -> Option<Instant> {
        lock(&self.rows).get(name).and_then(Row::changes_at)
    }

    /// Whether the claim still waits here.
    pub(super) fn waits(&self, asker: &Asker) -> bool {
        lock(&self.rows).get(&asker.spec.name).is_some_and(|row| row.waits(asker.spec.owner))
    }

    pub(super) fn renew(&self, asker: &Asker, lease: Duration) -> (RenewalOutcome, Wakes) {
        let ends = self.ends(lease);
        self.change(asker.process, &asker.spec.name, |row, now, _| {
            row.renew(self.sort, asker.spec.owner, now, ends)
        })
    }

    /// The store keeps no notes: the simulation tests only which claims may write one.
    pub(super) fn note(&self, asker: &Asker) -> (Noted, Wakes) {
        let (held, wakes) =
            self.change(asker.process, &asker.spec.name, |row, _, _| row.holds(asker.spec.owner));
        (if held { Noted::Written } else { Noted::NotHeld }, wakes)
    }

    pub(super) fn raise(
        &self,
        asker: &Asker,
        floor: FencingToken,
    ) -> (Option<FencingToken>, Wakes) {
        self.change(asker.process, &asker.spec.name, |row, _, _| row.raise(asker.spec.owner, floor))
    }

    pub(super) fn transfer(
        &self,
        from: &Asker,
        to: &Asker,
        policy: QueuePolicy,
    ) -> (Transferred, Wakes) {
        let ends = self.ends(to.spec.ttl);
        self.change(from.process, &from.spec.name, |row, now, deeds| {
            row.transfer(self.sort, from.spec.owner, to, policy, (now, ends), deeds)
        })
    }

    pub(super) fn release(&self, asker: &Asker) -> (Released, Wakes) {
        self.change(asker.process, &asker.spec.name, |row, now, deeds| {
            row.release(asker.spec.owner, now, deeds)
        })
    }

    pub(super) fn inspect(&self, process: u32, name: &LockName) -> (Inspection, Wakes) {
        self.change(process, name, |row, now, _| row.inspect(now))
    }

    /// Frees a grant, and wakes its former holder.
    pub(super) fn free(
        &self,
        process: u32,
        name: &LockName,
        token: FencingToken,
    ) -> (Released, Wakes) {
        let (whom, mut wakes) =
            self.change(process, name, |row, now, deeds| row.free(token.get(), now, deeds));
        let freed = if whom.is_some() { Released::Freed } else { Released::NotHeld };
        wakes.extend(whom);
        (freed, wakes)
    }

    /// The held names, each with a token.
    pub(super) fn held(&self) -> Vec<(LockName, u64)> {
        let rows = lock(&self.rows);
        let held =
            rows.iter().flat_map(|(name, row)| row.tokens().map(|token| (name.clone(), token)));
        held.collect()
    }

    /// A process has died. If leases are bound to their process, its leases end when the store
    /// notices the death.
    pub(super) fn bury(&self, process: u32) {
        if let Leases::Bound(notice) = self.sort.leases {
            let ends = Instant::now() + notice;
            lock(&self.rows).values_mut().for_each(|row| row.cut(process, ends));
        }
    }

    /// The leftovers, except for those of certain processes.
    pub(super) fn left(&self, except: &[u32]) -> Vec<String> {
        let mut deeds = Deeds::new();
        let mut rows = lock(&self.rows);
        self.purge(&mut rows, Instant::now(), &mut deeds);
        for (at, event) in deeds {
            self.log.write_at(at, DIRECTOR, event);
        }
        rows.iter()
            .flat_map(|(name, row)| row.left(except).map(move |left| format!("{left} on {name}")))
            .collect()
    }
}
