//! Answers the questions of operators: who holds a lock, which names are in use, and whether the
//! store works.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::Locker;
use crate::{
    ask,
    driver::agenda::Agenda,
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
    spi::{Backend, Diagnostic, Inspection, Note, Released, Role, bounded, check_noted, operator},
    token::FencingToken,
};

/// The bound for a list of names, which may take any number of requests.
const LIST_PATIENCE: Duration = Duration::from_secs(30);

impl Locker {
    /// Reports the holders of a lock and the number of waiters
    /// ([C14](crate::contract#c14-inspection)).
    ///
    /// # Errors
    /// Any error of the store.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.inspector().inspect(name).await
    }

    pub(crate) fn inspector(&self) -> Inspector {
        Inspector {
            backend: Arc::clone(&self.backend),
            agenda: Arc::clone(self.keeper.agenda()),
            op_timeout: self.defaults.limits.op_timeout,
        }
    }

    /// Frees the grant with this token, whoever owns it. It is for operators: the holder learns of
    /// it late, or never.
    ///
    /// The answer is [`Released::NotHeld`] if the present grant has another token, or belongs to a
    /// client that is not lockkit.
    ///
    /// # Errors
    /// Any error of the store.
    ///
    /// # Cancel safety
    /// If the call is dropped, the lock may or may not have been freed. A second call is harmless.
    pub async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.open().map_err(|closed| self.explain(closed, "force release", name))?;
        let Some(stored) = token.get().checked_sub(self.keeper.locker().token_base) else {
            return Ok(Released::NotHeld);
        };
        let forcing = self.backend.force_release(name, FencingToken::new(stored));
        let forced = bounded(self.defaults.limits.op_timeout, forcing).await;
        if let Ok(Released::Freed) = forced {
            self.keeper.agenda().gates.freed(name, token);
        }
        forced.map_err(|error| self.explain(error, "force release", name))
    }

    /// The names of all kinds that begin with `prefix` and have a holder or a waiter, in order. An
    /// empty prefix lists all names. A name that is taken or freed meanwhile may be in the list or
    /// not. [Requests to release](Self::request_release) are not in the list.
    ///
    /// # Errors
    /// * [`ErrorKind::Unsupported`] if the backend can't list names.
    /// * [`ErrorKind::Unavailable`] if the list of one kind takes longer than 30 s, or than the
    ///   default ttl if that is longer.
    /// * Any error of the store.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn names(&self, prefix: &str) -> Result<Vec<LockName>> {
        let explain =
            |error: Error| error.with_operation("list names").with_backend(self.descriptor().name);
        let patience = self.defaults.limits.ttl.max(LIST_PATIENCE);
        if let Err(missing) = self.require(self.capabilities().names, "lists of names") {
            // If the backend can list names with other settings, its own error says which settings.
            let refused =
                bounded(patience, operator::names(&*self.backend, Kind::Mutex, prefix)).await.err();
            let told = refused.filter(|error| {
                error.kind() == ErrorKind::Unsupported && error.backend().is_some()
            });
            return Err(told.map_or(missing, explain));
        }
        self.open().map_err(explain)?;
        let mut names = Vec::new();
        for kind in Kind::ALL {
            names.extend(
                bounded(patience, operator::names(&*self.backend, kind, prefix))
                    .await
                    .map_err(explain)?,
            );
        }
        names.retain(|name| !ask::is_ask(name));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Asks the store for a sign of life. This depends on no lock: it works while nothing is held,
    /// and says nothing about held locks.
    ///
    /// # Errors
    /// The store can't be used now; the error says why.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn health(&self) -> Result<Health> {
        let explain = |error: Error| {
            error.with_operation("check health").with_backend(self.descriptor().name)
        };
        self.open().map_err(explain)?;
        let clock = self.keeper.locker().clock;
        let asked = clock.now();
        let role = bounded(self.defaults.limits.op_timeout, operator::probe(&*self.backend))
            .await
            .map_err(explain)?;
        Ok(Health { role, round_trip: asked.until(clock.now()) })
    }

    /// Returns the note beside a mutex or an election. [Its holders](crate::Hold::write_note) write
    /// the note. Before the first note, the answer is an empty note of revision zero.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend has no notes, or for another kind of lock.
    /// [`ErrorKind::Closed`], or any error of the store.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn note(&self, name: &LockName) -> Result<Note> {
        let explain = |error| self.explain(error, "read note", name);
        self.require(self.capabilities().notes, "notes").map_err(explain)?;
        check_noted(name.kind()).and_then(|()| self.open()).map_err(explain)?;
        let admin = operator::admin_of(&*self.backend, "notes").map_err(explain)?;
        bounded(self.defaults.limits.op_timeout, admin.note(name)).await.map_err(explain)
    }

    /// The wall clock of the store, which is the same for all clients.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend can't report the time. [`ErrorKind::Closed`], or
    /// any error of the store.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn time(&self) -> Result<SystemTime> {
        let explain =
            |error: Error| error.with_operation("ask time").with_backend(self.descriptor().name);
        self.require(self.capabilities().time, "requests for the server's time")
            .map_err(explain)?;
        self.open().map_err(explain)?;
        let admin = operator::admin_of(&*self.backend, "requests for the server's time")
            .map_err(explain)?;
        bounded(self.defaults.limits.op_timeout, admin.time()).await.map_err(explain)
    }

    /// Checks the settings and the state of the store that its locks depend on, and says what they
    /// mean. An empty answer means that nothing was checked.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`], or the error of a store that can't be asked.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        let explain =
            |error: Error| error.with_operation("diagnose").with_backend(self.descriptor().name);
        self.open().map_err(explain)?;
        bounded(LIST_PATIENCE, operator::diagnose(&*self.backend)).await.map_err(explain)
    }

    fn open(&self) -> Result<()> {
        if self.keeper.locker().is_draining() {
            return Err(closed());
        }
        Ok(())
    }
}

/// The parts of a locker that an inspection needs.
///
/// An inspection does not own the locker itself. The background task may have to finish the
/// inspection, and a locker in it would keep that task running for ever.
pub(crate) struct Inspector {
    backend: Arc<dyn Backend>,
    agenda: Arc<Agenda>,
    op_timeout: Duration,
}

impl Inspector {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let explain = |error: Error| {
            error
                .with_operation("inspect")
                .with_backend(self.backend.descriptor().name)
                .with_name(name)
        };
        if self.agenda.locker.is_draining() {
            return Err(explain(closed()));
        }
        let looking = bounded(self.op_timeout, self.backend.inspect(name));
        let mut inspection = looking.await.map_err(explain)?;
        let inside = self.agenda.gates.waiting(name);
        inspection.waiters = inspection
            .waiters
            .map(|outside| outside.saturating_add(inside.try_into().unwrap_or(u64::MAX)));
        let token_base = self.agenda.locker.token_base;
        for holder in &mut inspection.holders {
            holder.token =
                holder.token.map(|token| FencingToken::new(token.get().saturating_add(token_base)));
        }
        Ok(inspection)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the locker was shut down")
}

/// A sign of life of the store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The role of the server that answered.
    pub role: Role,
    /// The time from the request to its answer.
    pub round_trip: Duration,
}
