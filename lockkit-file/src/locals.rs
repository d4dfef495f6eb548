//! The claims of this backend that wait or hold: whom to ring when a record has changed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_core::{OwnerId, spi::Hint};
use tokio::sync::Notify;

use crate::{folder::Place, record::Record, session::SessionId};

/// What a claim is waiting to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// That the lock it holds in this session was taken away.
    Holds(SessionId),
    /// That it is its turn.
    Waits,
}

#[derive(Debug, Default)]
pub(crate) struct Locals(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<String, Entry>,
    /// How many claims wait, and how many observers there are.
    waiting: usize,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    claims: Vec<Local>,
    observers: Vec<Arc<Notify>>,
}

#[derive(Debug)]
struct Local {
    owner: OwnerId,
    stage: Stage,
    hint: Hint,
    /// It knows, and has not looked since.
    rung: bool,
}

impl Locals {
    /// From now on this claim hears what concerns it. It has just looked.
    pub(crate) fn set(&self, place: &Place, owner: OwnerId, stage: Stage, hint: &Hint) {
        self.lock().make(place).edit(place, |entry| {
            entry.claims.retain(|local| local.owner != owner);
            entry.claims.push(Local { owner, stage, hint: hint.clone(), rung: false });
        });
    }

    /// This claim looks now.
    pub(crate) fn looks(&self, place: &Place, owner: OwnerId) {
        if let Some(entry) = self.lock().by_key.get_mut(&place.key) {
            entry
                .claims
                .iter_mut()
                .filter(|local| local.owner == owner)
                .for_each(|local| local.rung = false);
        }
    }

    pub(crate) fn remove(&self, place: &Place, owner: OwnerId) {
        self.lock().edit(place, |entry| entry.claims.retain(|local| local.owner != owner));
    }

    pub(crate) fn observe(&self, place: &Place, observer: &Arc<Notify>) {
        self.lock().make(place).edit(place, |entry| entry.observers.push(Arc::clone(observer)));
    }

    pub(crate) fn observe_no_more(&self, place: &Place, observer: &Arc<Notify>) {
        self.lock()
            .edit(place, |entry| entry.observers.retain(|other| !Arc::ptr_eq(other, observer)));
    }

    /// Whether anybody here waits for what others do. Who holds a lock does not.
    pub(crate) fn anybody_waits(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The lock with these files, if anybody here cares.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        self.lock().by_key.get(key).map(|entry| entry.place.clone())
    }

    /// All locks that anybody here cares about.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.lock().by_key.values().map(|entry| entry.place.clone()).collect()
    }

    /// The locks that anybody here waits for or observes.
    pub(crate) fn awaited(&self) -> Vec<Place> {
        self.lock()
            .by_key
            .values()
            .filter(|entry| entry.waiting() > 0)
            .map(|entry| entry.place.clone())
            .collect()
    }

    /// Rings those that can be granted and don't know it, and those that hold no more. `None`: all
    /// of them, as the record can't be read.
    pub(crate) fn hear(&self, place: &Place, record: Option<&Record>) {
        let first = record.map(Record::first).unwrap_or_default();
        let concerns = |local: &Local| match (record, local.stage) {
            (None, _) => true,
            (Some(record), Stage::Holds(session)) => !record.is_held_by(local.owner, session),
            // One that has lost its place enters again.
            (Some(record), Stage::Waits) => {
                first.contains(&local.owner) || !record.is_awaited_by(local.owner)
            }
        };
        let mut entries = self.lock();
        let Some(entry) = entries.by_key.get_mut(&place.key) else { return };
        let hints = ring(entry.claims.iter_mut().filter(|local| concerns(local) && !local.rung));
        drop(entries);
        hints.iter().for_each(Hint::ring);
    }

    /// Something has changed there.
    pub(crate) fn tell_observers(&self, place: &Place) {
        if let Some(entry) = self.lock().by_key.get(&place.key) {
            entry.observers.iter().for_each(|observer| observer.notify_one());
        }
    }

    /// Rings all: their session is over.
    pub(crate) fn ring_all(&self) {
        let hints = ring(self.lock().by_key.values_mut().flat_map(|entry| &mut entry.claims));
        hints.iter().for_each(Hint::ring);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// There is an entry for this lock now.
    fn make(&mut self, place: &Place) -> &mut Self {
        let new = || Entry { place: place.clone(), claims: Vec::new(), observers: Vec::new() };
        self.by_key.entry(place.key.clone()).or_insert_with(new);
        self
    }

    fn edit(&mut self, place: &Place, edit: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.by_key.get_mut(&place.key) else { return };
        let before = entry.waiting();
        edit(entry);
        self.waiting = self.waiting + entry.waiting() - before;
        if entry.claims.is_empty() && entry.observers.is_empty() {
            self.by_key.remove(&place.key);
        }
    }
}

impl Entry {
    fn waiting(&self) -> usize {
        self.observers.len()
            + self.claims.iter().filter(|local| local.stage == Stage::Waits).count()
    }
}

/// Marks them. The hints are for after the lock: the last of a locker may go in a ring, and its
/// claims come here then.
fn ring<'a>(locals: impl Iterator<Item = &'a mut Local>) -> Vec<Hint> {
    let mark = |local: &'a mut Local| {
        local.rung = true;
        local.hint.clone()
    };
    locals.map(mark).collect()
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
        let places =
            ["a", "b"].map(|name| folder.place(&LockName::new(Kind::Mutex, name).unwrap()));
        let locals = Locals::default();
        let bell = Arc::new(Notify::new());
        let [first, second] = [1, 2].map(OwnerId::new);
        let set = |place, owner, stage| locals.set(place, owner, stage, &Hint::none());
        let holds = Stage::Holds(OwnerId::new(7));
        set(&places[0], first, holds);
        assert!(!locals.anybody_waits(), "a holder does not wait");
        set(&places[0], second, Stage::Waits);
        set(&places[0], second, Stage::Waits);
        set(&places[1], second, Stage::Waits);
        locals.remove(&places[1], second);
        locals.remove(&places[1], second);
        assert!(locals.anybody_waits());
        set(&places[0], second, holds);
        assert!(!locals.anybody_waits(), "it was granted");
        locals.observe(&places[1], &bell);
        assert!(locals.anybody_waits());
        locals.observe_no_more(&places[1], &bell);
        locals.remove(&places[0], first);
        locals.remove(&places[0], second);
        assert!(!locals.anybody_waits() && locals.places().is_empty());
    }
}
