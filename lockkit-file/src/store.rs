//! Reads and changes records, for the claims, the watcher and the backend. It has the folder and
//! our session.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lockkit_core::{OwnerId, Result};

use crate::{
    cleanups::Cleanups,
    error::{from_io, newer, stranger},
    files::{self, Content, Draft, Stamp},
    folder::{Folder, LockPaths},
    gate::Gate,
    gate_cache::{GateCache, Written},
    host::Now,
    local_claims::LocalClaims,
    record::Record,
    session::{self, Session, SessionId, closed},
    turns::Turns,
};

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) folder: Folder,
    pub(crate) local_claims: LocalClaims,
    pub(crate) cleanups: Cleanups,
    pub(crate) gates: GateCache,
    turns: Turns,
    session: Mutex<Ours>,
}

#[derive(Debug)]
enum Ours {
    Closed,
    Open(Option<Arc<Session>>),
}

impl Store {
    pub(crate) fn new(folder: Folder, gates: GateCache) -> Self {
        let session = Mutex::new(Ours::Open(None));
        Self {
            folder,
            local_claims: LocalClaims::default(),
            cleanups: Cleanups::default(),
            gates,
            turns: Turns::default(),
            session,
        }
    }

    /// Our session, or a new one if there is none or if it is over.
    ///
    /// # Errors
    /// An error of the system, or the store is closed.
    pub(crate) fn session(&self) -> Result<Arc<Session>> {
        let mut ours = self.lock();
        let Ours::Open(present) = &mut *ours else { return Err(closed()) };
        if let Some(session) = present
            && session.stands()?
        {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::begin(&self.folder)?);
        *present = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Our session, which may be over.
    pub(crate) fn present_session(&self) -> Option<Arc<Session>> {
        match &*self.lock() {
            Ours::Open(session) => session.clone(),
            Ours::Closed => None,
        }
    }

    /// # Errors
    /// The store is closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if matches!(*self.lock(), Ours::Closed) { Err(closed()) } else { Ok(()) }
    }

    pub(crate) fn close(&self) {
        let mut ours = self.lock();
        if let Ours::Open(Some(session)) = &*ours {
            session.end();
        }
        *ours = Ours::Closed;
        self.gates.clear();
    }

    /// Whether this session has ended.
    ///
    /// # Errors
    /// An error of the system: the session may live.
    pub(crate) fn is_dead(&self, id: SessionId) -> Result<bool> {
        match self.present_session() {
            Some(ours) if ours.id == id => Ok(!ours.stands()?),
            _ => session::is_dead(&self.folder, id),
        }
    }

    /// The record as it is in its file, for a caller outside of its gate.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a file that is not
    /// lockkit's, [`ErrorKind::NewerFormat`](lockkit_core::ErrorKind::NewerFormat), or an error of
    /// the system.
    pub(crate) fn read(&self, paths: &LockPaths) -> Result<Record> {
        self.read_stamped(paths).map(|(_, record)| record)
    }

