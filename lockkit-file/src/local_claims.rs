//! The claims of this backend that wait or hold, to wake the right ones when a record changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_core::{OwnerId, spi::Wake};
use tokio::sync::Notify;

use crate::{folder::LockPaths, record::Record, session::SessionId};

/// The news that a claim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The lock that it holds in this session was taken away.
    Holds(SessionId),
    /// It is the claim's turn.
    Waits,
}

#[derive(Debug, Default)]
pub(crate) struct LocalClaims(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<String, Entry>,
    /// The number of claims that wait, plus the number of observers.
    waiting: usize,
}

#[derive(Debug)]
struct Entry {
    paths: LockPaths,
    claims: Vec<LocalClaim>,
    observers: Vec<Arc<Notify>>,
}

#[derive(Debug)]
struct LocalClaim {
    owner: OwnerId,
    stage: Stage,
    wake: Wake,
    /// The claim was woken, and has not looked since.
    woken: bool,
}

impl LocalClaims {
    /// Registers a claim, which from now on hears of changes that concern it. It has just looked.
    pub(crate) fn set(&self, paths: &LockPaths, owner: OwnerId, stage: Stage, wake: &Wake) {
        self.lock().make(paths).edit(paths, |entry| {
            entry.claims.retain(|local| local.owner != owner);
            entry.claims.push(LocalClaim { owner, stage, wake: wake.clone(), woken: false });
        });
    }

    /// Notes that this claim looks now.
    pub(crate) fn looks(&self, paths: &LockPaths, owner: OwnerId) {
        if let Some(entry) = self.lock().by_key.get_mut(&paths.key) {
            entry
                .claims
                .iter_mut()
                .filter(|local| local.owner == owner)
                .for_each(|local| local.woken = false);
        }
    }

    pub(crate) fn remove(&self, paths: &LockPaths, owner: OwnerId) {
        self.lock().edit(paths, |entry| entry.claims.retain(|local| local.owner != owner));
    }

    pub(crate) fn observe(&self, paths: &LockPaths, observer: &Arc<Notify>) {
        self.lock().make(paths).edit(paths, |entry| entry.observers.push(Arc::clone(observer)));
    }

    pub(crate) fn observe_no_more(&self, paths: &LockPaths, observer: &Arc<Notify>) {
        self.lock()
            .edit(paths, |entry| entry.observers.retain(|other| !Arc::ptr_eq(other, observer)));
    }

    /// Whether a claim or an observer here waits for changes by others. A holder does not.
    pub(crate) fn anybody_waits(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The paths of the lock with this key, if a claim or an observer here needs it.
    pub(crate) fn paths(&self, key: &str) -> Option<LockPaths> {
        self.lock().by_key.get(key).map(|entry| entry.paths.clone())
    }

    /// The paths of all locks that a claim or an observer here needs.
    pub(crate) fn all_paths(&self) -> Vec<LockPaths> {
        self.lock().by_key.values().map(|entry| entry.paths.clone()).collect()
    }

    /// The locks that a claim here waits for or that are observed.
    pub(crate) fn awaited(&self) -> Vec<LockPaths> {
        self.lock()
            .by_key
            .values()
            .filter(|entry| entry.waiting() > 0)
            .map(|entry| entry.paths.clone())
            .collect()
    }

    /// Wakes the claims that can be granted and do not know it, and those that hold no more. If the
    /// record can't be read, it is `None`, and all claims wake.
    pub(crate) fn hear(&self, paths: &LockPaths, record: Option<&Record>) {
        let first = record.map(Record::first).unwrap_or_default();
        let concerns = |local: &LocalClaim| match (record, local.stage) {
            (None, _) => true,
            (Some(record), Stage::Holds(session)) => !record.is_held_by(local.owner, session),
            // A claim that has lost its place queues again.
            (Some(record), Stage::Waits) => {
                first.contains(&local.owner) || !record.is_awaited_by(local.owner)
            }
        };
        let mut entries = self.lock();
        let Some(entry) = entries.by_key.get_mut(&paths.key) else { return };
        let wakes =
            mark_woken(entry.claims.iter_mut().filter(|local| concerns(local) && !local.woken));
        drop(entries);
        wakes.iter().for_each(Wake::wake);
    }

    /// Notifies the observers that the lock has changed.
    pub(crate) fn tell_observers(&self, paths: &LockPaths) {
        if let Some(entry) = self.lock().by_key.get(&paths.key) {
            entry.observers.iter().for_each(|observer| observer.notify_one());
        }
    }

    /// Wakes all claims, because their session is over.
    pub(crate) fn wake_all(&self) {
        let wakes = mark_woken(self.lock().by_key.values_mut().flat_map(|entry| &mut entry.claims));
        wakes.iter().for_each(Wake::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Makes an entry for this lock if there is none.
    fn make(&mut self, paths: &LockPaths) -> &mut Self {
        let new = || Entry { paths: paths.clone(), claims: Vec::new(), observers: Vec::new() };
        self.by_key.entry(paths.key.clone()).or_insert_with(new);
        self
    }

    fn edit(&mut self, paths: &LockPaths, edit: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.by_key.get_mut(&paths.key) else { return };
        let before = entry.waiting();
        edit(entry);
        self.waiting = self.waiting + entry.waiting() - before;
        if entry.claims.is_empty() && entry.observers.is_empty() {
            self.by_key.remove(&paths.key);
        }
    }
}

impl Entry {
    fn waiting(&self) -> usize {
        self.observers.len()
            + self.claims.iter().filter(|local| local.stage == Stage::Waits).count()
    }
}

/// Marks the claims as woken, and returns their wake-ups for a time when the mutex is free. A
/// wake-up may drop the last handle of a locker, whose claims then lock this mutex.
fn mark_woken<'a>(local_claims: impl Iterator<Item = &'a mut LocalClaim>) -> Vec<Wake> {
    let mark = |local: &'a mut LocalClaim| {
        local.woken = true;
        local.wake.clone()
    };
    local_claims.map(mark).collect()
}

#[cfg(test)]
mod tests {
    use lockkit_core::{Kind, LockName};

    use super::*;
    use crate::folder::Folder;

    /// A claim that is not counted would hear late. One that stays counted costs a wake-up for each
    /// change.
    #[test]
    fn c8_waiters_are_counted() {
        let folder = Folder::new("/locks".into());
        let all_paths =
            ["a", "b"].map(|name| folder.paths(&LockName::new(Kind::Mutex, name).unwrap()));
        let local_claims = LocalClaims::default();
        let signal = Arc::new(Notify::new());
        let [first, second] = [1, 2].map(OwnerId::new);
        let set = |paths, owner, stage| local_claims.set(paths, owner, stage, &Wake::none());
        let holds = Stage::Holds(OwnerId::new(7));
        set(&all_paths[0], first, holds);
        assert!(!local_claims.anybody_waits(), "a holder does not wait");
        set(&all_paths[0], second, Stage::Waits);
        set(&all_paths[0], second, Stage::Waits);
        set(&all_paths[1], second, Stage::Waits);
        local_claims.remove(&all_paths[1], second);
        local_claims.remove(&all_paths[1], second);
        assert!(local_claims.anybody_waits());
        set(&all_paths[0], second, holds);
        assert!(!local_claims.anybody_waits(), "it was granted");
        local_claims.observe(&all_paths[1], &signal);
        assert!(local_claims.anybody_waits());
        local_claims.observe_no_more(&all_paths[1], &signal);
        local_claims.remove(&all_paths[0], first);
        local_claims.remove(&all_paths[0], second);
        assert!(!local_claims.anybody_waits() && local_claims.all_paths().is_empty());
    }
}
