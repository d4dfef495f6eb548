//! Keeps the gates of the names that were changed last open, with the records that were written
//! there.

use std::{
    collections::HashMap,
    fs::File,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    files::{Identity, Stamp},
    folder::LockPaths,
    record::Record,
};

/// Each gate takes up to two descriptors, and a process often has no more than 1,024.
const MOST: usize = 64;

/// The gates, by the keys of names.
#[derive(Debug)]
pub(crate) struct GateCache {
    most: usize,
    open: Mutex<HashMap<String, CachedGate>>,
}

/// A gate that no task of this process is inside of.
#[derive(Debug)]
pub(crate) struct CachedGate {
    pub(crate) gate: Arc<File>,
    pub(crate) identity: Identity,
    pub(crate) written: Option<Written>,
}

/// A record as this process wrote it. It is locked for reading, so that no process overwrites it.
/// It is open, so that no later file gets its inode number.
#[derive(Debug)]
pub(crate) struct Written {
    _locked: File,
    stamp: Stamp,
    pub(crate) record: Record,
}

impl Written {
    /// For a file that was locked for reading before it was put in place. `None` if its metadata
    /// can't be read.
    pub(crate) fn new(locked: File, record: Record) -> Option<Self> {
        let stamp = Stamp::of(&locked.metadata().ok()?).ok()?;
        Some(Self { _locked: locked, stamp, record })
    }

    /// Whether the record is in place as it was written.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        Stamp::at(path).is_ok_and(|there| there == self.stamp)
    }
}

impl GateCache {
    pub(crate) fn new() -> Self {
        Self { most: MOST, open: Mutex::default() }
    }

    /// For file systems on which the system may report changes of a path late.
    pub(crate) fn disabled() -> Self {
        Self { most: 0, open: Mutex::default() }
    }

    /// Takes a gate out, so that no other task has it: two tasks with the same descriptor would
    /// both be let in.
    pub(crate) fn take(&self, key: &str) -> Option<CachedGate> {
        self.lock().remove(key)
    }

    /// Keeps a gate, which must be unlocked: the next task that takes it enters.
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

    /// Whether the record in place is the last one that this process wrote, and no task is inside
    /// the gate. The task that wrote the record wakes the claims of this process that it concerns.
    pub(crate) fn is_last_of_ours(&self, paths: &LockPaths) -> bool {
        let written =
            self.lock().get(&paths.key).and_then(|open| Some(open.written.as_ref()?.stamp));
        written.is_some_and(|stamp| Stamp::at(&paths.record).is_ok_and(|there| there == stamp))
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
