//! What operators ask of a store: who holds a lock, which names are in use, is it well.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::Locker;
use crate::{
    driver::agenda::Agenda,
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
    spi::{Backend, Diagnostic, Inspection, Note, Released, Role, bounded, check_noted, operator},
    token::FencingToken,
};

/// A list may take many requests, whose number nobody knows before.
const LIST_PATIENCE: Duration = Duration::from_secs(30);

impl Locker {
    /// Tells who holds a lock and how many wait for it ([C14](crate::contract#c14-inspection)).
    ///
    /// # Errors
    /// Whatever the store says.
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
            token_base: self.token_base,
            op_timeout: self.defaults.limits.op_timeout,
        }
    }

    /// Frees the grant with this token, whoever owns it. For operators: the holder learns it late,
    /// or never.
    ///
    /// Answers [`Released::NotHeld`] if the present grant has another token, or is no lockkit
    /// client's.
    ///
    /// # Errors
    /// Whatever the store says.
    ///
    /// # Cancel safety
    /// Dropped midway it may or may not have been done; doing it again is harmless.
    pub async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.open().map_err(|closed| self.explain(closed, "force release", name))?;
        let Some(stored) = token.get().checked_sub(self.token_base) else {
            return Ok(Released::NotHeld);
        };
        let forcing = self.backend.force_release(name, FencingToken::new(stored));
        let forced = bounded(self.defaults.limits.op_timeout, forcing).await;
        if let Ok(Released::Freed) = forced {
            self.keeper.agenda().gates.freed(name, token);
        }
        forced.map_err(|error| self.explain(error, "force release", name))
    }

    /// The names that begin with `prefix` and that somebody holds or waits for, of all kinds, in
    /// order. An empty prefix lists all. What is taken or freed meanwhile may be in it or not.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend can't list names, [`ErrorKind::Unavailable`] if
    /// the list of one kind takes longer than 30 s, or than the default ttl if that is longer, or
    /// whatever the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn names(&self, prefix: &str) -> Result<Vec<LockName>> {
        let explain =
            |error: Error| error.with_operation("list names").with_backend(self.descriptor().name);
        let patience = self.defaults.limits.ttl.max(LIST_PATIENCE);
        if let Err(missing) = self.require(self.capabilities().names, "lists of names") {
            // A backend that has them with other settings says which.
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
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Asks the store for a sign of life. Depends on no lock: it works while nothing is held, and
    /// says nothing of what is.
    ///
    /// # Errors
    /// The store can't be used now, and why.
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

    /// The note beside a mutex or an election, which [its holders](crate::Hold::write_note)
    /// write; an empty one of revision zero before the first.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend has no notes, or for another kind of lock,
    /// [`ErrorKind::Closed`], or whatever the store says.
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

    /// The wall clock of the store, which is the same for all who ask it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend can't tell, [`ErrorKind::Closed`], or whatever the
    /// store says.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn time(&self) -> Result<SystemTime> {
        let explain =
            |error: Error| error.with_operation("ask time").with_backend(self.descriptor().name);
        self.require(self.capabilities().time, "clock that can be asked").map_err(explain)?;
        self.open().map_err(explain)?;
        let admin =
            operator::admin_of(&*self.backend, "clock that can be asked").map_err(explain)?;
        bounded(self.defaults.limits.op_timeout, admin.time()).await.map_err(explain)
    }

    /// Looks at the settings and the state of the store that its locks depend on, and says what
    /// they mean. An empty answer says that nothing was looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`], or the store can't be asked.
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

/// What an inspection needs of a locker. What is left to the keeper to finish must not have the
/// locker itself, which the keeper would wait for, for ever.
pub(crate) struct Inspector {
    backend: Arc<dyn Backend>,
    agenda: Arc<Agenda>,
    token_base: u64,
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
        for holder in &mut inspection.holders {
            holder.token = holder
                .token
                .map(|token| FencingToken::new(token.get().saturating_add(self.token_base)));
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
    /// The part that the server plays which answered.
    pub role: Role,
    /// From the request to its answer.
    pub round_trip: Duration,
}
