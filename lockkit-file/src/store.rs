//! What the claims, the watcher and the backend share: the folder, our session, and how a record is read and changed.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use lockkit_core::{ErrorKind, OwnerId, Result};

use crate::{
    error::stranger,
    files,
    folder::{Folder, Place},
    gate::Gate,
    host::{self, Now},
    locals::Locals,
    record::Record,
    session::{self, Session, SessionId, closed},
};

/// A record that is torn each time is none.
const MOST_TRIES: u32 = 50;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) folder: Folder,
    pub(crate) locals: Locals,
    boot: String,
    session: Mutex<Ours>,
}

#[derive(Debug)]
enum Ours {
    Closed,
    Open(Option<Arc<Session>>),
}

impl Store {
    pub(crate) fn new(folder: Folder) -> Self {
        let session = Mutex::new(Ours::Open(None));
        Self { folder, locals: Locals::default(), boot: host::boot_id(), session }
    }

    pub(crate) fn now(&self) -> Now {
        Now::of(&self.boot)
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

    pub(crate) fn close(&self) {
        let mut ours = self.lock();
        if let Ours::Open(Some(session)) = &*ours {
            session.end();
        }
        *ours = Ours::Closed;
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

    /// A record as it is in its file, from outside the gate.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for what is none of ours; what the system says.
    pub(crate) fn read(&self, place: &Place) -> Result<Record> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.read_inside(place) {
                // It may have become the spare one while we read it, and have been written over.
                Err(error) if error.kind() == ErrorKind::WrongType && tries < MOST_TRIES => {
                    thread::yield_now()
                }
                record => return record,
            }
        }
    }

    /// A record as it is in its file, from inside the gate.
    fn read_inside(&self, place: &Place) -> Result<Record> {
        let content = files::read(&place.record)?;
        match Record::parse(&content.bytes, &place.name) {
            // Nobody who holds it now can have written that.
            Err(_) if Record::is_rest(&content.bytes) && self.now().is_before_boot(content.written) => {
                Ok(Record::new(&place.name))
            }
            record => record.map_err(|reason| stranger(&place.record, &reason)),
        }
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

    /// Changes a record by `work`, on behalf of `asker`, and then does `after` before anybody else can change it.
    ///
    /// # Errors
    /// As [`Gate::enter`] and [`read`](Self::read), or of `work`: then nothing has changed. One whose outcome is unknown
    /// if the new record may have got into place.
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
        let gate = Gate::enter(&self.folder, place, patience).await?;
        let stored = self.read_inside(place)?;
        let (mut record, now) = (stored.clone(), self.now());
        self.drop_dead(&mut record)?;
        record.skip_idle(asker, &now);
        let answer = work(&mut record, &now)?;
        record.settle(&now);
        if record != stored {
            let bytes = record.to_bytes()?;
            gate.check()?;
            files::replace(&place.record, &bytes, || gate.check())?;
        }
        after(&answer);
        drop(gate);
        // Those of this process need not wait for the system to tell.
        self.locals.hear(place, Some(&record));
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, Ours> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
