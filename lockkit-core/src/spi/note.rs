//! Defines the note: a small text beside a lock.

use crate::{
    error::{Error, ErrorKind, Result},
    name::Kind,
};

/// The longest text of a [`Note`], in bytes.
pub const MAX_NOTE_BYTES: usize = 16 * 1024;

/// A small text beside a lock: every client can read it, and only the present holder writes it. It
/// stays when the lock is free.
///
/// The holder reads the note, and writes the [next](Self::next) one. No other client can write
/// between the two.
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
    /// The number of this version, counted over all holders; zero before the first note. A store
    /// never replaces a note by an older one, so a late request changes nothing.
    pub revision: u64,
    /// The text.
    pub text: String,
}

impl Note {
    /// A note that was read from a store.
    #[must_use]
    pub const fn new(revision: u64, text: String) -> Self {
        Self { revision, text }
    }

    /// The note that follows this one.
    #[must_use]
    pub fn next(&self, text: impl Into<String>) -> Self {
        Self { revision: self.revision.saturating_add(1), text: text.into() }
    }

    /// The rule for a store when a claim that holds the lock asks to replace `stored` by this note.
    /// The store writes only if the answer is [`Noted::Written`] and the two notes differ.
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
            let text =
                format!("the note has {length} bytes, but at most {MAX_NOTE_BYTES} are allowed");
            return Err(Error::new(ErrorKind::InvalidOption, text));
        }
        Ok(())
    }
}

/// The result of writing a [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The note is in the store.
    Written,
    /// The claim does not hold the lock, or holds it no longer. Nothing was written.
    NotHeld,
    /// The store has another note of the same or a later revision. Nothing was written.
    Outdated,
}

/// Allows a note only beside a lock that one owner holds alone.
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
        assert_eq!(error.to_string(), "the note has 16385 bytes, but at most 16384 are allowed");
    }
}
