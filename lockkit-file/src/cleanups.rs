//! Remembers owners that claims have left in the records. Each stays there until a cleanup removes
//! it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_core::OwnerId;

use crate::{folder::LockPaths, session::Session};

/// The owners that must be removed from the records.
#[derive(Debug, Default)]
pub(crate) struct Cleanups(Mutex<HashMap<String, Cleanup>>);

#[derive(Debug)]
struct Cleanup {
    paths: LockPaths,
    owners: Vec<(OwnerId, Arc<Session>)>,
}

impl Cleanups {
    /// Adds owners that may be in the record, and must not be.
    pub(crate) fn add(
        &self,
        paths: &LockPaths,
        session: &Arc<Session>,
        owners: impl Iterator<Item = OwnerId>,
    ) {
        let mut cleanups = self.lock();
        let new = || Cleanup { paths: paths.clone(), owners: Vec::new() };
        let cleanup = cleanups.entry(paths.key.clone()).or_insert_with(new);
        cleanup.owners.extend(owners.map(|owner| (owner, Arc::clone(session))));
    }

    pub(crate) fn of(&self, paths: &LockPaths) -> Vec<OwnerId> {
        let cleanups = self.lock();
        cleanups
            .get(&paths.key)
            .into_iter()
            .flat_map(|cleanup| &cleanup.owners)
            .map(|(owner, _)| *owner)
            .collect()
    }

    /// Forgets these owners, which are not in the record any more.
    pub(crate) fn done(&self, paths: &LockPaths, owners: &[OwnerId]) {
        self.retain(|key, owner, _| *key != paths.key || !owners.contains(&owner));
    }

    /// The locks whose records need a cleanup. Owners of a session that is over need none.
    pub(crate) fn all_paths(&self) -> Vec<LockPaths> {
        self.retain(|_, _, session| session.stands().unwrap_or(true));
        self.lock().values().map(|cleanup| cleanup.paths.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn retain(&self, keep: impl Fn(&String, OwnerId, &Session) -> bool) {
        self.lock().retain(|key, cleanup| {
            cleanup.owners.retain(|(owner, session)| keep(key, *owner, session));
            !cleanup.owners.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Cleanup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
