//! A small text beside a lock.

use crate::{
    error::{Error, ErrorKind, Result},
    name::Kind,
};

/// The longest text of a [`Note`], in bytes.
pub const MAX_NOTE_BYTES: usize = 16 * 1024;

/// A small text beside a lock: anybody reads it, and only the present holder writes it. It stays
/// when the lock is free.
///
/// The holder reads it, and writes the [next](Self::next) one: nobody else can have written between
/// the two.
///
/// ```
/// use lockkit_core::{Locker, Note, Noted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.mutex("report")?.lock().await?;
/// let before = locker.note(guard.name()).await?;
/// let next = before.next("done for 2026-11-22");
/// assert_eq!(guard.write_note(&next).await?, Noted::Written); // only the present holder can
/// assert_eq!(locker.note(guard.name()).await?, next);
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Which one it is, counted over all holders; zero before the first. A store never replaces one
    /// by an older one, so that a request which was late changes nothing.
    pub revision: u64,
    /// What it says.
    pub text: String,
}

impl Note {
    /// One that was read from a store.
    #[must_use]
    pub const fn new(revision: u64, text: String) -> Self {
        Self { revision, text }
    }

    /// The one to follow this one.
    #[must_use]
    pub fn next(&self, text: impl Into<String>) -> Self {
        Self { revision: self.revision.saturating_add(1), text: text.into() }
    }

    /// What a store does that is asked, by a claim that holds the lock, to put this one in the
    /// place of `stored`; it writes only if the answer is [`Noted::Written`] and the two differ.
    #[must_use]
    pub fn replaces(&self, stored: &Self) -> Noted {
        if self.revision > stored.revision || self == stored {
            Noted::Written
        } else {
            Noted::Outdated
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let length = self.text.len();
        if length > MAX_NOTE_BYTES {
            let text = format!("a note has {length} bytes, {MAX_NOTE_BYTES} are allowed");
            return Err(Error::new(ErrorKind::InvalidOption, text));
        }
        Ok(())
    }
}

/// What became of a [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It stands in the store.
    Written,
    /// The claim does not hold the lock (any more). Nothing was written.
    NotHeld,
    /// Another one of the same or a later revision stands in the store. Nothing was written.
    Outdated,
}

/// Where there may be a note: beside what one owner holds alone.
pub(crate) fn check_noted(kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Election | Kind::Mutex) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "only mutexes and elections have notes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_a_note_may_be_written_twice_and_an_older_one_never_replaces_it() {
        let none = Note::default();
        let first = none.next("a");
        let second = first.next("b");
        assert_eq!(first.replaces(&none), Noted::Written);
        assert_eq!(first.replaces(&first), Noted::Written);
        assert_eq!(second.replaces(&none), Noted::Written);
        assert_eq!(first.replaces(&second), Noted::Outdated);
        assert_eq!(Note::new(2, "c".to_owned()).replaces(&second), Noted::Outdated);
    }

    #[test]
    fn c13_a_note_that_is_too_long_is_refused() {
        let note = |bytes| Note::default().next("x".repeat(bytes));
        note(MAX_NOTE_BYTES).check().unwrap();
        let error = note(MAX_NOTE_BYTES + 1).check().unwrap_err();
        assert_eq!(error.to_string(), "a note has 16385 bytes, 16384 are allowed");
    }
}
