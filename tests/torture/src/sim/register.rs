//! The resource that the locks protect: it refuses a token below one that it has seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::log::{Log, lock};
use crate::history::{Event, Lock, Op, REGISTER};

#[derive(Debug)]
pub(super) struct Register {
    log: Arc<Log>,
    largest: Mutex<BTreeMap<Lock, u64>>,
}

impl Register {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self { log, largest: Mutex::default() }
    }

    /// Takes a write, or refuses it.
    pub(super) fn compare(&self, op: Op, lock_of: &Lock, token: u64) -> bool {
        let mut all = lock(&self.largest);
        let largest = all.entry(lock_of.clone()).or_default();
        let before = *largest;
        let accepted = token >= *largest;
        *largest = before.max(token);
        drop(all);
        let lock = lock_of.clone();
        self.log.write(REGISTER, Event::Compared { op, lock, token, largest: before, accepted });
        accepted
    }
}
