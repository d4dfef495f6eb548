//! Lock names (C11) and the kinds they live in.

use std::{fmt, sync::Arc};

/// The longest name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 255;

/// What is locked by a name. Each kind is a namespace of its own: the same text in two kinds is two locks.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A leader election.
    Election,
    /// A mutual-exclusion lock.
    Mutex,
    /// A read/write lock.
    RwLock,
    /// A counting semaphore.
    Semaphore,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Election, Self::Mutex, Self::RwLock, Self::Semaphore];

    /// The word that stores use for this kind in their keys and paths. It never changes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Election => "election",
            Self::Mutex => "mutex",
            Self::RwLock => "rwlock",
            Self::Semaphore => "semaphore",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The checked name of a lock: a [`Kind`] and 1 to 255 bytes of UTF-8 without control characters
/// ([C11](crate::contract#c11-names)).
///
/// Names are compared byte by byte: case, trailing blanks and Unicode normal forms count.
///
/// ```
/// use lockkit_core::{Kind, LockName};
///
/// # fn main() -> lockkit_core::Result<()> {
/// let name = LockName::new(Kind::Mutex, "orders/42")?;
/// assert_eq!((name.kind(), name.as_str()), (Kind::Mutex, "orders/42"));
/// assert_ne!(name, LockName::new(Kind::Election, "orders/42")?); // another lock
/// assert_eq!(LockName::new(Kind::Mutex, "").unwrap_err().to_string(), "a lock name must not be empty");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    kind: Kind,
    text: Arc<str>,
}

impl LockName {
    /// Checks `text` and makes a name of it.
    ///
    /// # Errors
    /// `text` is empty, longer than 255 bytes, or holds a control character. As a lockkit error this is
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub fn new(kind: Kind, text: &str) -> Result<Self, InvalidName> {
        check_text("a lock name", text).map_err(InvalidName)?;
        Ok(Self { kind, text: text.into() })
    }

    /// The namespace that this name lives in.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind, self.text)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no [`LockName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(String);

/// The rule for texts that stores, logs and terminals have to carry unharmed.
pub(crate) fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{what} must not be empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(format!("{what} has {} bytes, {MAX_NAME_BYTES} are allowed", text.len()));
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(format!(
            "{what} must not hold control characters, {text:?} has U+{:04X} at byte {at}",
            u32::from(c)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c11_names_of_1_to_255_bytes_without_control_characters_are_taken() {
        for good in ["a", " a", "a ", "a/{b}%", "}", "*", "🔒", &"x".repeat(255)] {
            assert_eq!(LockName::new(Kind::Mutex, good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn c11_bad_names_are_refused_with_the_reason() {
        let long = "é".repeat(128);
        for (bad, reason) in [
            ("", "must not be empty"),
            (&*long, "has 256 bytes"),
            ("a\nb", "U+000A at byte 1"),
            ("\u{7f}", "U+007F"),
            ("\u{85}", "U+0085"),
            ("\0", "U+0000"),
        ] {
            let error = LockName::new(Kind::Mutex, bad).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn c11_names_differ_by_kind_case_and_blanks() {
        let name = |kind, text| LockName::new(kind, text).unwrap();
        assert_ne!(name(Kind::Mutex, "a"), name(Kind::RwLock, "a"));
        assert_ne!(name(Kind::Mutex, "a"), name(Kind::Mutex, "A"));
        assert_ne!(name(Kind::Mutex, "a"), name(Kind::Mutex, "a "));
    }
}
