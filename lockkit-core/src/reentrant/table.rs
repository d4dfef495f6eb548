//! Records the mutexes that one owner holds or asks for. It has no entries for idle names.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::SetOnce;

use crate::{
    driver::{held::Held, request::Bound},
    error::Error,
    name::LockName,
};

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Mutex<HashMap<LockName, Entry>>,
}

#[derive(Debug)]
enum Entry {
    /// A call of this owner asks the store.
    Asked(Arc<Asking>),
    Hold {
        held: Arc<Held>,
        guards: usize,
    },
}

/// A call that asks the store. Other calls of the owner wait for its end.
#[derive(Debug)]
pub(super) struct Asking {
    /// How long the call is ready to wait.
    pub(super) bound: Bound,
    /// How long the call tolerates a store that is in trouble.
    pub(super) ttl: Duration,
    pub(super) end: SetOnce<End>,
}

/// The end of the call that asked the store.
#[derive(Debug)]
pub(super) enum End {
    Failed(Error),
    /// The call has the lock, or was cancelled.
    Open,
    /// The call found that another owner has the lock.
    Taken,
}

/// The next step of a call.
pub(super) enum Part {
    /// Ask the store.
    Ask(Asker),
    /// Join this hold of the owner. The table has counted one more guard for it.
    Join(Arc<Held>),
    /// Wait for the end of another call.
    Wait(Arc<Asking>),
}

impl Table {
    pub(super) fn enter(self: &Arc<Self>, name: &LockName, bound: Bound, ttl: Duration) -> Part {
        let mut entries = self.lock();
        match entries.get_mut(name) {
            Some(Entry::Hold { held, guards }) => {
                *guards += 1;
                Part::Join(Arc::clone(held))
            }
            Some(Entry::Asked(asking)) => Part::Wait(Arc::clone(asking)),
            None => {
                let asking = Arc::new(Asking { bound, ttl, end: SetOnce::new() });
                entries.insert(name.clone(), Entry::Asked(Arc::clone(&asking)));
                let table = Arc::clone(self);
                let name = name.clone();
                Part::Ask(Asker { table, name, asking, end: End::Open })
            }
        }
    }

    /// Counts one guard less. Returns true if it was the last one. The name is then idle, and the
    /// next call asks the store.
    pub(super) fn leave(&self, name: &LockName) -> bool {
        let mut entries = self.lock();
        match entries.get_mut(name) {
            Some(Entry::Hold { guards, .. }) if *guards > 1 => {
                *guards -= 1;
                false
            }
            _ => {
                let _idle = entries.remove(name);
                true
            }
        }
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one call that asks the store. However it ends, the other calls continue.
pub(super) struct Asker {
    table: Arc<Table>,
    name: LockName,
    asking: Arc<Asking>,
    end: End,
}

impl Asker {
    pub(super) fn ends(mut self, end: End) {
        self.end = end;
    }

    pub(super) fn won(self, held: &Arc<Held>) {
        let hold = Entry::Hold { held: Arc::clone(held), guards: 1 };
        self.table.lock().insert(self.name.clone(), hold);
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        {
            let mut entries = self.table.lock();
            if let Some(Entry::Asked(_)) = entries.get(&self.name) {
                entries.remove(&self.name);
            }
        }
        // This wakes tasks, so it runs without the lock. Only this place sets the value.
        let _ = self.asking.end.set(mem::replace(&mut self.end, End::Open));
    }
}
