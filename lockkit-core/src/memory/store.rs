//! The model: all names and the token counter. Pure state; the caller brings the time and does the ringing.

use std::collections::{HashMap, hash_map::Entry};

use super::record::Record;
use crate::{
    clock::Tick,
    error::Result,
    name::LockName,
    spi::{Attempt, ClaimSpec, Hint, Inspection, LossReason, Pulse, Released, Wait},
    token::FencingToken,
};

/// Below this many names a sweep is not worth while.
const SMALLEST_SWEEP: usize = 1_024;

/// All names that somebody holds or waits for.
///
/// Each operation gets the present instant, which never goes back, and adds to `wakes` whom to ring afterwards.
pub(super) struct Store {
    records: HashMap<LockName, Record>,
    last_token: u64,
    /// How many names there may be until those are looked for that nobody uses any more.
    sweep_at: usize,
}

impl Store {
    /// An empty store whose tokens are larger than `last_token`.
    pub(super) fn new(last_token: u64) -> Self {
        Self { records: HashMap::new(), last_token, sweep_at: SMALLEST_SWEEP }
    }

    /// Grants the lock if it is this claim's turn, else queues the claim if it may wait.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if present claims count on another limit.
    pub(super) fn attempt(
        &mut self,
        spec: &ClaimSpec,
        wait: Wait,
        now: Tick,
        wakes: &mut Vec<Hint>,
    ) -> Result<Attempt> {
        if self.records.len() >= self.sweep_at {
            self.sweep(now, wakes);
        }
        // A new record grants its first claim, so none is ever left behind empty.
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
    pub(super) fn keep_alive(&mut self, spec: &ClaimSpec, now: Tick, wakes: &mut Vec<Hint>) -> Pulse {
        let pulse = self.change(&spec.name, now, wakes, |record, _| record.keep_alive(spec, now));
        pulse.unwrap_or(Pulse::Lost(LossReason::Evicted))
    }

    /// Gives up a grant or a place in the queue.
    pub(super) fn release(&mut self, spec: &ClaimSpec, now: Tick, wakes: &mut Vec<Hint>) -> Released {
        let released = self.change(&spec.name, now, wakes, |record, _| record.release(spec.owner, now));
        released.unwrap_or(Released::NotHeld)
    }

    /// Frees one grant, and tells its owner.
    pub(super) fn force_release(
        &mut self,
        name: &LockName,
        token: FencingToken,
        now: Tick,
        wakes: &mut Vec<Hint>,
    ) -> Released {
        let released = self.change(name, now, wakes, |record, wakes| record.force_release(token, now, wakes));
        released.unwrap_or(Released::NotHeld)
    }

    /// Looks at a name without touching it.
    pub(super) fn inspect(&self, name: &LockName, now: Tick) -> Inspection {
        self.records.get(name).map_or_else(|| Inspection::new(Vec::new(), Some(0)), |r| r.inspect(now))
    }

    /// The number of names that are in use now.
    pub(super) fn len(&mut self, now: Tick, wakes: &mut Vec<Hint>) -> usize {
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

    /// Works on a name that is in use, and forgets it if that was the last of it.
    fn change<T>(
        &mut self,
        name: &LockName,
        now: Tick,
        wakes: &mut Vec<Hint>,
        work: impl FnOnce(&mut Record, &mut Vec<Hint>) -> T,
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

    /// Drops what has ended under all names. Each sweep is paid for by as many new names as it visits.
    fn sweep(&mut self, now: Tick, wakes: &mut Vec<Hint>) {
        self.records.retain(|_, record| {
            record.purge(now);
            record.wake(wakes);
            !record.is_idle()
        });
        self.sweep_at = SMALLEST_SWEEP.max(2 * self.records.len());
    }
}
