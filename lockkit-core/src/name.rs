//! Defines lock names (C11) and their kinds.

use std::{fmt, sync::Arc};

/// The kind of lock behind a name. Each kind is its own namespace: the same text in two kinds is
/// two locks.
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
/// use lockkit_core::{ErrorKind, Kind, LockName};
///
/// # fn main() -> lockkit_core::Result<()> {
/// let name = LockName::new(Kind::Mutex, "orders/42")?;
/// assert_eq!((name.kind(), name.as_str()), (Kind::Mutex, "orders/42"));
/// assert_ne!(name, LockName::new(Kind::Election, "orders/42")?); // another lock
/// assert_eq!(LockName::new(Kind::Mutex, "").unwrap_err().kind(), ErrorKind::InvalidName);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    kind: Kind,
    text: Arc<str>,
}

impl LockName {
    /// Makes a name from a text that was already checked.
    pub(crate) fn unchecked(kind: Kind, text: &str) -> Self {
        Self { kind, text: text.into() }
    }

    /// The kind, which is the namespace of this name.
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
