//! What the claims, the watcher and the backend share: the folder, our session, and how a record is
//! read and changed.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lockkit_core::{OwnerId, Result};

use crate::{
    debts::Debts,
    error::{from_io, newer, stranger},
    files::{self, Content, Draft, Stamp},
    folder::{Folder, Place},
    gate::Gate,
    host::Now,
    kept::{Kept, Written},
    locals::Locals,
    record::Record,
    session::{self, Session, SessionId, closed},
    turns::Turns,
};

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) folder: Folder,
    pub(crate) locals: Locals,
    pub(crate) debts: Debts,
    pub(crate) kept: Kept,
    turns: Turns,
    session: Mutex<Ours>,
}

#[derive(Debug)]
enum Ours {
    Closed,
    Open(Option<Arc<Session>>),
}

impl Store {
    pub(crate) fn new(folder: Folder, kept: Kept) -> Self {
        let session = Mutex::new(Ours::Open(None));
        Self {
            folder,
            locals: Locals::default(),
            debts: Debts::default(),
            kept,
            turns: Turns::default(),
            session,
        }
    }

    /// Our session, or a new one if there is none, or if it is over.
    ///
    /// # Errors
    /// What the system says; the store is closed.
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

    /// Our session as it is.
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
        self.kept.clear();
    }

    /// Whether that session has ended.
    ///
    /// # Errors
    /// What the system says: it may live.
    pub(crate) fn is_dead(&self, id: SessionId) -> Result<bool> {
        match self.present_session() {
            Some(ours) if ours.id == id => Ok(!ours.stands()?),
            _ => session::is_dead(&self.folder, id),
        }
    }

    /// A record as it is in its file, for whoever is outside of its gate.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for what is none of ours, and
    /// [`ErrorKind::NewerFormat`](lockkit_core::ErrorKind::NewerFormat); what the system says.
    pub(crate) fn read(&self, place: &Place) -> Result<Record> {
        self.read_stamped(place).map(|(_, record)| record)
    }

    /// And which file it is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_stamped(&self, place: &Place) -> Result<(Stamp, Record)> {
        let content = files::read_shared(&place.record)?;
        Ok((content.stamp, Self::parse(place, &content)?))
    }

    /// A record for whoever is inside its gate: nobody else replaces it, or writes it over.
    ///
    /// # Errors
    /// As [`read`](Self::read), and as [`Gate::check`].
    pub(crate) fn read_inside(gate: &Gate, place: &Place) -> Result<Record> {
        let read = files::read(&place.record).and_then(|content| Self::parse(place, &content));
        if read.is_err() {
            // Who came in by another gate may have written it over.
            gate.check()?;
        }
        read
    }

    fn parse(place: &Place, content: &Content) -> Result<Record> {
        Record::parse(&content.bytes, &place.name)
            .or_else(|reason| Self::unread(place, content, &reason))
    }

    /// What stands for a file that can't be read.
    fn unread(place: &Place, content: &Content, reason: &str) -> Result<Record> {
        // First: one that is whole is no rest, though it was written before the boot.
        if let Some(format) = Record::newer(&content.bytes) {
            return Err(newer(&place.record, format));
        }
        // Nobody who holds it now can have written that.
        if Record::is_rest(&content.bytes) && Now::tell().is_before_boot(content.stamp.written) {
            return Ok(Record::new(&place.name));
        }
        Err(stranger(&place.record, reason))
    }

    /// A record without the dead.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_living(&self, place: &Place) -> Result<Record> {
        let mut record = self.read(place)?;
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

    /// Drops so many of the dead that it is known who can be granted next. True if there were any.
    ///
    /// # Errors
    /// What the system says.
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

    /// Changes a record by `work`, on behalf of `asker`, and then does `after` before anybody else
    /// can change it.
    ///
    /// # Errors
    /// As [`Gate::enter`] and [`read`](Self::read), or of `work`: then nothing has changed. One
    /// whose outcome is unknown if the new record may have got into place.
    ///
    /// # Cancel safety
    /// Cancel safe: it is done in one step, or not at all.
    pub(crate) async fn change<T>(
        &self,
        place: &Place,
        asker: Option<OwnerId>,
        patience: Duration,
        work: impl FnOnce(&mut Record, &Now) -> Result<T>,
        after: impl FnOnce(&T),
    ) -> Result<T> {
        self.turns.wait().await;
        let gate = Gate::enter(&self.folder, &self.kept, place, patience).await?;
        self.change_inside(gate, place, asker, work, after)
    }

    fn change_inside<T>(
        &self,
        mut gate: Gate,
        place: &Place,
        asker: Option<OwnerId>,
        work: impl FnOnce(&mut Record, &Now) -> Result<T>,
        after: impl FnOnce(&T),
    ) -> Result<T> {
        let known = gate.written.take().filter(|written| written.is_at(&place.record));
        let read;
        let stored = match &known {
            Some(written) => &written.record,
            None => {
                read = Self::read_inside(&gate, place)?;
                &read
            }
        };
        let mut record = stored.clone();
        let now = Now::tell();
        let owed = self.debts.of(place);
        self.drop_dead(&mut record)?;
        // Whatever was left of them: those who owed it were told then.
        let _ = record.release(&owed);
        record.skip_idle(asker, &now);
        let answer = work(&mut record, &now)?;
        record.settle(&now);
        let has_changed = record != *stored;
        gate.written = if has_changed { put(&gate, place, &mut record)? } else { known };
        self.debts.paid(place, &owed);
        after(&answer);
        gate.leave(&self.kept, place);
        // Those of this process need not wait for the system to tell.
        self.locals.hear(place, Some(&record));
        if has_changed {
            self.locals.tell_observers(place);
        }
        Ok(answer)
    }

    /// Takes out of the records what claims have left in them. What can't be done now remains.
    pub(crate) fn pay_debts(&self) {
        for place in self.debts.places() {
            let paid =
                Gate::enter_now(&self.folder, &self.kept, &place).and_then(|gate| match gate {
                    Some(gate) => self.change_inside(gate, &place, None, |_, _| Ok(()), |()| {}),
                    None => Ok(()),
                });
            if let Err(error) = paid {
                tracing::debug!(name = %place.name, %error, "a lock that was given up is still in its record");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ours> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a record. Nobody else is inside.
fn put(gate: &Gate, place: &Place, record: &mut Record) -> Result<Option<Written>> {
    if let Some(former) = record.pass(gate.number()) {
        // Whoever is stopped inside a gate that was removed must not find his draft when he goes
        // on.
        let draft = place.draft(former);
        files::remove(&draft).map_err(|error| from_io(error, "removing", &draft))?;
    }
    let draft = Draft::write(place.draft(gate.number()), &record.to_bytes()?)?;
    if let Err(error) = gate.check() {
        draft.discard();
        return Err(error);
    }
    Ok(Written::new(draft.swap(&place.record)?, record.clone()))
}

#[cfg(test)]
mod tests;
