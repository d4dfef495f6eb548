//! The store and its watcher thread, which a backend and its claims share.

use std::sync::{Arc, Mutex, PoisonError};

use lockkit_core::Result;

use crate::{store::Store, watching::Watcher};

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

    /// Makes sure that a watcher hears of changes from now on.
    ///
    /// # Errors
    /// The system has no room for a thread, or the store is closed.
    pub(crate) fn watch(&self) -> Result<()> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.check_open()?;
        // A watcher that has ended had an error.
        if watcher.as_ref().is_none_or(Watcher::is_over) {
            *watcher = Some(Watcher::start(Arc::clone(&self.store), self.polling)?);
        }
        Ok(())
    }

    /// Asks the watcher to look for cleanups.
    pub(crate) fn wake(&self) {
        // If there is no thread, the next change of that name does the cleanup. A closed store has
        // none to do.
        if self.watch().is_ok()
            && let Some(watcher) = &*self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
        {
            watcher.wake();
        }
    }

    pub(crate) fn close(&self) {
        self.store.close();
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The watcher ends, and this waits for it, while the mutex is free.
        drop(watcher);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}
