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
pub(crate) struct Locals(Mutex<HashMap<String, Entry>>);

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
        let mut entries = self.lock();
        let entry = entry(&mut entries, place);
        entry.claims.retain(|local| local.owner != owner);
        entry.claims.push(Local { owner, stage, hint: hint.clone(), rung: false });
    }

    /// This claim looks now.
    pub(crate) fn looks(&self, place: &Place, owner: OwnerId) {
        if let Some(entry) = self.lock().get_mut(&place.key) {
            entry.claims.iter_mut().filter(|local| local.owner == owner).for_each(|local| local.rung = false);
        }
    }

    pub(crate) fn remove(&self, place: &Place, owner: OwnerId) {
        self.edit(place, |entry| entry.claims.retain(|local| local.owner != owner));
    }

    pub(crate) fn observe(&self, place: &Place, observer: &Arc<Notify>) {
        entry(&mut self.lock(), place).observers.push(Arc::clone(observer));
    }

    pub(crate) fn observe_no_more(&self, place: &Place, observer: &Arc<Notify>) {
        self.edit(place, |entry| entry.observers.retain(|other| !Arc::ptr_eq(other, observer)));
    }

    fn edit(&self, place: &Place, edit: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(&place.key) {
            edit(entry);
            if entry.claims.is_empty() && entry.observers.is_empty() {
                entries.remove(&place.key);
            }
        }
    }

    /// The lock with these files, if anybody here cares.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        self.lock().get(key).map(|entry| entry.place.clone())
    }

    /// All locks that anybody here cares about.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.lock().values().map(|entry| entry.place.clone()).collect()
    }

    /// The locks that anybody here waits for or observes.
    pub(crate) fn awaited(&self) -> Vec<Place> {
        let cares = |entry: &&Entry| {
            !entry.observers.is_empty() || entry.claims.iter().any(|local| local.stage == Stage::Waits)
        };
        self.lock().values().filter(cares).map(|entry| entry.place.clone()).collect()
    }

    /// Rings those that can be granted and don't know it, and those that hold no more. `None`: all of them, as the
    /// record can't be read.
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
        let Some(entry) = entries.get_mut(&place.key) else { return };
        let hints = ring(entry.claims.iter_mut().filter(|local| concerns(local) && !local.rung));
        drop(entries);
        hints.iter().for_each(Hint::ring);
    }

    /// Something has changed there.
    pub(crate) fn tell_observers(&self, place: &Place) {
        if let Some(entry) = self.lock().get(&place.key) {
            entry.observers.iter().for_each(|observer| observer.notify_one());
        }
    }

    /// Rings all: their session is over.
    pub(crate) fn ring_all(&self) {
        let hints = ring(self.lock().values_mut().flat_map(|entry| &mut entry.claims));
        hints.iter().for_each(Hint::ring);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks them. The hints are for after the lock: the last of a locker may go in a ring, and its claims come here then.
fn ring<'a>(locals: impl Iterator<Item = &'a mut Local>) -> Vec<Hint> {
    let mark = |local: &'a mut Local| {
        local.rung = true;
        local.hint.clone()
    };
    locals.map(mark).collect()
}

fn entry<'a>(entries: &'a mut HashMap<String, Entry>, place: &Place) -> &'a mut Entry {
    entries.entry(place.key.clone()).or_insert_with(|| Entry {
        place: place.clone(),
        claims: Vec::new(),
        observers: Vec::new(),
    })
}
