//! The history of a run, on its own clock.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::history::{Event, Record};

/// Collects the records of all processes, and counts the faults.
#[derive(Debug)]
pub(super) struct Log {
    start: Instant,
    records: Mutex<Vec<Record>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), records: Mutex::default(), counts: Mutex::default() }
    }

    /// Nanoseconds since the start.
    pub(super) fn at(&self, instant: Instant) -> u64 {
        nanos(instant.saturating_duration_since(self.start))
    }

    pub(super) fn write(&self, process: u32, event: Event) {
        self.write_at(Instant::now(), process, event);
    }

    pub(super) fn write_at(&self, instant: Instant, process: u32, event: Event) {
        let at = self.at(instant);
        lock(&self.records).push(Record { at, process, event });
    }

    pub(super) fn count(&self, what: &'static str) {
        *lock(&self.counts).entry(what).or_default() += 1;
    }

    /// The records in order of time, and the counts.
    pub(super) fn take(&self) -> (Vec<Record>, BTreeMap<&'static str, u64>) {
        let mut records = mem::take(&mut *lock(&self.records));
        records.sort_by_key(|record| record.at);
        (records, mem::take(&mut *lock(&self.counts)))
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One number for a whole history, which is the same in each process.
pub(super) fn digest(records: &[Record]) -> u64 {
    struct Sink(DefaultHasher);
    impl fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            text.hash(&mut self.0);
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    // Writing to it never fails.
    let _ = fmt::write(&mut sink, format_args!("{records:?}"));
    sink.0.finish()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
