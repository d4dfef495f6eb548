//! What was run under a lock, and which slots are done: JSON in the [note](lockkit::Note) beside
//! the lock.
//!
//! Only the holder writes, so that reading and writing the next one needs no other lock.

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

/// The journal of one lock, as it was read or written last.
#[derive(Debug)]
pub(crate) struct Journal {
    note: Note,
    pub(crate) record: Record,
}

/// What became of a record that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOutcome {
    Written,
    /// The lock is not held any more.
    Lost,
    /// Nor that; but it was while this was asked for, and it may have been written.
    Perhaps,
}

impl Journal {
    /// The journal of a lock; none where the store has no notes.
    ///
    /// # Errors
    /// The store can't be asked, or another program wrote the note: it is never overwritten.
    pub(crate) async fn read(locker: &Locker, name: &LockName) -> Result<Option<Self>> {
        if !locker.capabilities().notes {
            return Ok(None);
        }
        let note = locker.note(name).await?;
        let record = Record::parse(&note.text).map_err(|reason| {
            Error::new(format!(
                "the note beside {name} is no journal of this lockkit: {reason}; it is left as it is: use another name, \
                 or remove the note from the store"
            ))
        })?;
        Ok(Some(Self { note, record }))
    }

    /// Writes what `change` makes of the record, if the lock is still held.
    ///
    /// # Errors
    /// It does not fit, or the store was asked in vain.
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
                    "the note beside {name} was written by somebody who does not hold the lock"
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

/// Done slots take all the room.
struct TooLong<'a>(&'a LockName);

impl fmt::Display for TooLong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "the note beside {name} has no room for one more slot that is done: use shorter keys, a shorter --keep, or \
             one name for each family of keys"
        )
    }
}

/// Where there can be one: beside what one owner holds alone.
pub(crate) const fn has_history(kind: Kind) -> bool {
    matches!(kind, Kind::Election | Kind::Mutex)
}

/// What is said of a lock whose slots can't be remembered; before a job is run in vain.
pub(crate) fn no_room(name: &LockName) -> Error {
    Error::new(TooLong(name).to_string())
}