    /// The record with the stamp of its file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_stamped(&self, paths: &LockPaths) -> Result<(Stamp, Record)> {
        let content = files::read_shared(&paths.record)?;
        Ok((content.stamp, Self::parse(paths, &content)?))
    }

    /// The record for a caller inside its gate: no other process replaces or overwrites it.
    ///
    /// # Errors
    /// As [`read`](Self::read), and as [`Gate::check`].
    pub(crate) fn read_inside(gate: &Gate, paths: &LockPaths) -> Result<Record> {
        let read = files::read(&paths.record).and_then(|content| Self::parse(paths, &content));
        if read.is_err() {
            // A process that entered by another gate may have overwritten it.
            gate.check()?;
        }
        read
    }

    fn parse(paths: &LockPaths, content: &Content) -> Result<Record> {
        Record::parse(&content.bytes, &paths.name)
            .or_else(|reason| Self::unread(paths, content, &reason))
    }

    /// The record to use for a file that can't be read.
    fn unread(paths: &LockPaths, content: &Content, reason: &str) -> Result<Record> {
        // This comes first: a whole record of a newer format is no rest, even if it was written
        // before the boot.
        if let Some(format) = Record::newer(&content.bytes) {
            return Err(newer(&paths.record, format));
        }
        // No present holder can have written such bytes.
        if Record::is_rest(&content.bytes) && Now::tell().is_before_boot(content.stamp.written) {
            return Ok(Record::new(&paths.name));
        }
        Err(stranger(&paths.record, reason))
    }

    /// The record without dead holders and waiters.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_living(&self, paths: &LockPaths) -> Result<Record> {
        let mut record = self.read(paths)?;
        self.drop_dead(&mut record)?;
        Ok(record)
    }

    pub(crate) fn drop_dead(&self, record: &mut Record) -> Result<()> {
        let mut dead = Vec::new();
        for session in record.sessions() {
            if self.is_dead(session)? {
                dead.push(session);
            }
        }
        record.without(&dead);
        Ok(())
    }

    /// Drops as many dead as necessary to know which waiters can be granted next. Returns true if
    /// there were any.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn drop_dead_in_front(&self, record: &mut Record) -> Result<bool> {
        let mut any = false;
        loop {
            let mut dead = Vec::new();
            for session in record.front() {
                if self.is_dead(session)? {
                    dead.push(session);
                }
            }
            if dead.is_empty() {
                return Ok(any);
            }
            any = true;
            record.without(&dead);
        }
    }

    /// Changes a record by `work`, on behalf of `asker`. Then does `after`, before any other
    /// process can change the record.
    ///
    /// # Errors
    /// As [`Gate::enter`] and [`read`](Self::read), or an error of `work`: then nothing has
    /// changed. The outcome of an error is unknown if the new record may be in place.
    ///
    /// # Cancel safety
    /// Cancel safe: the change happens in one step, or not at all.
    pub(crate) async fn change<T>(
        &self,
        paths: &LockPaths,
        asker: Option<OwnerId>,
        patience: Duration,
        work: impl FnOnce(&mut Record, &Now) -> Result<T>,
        after: impl FnOnce(&T),
    ) -> Result<T> {
        self.turns.wait().await;
        let gate = Gate::enter(&self.folder, &self.gates, paths, patience).await?;
        self.change_inside(gate, paths, asker, work, after)
    }

    fn change_inside<T>(
        &self,
        mut gate: Gate,
        paths: &LockPaths,
        asker: Option<OwnerId>,
        work: impl FnOnce(&mut Record, &Now) -> Result<T>,
        after: impl FnOnce(&T),
    ) -> Result<T> {
        let known = gate.written.take().filter(|written| written.is_at(&paths.record));
        let read;
        let stored = match &known {
            Some(written) => &written.record,
            None => {
                read = Self::read_inside(&gate, paths)?;
                &read
            }
        };
        let mut record = stored.clone();
        let now = Now::tell();
        let leftover = self.cleanups.of(paths);
        self.drop_dead(&mut record)?;
        // The answer does not matter: the claims that left these owners have had their errors.
        let _ = record.release(&leftover);
        record.skip_idle(asker, &now);
        let answer = work(&mut record, &now)?;
        record.settle(&now);
        let has_changed = record != *stored;
        gate.written = if has_changed { put(&gate, paths, &mut record)? } else { known };
        self.cleanups.done(paths, &leftover);
        after(&answer);
        gate.leave(&self.gates, paths);
        // The claims of this process need not wait for a report of the system.
        self.local_claims.hear(paths, Some(&record));
        if has_changed {
            self.local_claims.tell_observers(paths);
        }
        Ok(answer)
    }

    /// Removes from the records what claims have left there. A removal that fails remains to be
    /// done.
    pub(crate) fn clean_up(&self) {
        for paths in self.cleanups.all_paths() {
            let done =
                Gate::enter_now(&self.folder, &self.gates, &paths).and_then(|gate| match gate {
                    Some(gate) => self.change_inside(gate, &paths, None, |_, _| Ok(()), |()| {}),
                    None => Ok(()),
                });
            if let Err(error) = done {
                tracing::debug!(name = %paths.name, %error, "a lock that its holder gave up is \
                                                             still in its record");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ours> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a record. No other process is inside the gate.
fn put(gate: &Gate, paths: &LockPaths, record: &mut Record) -> Result<Option<Written>> {
    if let Some(former) = record.pass(gate.number()) {
        // A process that is stopped inside a removed gate must not find its draft when it
        // continues.
        let draft = paths.draft(former);
        files::remove(&draft).map_err(|error| from_io(error, "removing", &draft))?;
    }
    let draft = Draft::write(paths.draft(gate.number()), &record.to_bytes()?)?;
    if let Err(error) = gate.check() {
        draft.discard();
        return Err(error);
    }
    Ok(Written::new(draft.swap(&paths.record)?, record.clone()))
}

#[cfg(test)]
mod tests;
