//! The claims of this backend that wait or hold: which of them to wake when a record has changed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_core::{OwnerId, spi::Wake};
use tokio::sync::Notify;

use crate::{folder::LockPaths, record::Record, session::SessionId};

/// What a claim is waiting to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// That the lock it holds in this session was taken away.
    Holds(SessionId),
    /// That it is its turn.
    Waits,
}

#[derive(Debug, Default)]
pub(crate) struct LocalClaims(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<String, Entry>,
    /// How many claims wait, and how many observers there are.
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
    /// It knows, and has not looked since.
    woken: bool,
}

impl LocalClaims {
    /// From now on this claim hears what concerns it. It has just looked.
    pub(crate) fn set(&self, paths: &LockPaths, owner: OwnerId, stage: Stage, wake: &Wake) {
        self.lock().make(paths).edit(paths, |entry| {
            entry.claims.retain(|local| local.owner != owner);
            entry.claims.push(LocalClaim { owner, stage, wake: wake.clone(), woken: false });
        });
    }

    /// This claim looks now.
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

    /// Whether anybody here waits for what others do. Who holds a lock does not.
    pub(crate) fn anybody_waits(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The lock with these files, if anybody here cares.
    pub(crate) fn paths(&self, key: &str) -> Option<LockPaths> {
        self.lock().by_key.get(key).map(|entry| entry.paths.clone())
    }

    /// All locks that anybody here cares about.
    pub(crate) fn all_paths(&self) -> Vec<LockPaths> {
        self.lock().by_key.values().map(|entry| entry.paths.clone()).collect()
    }

    /// The locks that anybody here waits for or observes.
    pub(crate) fn awaited(&self) -> Vec<LockPaths> {
        self.lock()
            .by_key
            .values()
            .filter(|entry| entry.waiting() > 0)
            .map(|entry| entry.paths.clone())
            .collect()
    }

    /// Wakes those that can be granted and don't know it, and those that hold no more. `None`: all
    /// of them, as the record can't be read.
    pub(crate) fn hear(&self, paths: &LockPaths, record: Option<&Record>) {
        let first = record.map(Record::first).unwrap_or_default();
        let concerns = |local: &LocalClaim| match (record, local.stage) {
            (None, _) => true,
            (Some(record), Stage::Holds(session)) => !record.is_held_by(local.owner, session),
            // One that has lost its place enters again.
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

    /// Something has changed there.
    pub(crate) fn tell_observers(&self, paths: &LockPaths) {
        if let Some(entry) = self.lock().by_key.get(&paths.key) {
            entry.observers.iter().for_each(|observer| observer.notify_one());
        }
    }

    /// Wakes all: their session is over.
    pub(crate) fn wake_all(&self) {
        let wakes = mark_woken(self.lock().by_key.values_mut().flat_map(|entry| &mut entry.claims));
        wakes.iter().for_each(Wake::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// There is an entry for this lock now.
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

/// Marks them. The wake-ups come after the lock: the last handle of a locker may go in a wake-up,
/// and its claims come here then.
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

    /// What is not counted would be heard of late, and what stays counted costs a wake-up for each
    /// change.
    #[test]
    fn c8_those_who_wait_are_counted() {
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
