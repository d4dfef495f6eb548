//! Records the runs under a lock and the slots that are done, as JSON in the [note](lockkit::Note)
//! beside the lock.
//!
//! Only the holder writes it, so that the holder needs no other lock to read the note and write the
//! next one.

mod record;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;

use lockkit::{Kind, LockGuard, LockName, Locker, Note, Noted};

pub(crate) use self::{
    record::{MAX_KEY_BYTES, Record},
    run::{Run, host, unix_ms},
};
use crate::error::{Error, Result};

/// The journal of one lock, as it was last read or written.
#[derive(Debug)]
pub(crate) struct Journal {
    note: Note,
    pub(crate) record: Record,
}

/// The result of an attempt to write a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOutcome {
    Written,
    /// The lock is not held any more.
    Lost,
    /// The lock is not held any more. It was held when the request was sent, so the record may have
    /// been written.
    Perhaps,
}

impl Journal {
    /// The journal of a lock; `None` if the store has no notes.
    ///
    /// # Errors
    /// The store can't be read, or another program wrote the note. lockkit never overwrites such a
    /// note.
    pub(crate) async fn read(locker: &Locker, name: &LockName) -> Result<Option<Self>> {
        if !locker.capabilities().notes {
            return Ok(None);
        }
        let note = locker.note(name).await?;
        let record = Record::parse(&note.text).map_err(|reason| {
            Error::new(format!(
                "could not read the note beside {name} as a journal of lockkit: {reason}; lockkit \
                 did not change it; use another name, or remove the note from the store"
            ))
        })?;
        Ok(Some(Self { note, record }))
    }

    /// Applies `change` to the record and writes it, if the lock is still held.
    ///
    /// # Errors
    /// The record does not fit, the store can't be written, or another program wrote the note.
    pub(crate) async fn write(
        &mut self,
        guard: &LockGuard,
        change: impl FnOnce(&mut Record),
    ) -> Result<RecordOutcome> {
        let mut record = self.record.clone();
        change(&mut record);
        let text = record.to_text().ok_or_else(|| Error::new(TooLong(guard.name()).to_string()))?;
        let note = self.note.next(text);
        match guard.write_note(&note).await {
            Ok(Noted::Written) => {
                *self = Self { note, record };
                Ok(RecordOutcome::Written)
            }
            Ok(Noted::NotHeld) => Ok(RecordOutcome::Lost),
            Ok(Noted::Outdated) => {
                let name = guard.name();
                Err(Error::new(format!(
                    "another client wrote the note beside {name} without the lock"
                )))
            }
            Err(error) if error.kind() == lockkit::ErrorKind::Lost => {
                Ok(if error.is_outcome_unknown() {
                    RecordOutcome::Perhaps
                } else {
                    RecordOutcome::Lost
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The error when done slots take all the room.
struct TooLong<'a>(&'a LockName);

impl fmt::Display for TooLong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "the note beside {name} has no room for one more finished slot; use shorter keys, a \
             shorter --keep, or one name for each family of keys"
        )
    }
}

/// Whether locks of this kind have a history: only those that one owner holds alone.
pub(crate) const fn has_history(kind: Kind) -> bool {
    matches!(kind, Kind::Election | Kind::Mutex)
}

/// The error for a lock whose slots can't be remembered. It comes before a job runs in vain.
pub(crate) fn no_room(name: &LockName) -> Error {
    Error::new(TooLong(name).to_string())
}
