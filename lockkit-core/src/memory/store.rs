//! The model: all names and the token counter. It is pure state; the caller passes the time and
//! sends the wake-ups.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use super::record::Record;
use crate::{
    clock::Tick,
    error::Result,
    name::{Kind, LockName},
    spi::{
        Attempt, ClaimSpec, Inspection, LossReason, Note, Noted, QueuePolicy, Released,
        RenewalOutcome, Transferred, Wait, Wake,
    },
    token::FencingToken,
};

/// A sweep is not worthwhile for fewer names than this.
const SMALLEST_SWEEP: usize = 1_024;

/// All names that have a holder or a waiter.
///
/// Each operation gets the present instant, which never goes back. It adds to `wakes` the claims
/// that the caller must wake afterwards.
pub(super) struct Store {
    records: HashMap<LockName, Record>,
    /// The notes stay when their locks are free.
    notes: HashMap<LockName, Note>,
    last_token: u64,
    /// The number of names at which the next sweep removes the unused ones.
    sweep_at: usize,
}

impl Store {
    /// An empty store whose tokens are larger than `last_token`.
    pub(super) fn new(last_token: u64) -> Self {
        Self {
            records: HashMap::new(),
            notes: HashMap::new(),
            last_token,
            sweep_at: SMALLEST_SWEEP,
        }
    }

    /// Grants the lock if it is this claim's turn. Otherwise queues the claim if it may wait. A
    /// claim that resumes a grant gets only that grant.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if present claims name another
    /// limit.
    pub(super) fn attempt(
        &mut self,
        spec: &ClaimSpec,
        wait: Wait,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> Result<Attempt> {
        if let Some(from) = &spec.resumes {
            let resumed =
                self.change(&spec.name, now, wakes, |record, _| record.resume(spec, from, now));
            let busy = Attempt::Busy { queued: false, retry_after: None };
            return Ok(resumed.flatten().map_or(busy, Attempt::Granted));
        }
        if self.records.len() >= self.sweep_at {
            self.sweep(now, wakes);
        }
        // A new record grants its first claim, so no empty record is ever left behind.
        let record = match self.records.entry(spec.name.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Record::new()),
        };
        record.purge(now);
        let answer = record.attempt(spec, wait, &mut self.last_token, now);
        record.wake(wakes);
        answer
    }

    /// Extends the lease of a grant.
    pub(super) fn keep_alive(
        &mut self,
        spec: &ClaimSpec,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> RenewalOutcome {
        let outcome = self.change(&spec.name, now, wakes, |record, _| record.keep_alive(spec, now));
        outcome.unwrap_or(RenewalOutcome::Lost(LossReason::Evicted))
    }

    /// Extends the lease of a grant by another length.
    pub(super) fn extend(
        &mut self,
        spec: &ClaimSpec,
        lease: Duration,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> RenewalOutcome {
        let outcome =
            self.change(&spec.name, now, wakes, |record, _| record.extend(spec.owner, lease, now));
        outcome.unwrap_or(RenewalOutcome::Lost(LossReason::Evicted))
    }

    /// Raises the token of a grant, and the counter with it.
    pub(super) fn raise_token(
        &mut self,
        spec: &ClaimSpec,
        floor: FencingToken,
        now: Tick,
    ) -> Option<FencingToken> {
        let record = self.records.get_mut(&spec.name)?;
        record.raise_token(spec.owner, floor, &mut self.last_token, now)
    }

    /// Writes the note beside a grant.
    pub(super) fn write_note(&mut self, spec: &ClaimSpec, note: &Note, now: Tick) -> Noted {
        if !self.records.get(&spec.name).is_some_and(|record| record.is_held_by(spec.owner, now)) {
            return Noted::NotHeld;
        }
        let stored = self.notes.entry(spec.name.clone()).or_default();
        let noted = note.replaces(stored);
        if noted == Noted::Written {
            stored.clone_from(note);
        }
        noted
    }

    /// The note beside a name.
    pub(super) fn note(&self, name: &LockName) -> Note {
        self.notes.get(name).cloned().unwrap_or_default()
    }

    /// Transfers a grant to another owner.
    pub(super) fn transfer(
        &mut self,
        from: &ClaimSpec,
        to: &ClaimSpec,
        policy: QueuePolicy,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> Transferred {
        let mut last_token = self.last_token;
        let transferred = self.change(&from.name, now, wakes, |record, _| {
            record.transfer(from.owner, to, policy, &mut last_token, now)
        });
        self.last_token = last_token;
        transferred.unwrap_or(Transferred::NotHeld)
    }

    /// Gives up a grant or a place in the queue.
    pub(super) fn release(
        &mut self,
        spec: &ClaimSpec,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> Released {
        let released =
            self.change(&spec.name, now, wakes, |record, _| record.release(spec.owner, now));
        released.unwrap_or(Released::NotHeld)
    }

    /// Frees one grant, and wakes its owner.
    pub(super) fn force_release(
        &mut self,
        name: &LockName,
        token: FencingToken,
        now: Tick,
        wakes: &mut Vec<Wake>,
    ) -> Released {
        let released =
            self.change(name, now, wakes, |record, wakes| record.force_release(token, now, wakes));
        released.unwrap_or(Released::NotHeld)
    }

    /// Inspects a name without changing it.
    pub(super) fn inspect(&self, name: &LockName, now: Tick) -> Inspection {
        self.records
            .get(name)
            .map_or_else(|| Inspection::new(Vec::new(), Some(0)), |r| r.inspect(now))
    }

    /// The names of one kind that are in use and begin with `prefix`.
    pub(super) fn names(&self, kind: Kind, prefix: &str, now: Tick) -> Vec<LockName> {
        let in_use =
            self.records.iter().filter(|(_, record)| record.is_used(now)).map(|(name, _)| name);
        in_use
            .filter(|name| name.kind() == kind && name.as_str().starts_with(prefix))
            .cloned()
            .collect()
    }

    /// The number of names that are in use now.
    pub(super) fn len(&mut self, now: Tick, wakes: &mut Vec<Wake>) -> usize {
        self.sweep(now, wakes);
        self.records.len()
    }

    #[cfg(test)]
    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    #[cfg(test)]
    pub(super) fn has_record(&self, name: &LockName) -> bool {
        self.records.contains_key(name)
    }

    /// Works on a name that is in use, and removes its record if the name is then idle.
    fn change<T>(
        &mut self,
        name: &LockName,
        now: Tick,
        wakes: &mut Vec<Wake>,
        work: impl FnOnce(&mut Record, &mut Vec<Wake>) -> T,
    ) -> Option<T> {
        let record = self.records.get_mut(name)?;
        let answer = work(record, wakes);
        record.purge(now);
        record.wake(wakes);
        if record.is_idle() {
            self.records.remove(name);
        }
        Some(answer)
    }

    /// Drops ended leases and waiters under all names. A sweep visits at most twice as many names
    /// as were added since the last sweep, so its cost per new name is bounded.
    fn sweep(&mut self, now: Tick, wakes: &mut Vec<Wake>) {
        self.records.retain(|_, record| {
            record.purge(now);
            record.wake(wakes);
            !record.is_idle()
        });
        self.sweep_at = SMALLEST_SWEEP.max(2 * self.records.len());
    }
}
