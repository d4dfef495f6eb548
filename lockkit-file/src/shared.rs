//! What a backend and its claims share: the store, and the thread that watches it.

use std::sync::{Arc, Mutex, PoisonError};

use lockkit_core::Result;

use crate::{store::Store, watching::Watcher};

/// What a backend and its claims share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<Store>,
    pub(crate) polling: bool,
    pub(crate) watcher: Mutex<Option<Watcher>>,
}

impl Shared {
    pub(crate) fn new(store: Store, polling: bool) -> Self {
        Self { store: Arc::new(store), polling, watcher: Mutex::default() }
    }

    /// From now on changes are heard.
    ///
    /// # Errors
    /// There is no room for a thread; the store is closed.
    pub(crate) fn watch(&self) -> Result<()> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.check_open()?;
        // One that has ended had an error.
        if watcher.as_ref().is_none_or(Watcher::is_over) {
            *watcher = Some(Watcher::start(Arc::clone(&self.store), self.polling)?);
        }
        Ok(())
    }

    /// Has the watcher look for cleanups.
    pub(crate) fn wake(&self) {
        // Without a thread, the next change of that name pays them. A closed store has none.
        if self.watch().is_ok()
            && let Some(watcher) = &*self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
        {
            watcher.wake();
        }
    }

    pub(crate) fn close(&self) {
        self.store.close();
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It ends, and is waited for, while nobody else waits for us.
        drop(watcher);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}
