//! Keeps the embedded store behind its mutex.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use super::store::Store;
use crate::{
    clock::{Clock, Tick},
    spi::Wake,
};

/// The state that all clones and claims share.
pub(super) struct Shared {
    pub(super) clock: Clock,
    store: Mutex<Store>,
}

impl Shared {
    pub(super) fn new(clock: Clock, last_token: u64) -> Self {
        Self { clock, store: Mutex::new(Store::new(last_token)) }
    }

    /// Works on the store at one instant. Wakes the affected claims after the mutex is unlocked.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Store, Tick, &mut Vec<Wake>) -> T) -> T {
        let mut wakes = Vec::new();
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock is read under the mutex, so the model never sees time go back.
        let now = self.clock.now();
        let answer = work(&mut store, now, &mut wakes);
        drop(store);
        wakes.iter().for_each(Wake::wake);
        answer
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("clock", &self.clock).finish_non_exhaustive()
    }
}
