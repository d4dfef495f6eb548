//! What operators ask of a store beside its locks.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{Diagnostic, Note, Role};
use crate::{
    error::{Error, Result},
    name::{Kind, LockName},
};

/// What a [`Backend`](super::Backend) answers to operators. What a store does not have need not be
/// implemented.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Asks the store for a sign of life, with one cheap request that changes nothing, and tells
    /// the part that its server plays.
    ///
    /// # Behavior
    /// * Depends on no lock: it works while nothing is held, and says nothing of what is.
    ///
    /// # Errors
    /// Whatever the store says: it can't be used now.
    async fn probe(&self) -> Result<Role>;

    /// The names of one kind that begin with `prefix` and that somebody holds or waits for. Only
    /// where the capability `names` is on.
    ///
    /// # Behavior
    /// * Changes nothing, and blocks nobody for long: a store with many names is asked page by
    ///   page.
    /// * A name that is taken or freed meanwhile may be in it or not; each name is in it once, in
    ///   no order.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let _ = (kind, prefix);
        Err(Error::unsupported("lists of names"))
    }

    /// The note beside a mutex or an election; an empty one of revision zero if nobody wrote one.
    /// Asked only for these kinds, where the capability `notes` is on.
    ///
    /// # Behavior
    /// * Changes nothing.
    /// * Tells what was written before it was asked, also when a server that lags behind is asked.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn note(&self, name: &LockName) -> Result<Note> {
        let _ = name;
        Err(Error::unsupported("notes"))
    }

    /// The wall clock of the store: the same for all who ask, unless the store moves to another
    /// server. Only where the capability `time` is on.
    ///
    /// # Behavior
    /// * Is read while the request is on its way; it may be set back and forth, as any wall clock.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn time(&self) -> Result<SystemTime> {
        Err(Error::unsupported("clock that can be asked"))
    }

    /// Looks at the settings and the state of the store that locks depend on: what it keeps over a
    /// crash, what a failover can lose, whether clocks agree. By default there is nothing to tell.
    ///
    /// # Behavior
    /// * Changes nothing, and asks for what a user without privileges may ask as well; what it may
    ///   not see is an [`Unknown`](super::Severity::Unknown) diagnostic, and no error.
    ///
    /// # Errors
    /// The store can't be asked at all.
    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        Ok(Vec::new())
    }
}
