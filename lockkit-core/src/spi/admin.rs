//! Defines the questions that operators ask of a store beside its locks.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{Diagnostic, Note, Role};
use crate::{
    error::{Error, Result},
    name::{Kind, LockName},
};

/// The answers of a [`Backend`](super::Backend) to operators. A store implements only the methods
/// for features that it has.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Asks the store for a sign of life, with one cheap request that changes nothing. The answer
    /// is the role of its server.
    ///
    /// # Behavior
    /// * Depends on no lock: it works while nothing is held, and says nothing about held locks.
    ///
    /// # Errors
    /// Any error of the store, which can't be used now.
    async fn probe(&self) -> Result<Role>;

    /// The names of one kind that begin with `prefix` and have a holder or a waiter. The core calls
    /// this only where the capability `names` is on.
    ///
    /// # Behavior
    /// * Changes nothing, and blocks no other request for long: it reads a store with many names
    ///   page by page.
    /// * A name that is taken or freed meanwhile may be in the list or not. Each name is listed
    ///   once; the list has no order.
    ///
    /// # Errors
    /// Any error of the store.
    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let _ = (kind, prefix);
        Err(Error::unsupported("lists of names"))
    }

    /// The note beside a mutex or an election. If there is none, the answer is an empty note of
    /// revision zero. The core asks only for these kinds, where the capability `notes` is on.
    ///
    /// # Behavior
    /// * Changes nothing.
    /// * Reports each note that was written before the question, even if it asks a server that lags
    ///   behind.
    ///
    /// # Errors
    /// Any error of the store.
    async fn note(&self, name: &LockName) -> Result<Note> {
        let _ = name;
        Err(Error::unsupported("notes"))
    }

    /// The wall clock of the store: the same for all clients, unless the store moves to another
    /// server. The core calls this only where the capability `time` is on.
    ///
    /// # Behavior
    /// * The store reads the clock while the request is on its way. Like any wall clock, it may be
    ///   set forward and back.
    ///
    /// # Errors
    /// Any error of the store.
    async fn time(&self) -> Result<SystemTime> {
        Err(Error::unsupported("requests for the server's time"))
    }

    /// Checks the settings and the state of the store that locks depend on. It checks what the
    /// store keeps over a crash, what a failover can lose, and whether clocks agree. By default
    /// there is nothing to report.
    ///
    /// # Behavior
    /// * Changes nothing, and asks only questions that a user without privileges may ask as well. A
    ///   hidden setting gives an [`Unknown`](super::Severity::Unknown) diagnostic, and no error.
    ///
    /// # Errors
    /// The store does not answer at all.
    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        Ok(Vec::new())
    }
}
