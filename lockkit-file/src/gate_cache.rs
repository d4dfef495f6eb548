//! The gates of the names that were changed last, which stay open, and the records that were
//! written there.

use std::{
    collections::HashMap,
    fs::File,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    files::{Identity, Stamp},
    record::Record,
};

/// Each takes up to two descriptors, of which a process often has no more than 1,024.
const MOST: usize = 64;

/// By keys of names.
#[derive(Debug)]
pub(crate) struct GateCache {
    most: usize,
    open: Mutex<HashMap<String, CachedGate>>,
}

/// A gate that nobody of this process is inside of.
#[derive(Debug)]
pub(crate) struct CachedGate {
    pub(crate) gate: Arc<File>,
    pub(crate) identity: Identity,
    pub(crate) written: Option<Written>,
}

/// A record as this process wrote it. It is locked for reading, so that nobody writes over it, and
/// it is open, so that no later file gets its number.
#[derive(Debug)]
pub(crate) struct Written {
    _locked: File,
    stamp: Stamp,
    pub(crate) record: Record,
}

impl Written {
    /// A file that was locked for reading before it was put in place; `None` if it can't be looked
    /// at.
    pub(crate) fn new(locked: File, record: Record) -> Option<Self> {
        let stamp = Stamp::of(&locked.metadata().ok()?).ok()?;
        Some(Self { _locked: locked, stamp, record })
    }

    /// Whether it is in place as it was written.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        Stamp::at(path).is_ok_and(|there| there == self.stamp)
    }
}

impl GateCache {
    pub(crate) fn new() -> Self {
        Self { most: MOST, open: Mutex::default() }
    }

    /// For file systems on which what the system tells of a path may be late.
    pub(crate) fn disabled() -> Self {
        Self { most: 0, open: Mutex::default() }
    }

    /// Nobody else has it then: two with the same descriptor would both be let in.
    pub(crate) fn take(&self, key: &str) -> Option<CachedGate> {
        self.lock().remove(key)
    }

    /// It must be unlocked: the next one who takes it goes in.
    pub(crate) fn put(&self, key: &str, open: CachedGate) {
        let mut gates = self.lock();
        if gates.len() >= self.most
            && let Some(any) = gates.keys().next().cloned()
        {
            gates.remove(&any);
        }
        if self.most > 0 {
            gates.insert(key.to_owned(), open);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedGate>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
