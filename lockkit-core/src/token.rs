//! Defines fencing tokens (C4) and owner ids (C2).

use std::{
    fmt,
    num::{ParseIntError, TryFromIntError},
    str::FromStr,
};

use crate::chance;

/// A number that strictly rises from grant to grant of one name ([C4](crate::contract#c4-fencing)).
///
/// The resource that the lock protects stores the largest token it has seen, and refuses a smaller
/// one. Only this stops a holder that was paused after its last check; see Kleppmann, *How to do
/// distributed locking* (2016).
///
/// ```
/// use lockkit_core::{FencingToken, Locker};
/// /// What the lock protects: it compares, for it alone can stop a writer that is late.
/// struct Stock { left: u32, token: FencingToken }
///
/// impl Stock {
///     fn write(&mut self, left: u32, token: FencingToken) -> bool {
///         let is_current = token >= self.token;
///         if is_current {
///             *self = Self { left, token };
///         }
///         is_current
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let mutex = locker.mutex("stock/7")?;
/// let late = mutex.scope(async |hold| hold.fencing_token()).await?;
/// let now = mutex.scope(async |hold| hold.fencing_token()).await?;
/// let mut stock = Stock { left: 3, token: late };
/// assert!(stock.write(2, now));
/// assert!(!stock.write(1, late));
/// assert_eq!(stock.left, 2);
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Wraps a token that a store gave.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number, for the protected resource.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// For a `BIGINT` column, and for databases whose integers are signed. No store of lockkit gives a
/// token that does not fit.
impl TryFrom<FencingToken> for i64 {
    type Error = TryFromIntError;

    fn try_from(token: FencingToken) -> Result<Self, TryFromIntError> {
        Self::try_from(token.0)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// The 128-bit random identity of one claim ([C2](crate::contract#c2-owner-checked)). Displayed as
/// 32 hexadecimal digits.
///
/// ```
/// use lockkit_core::OwnerId;
///
/// let owner = OwnerId::random();
/// assert_eq!(owner.to_string().parse(), Ok(owner));
/// assert_eq!(OwnerId::new(255).to_string(), "000000000000000000000000000000ff");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(u128);

impl OwnerId {
    /// Draws a fresh id from the thread's cryptographic generator.
    #[must_use]
    pub fn random() -> Self {
        Self(chance::owner())
    }

    /// Wraps an id that was read back from a store.
    #[must_use]
    pub const fn new(value: u128) -> Self {
        Self(value)
    }

    /// The id as a number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Accepts the output of [`Display`](fmt::Display), and nothing else.
impl FromStr for OwnerId {
    type Err = ParseOwnerIdError;

    fn from_str(text: &str) -> Result<Self, ParseOwnerIdError> {
        let plain =
            text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = plain.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or(ParseOwnerIdError)
    }
}

/// The text is no owner id. An owner id has 32 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an owner id must have 32 hexadecimal digits in lower case")]
pub struct ParseOwnerIdError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_signed_number_where_it_fits() {
        assert_eq!(i64::try_from(FencingToken::new(7)), Ok(7));
        assert_eq!(i64::try_from(FencingToken::new(u64::MAX >> 1)), Ok(i64::MAX));
        assert!(i64::try_from(FencingToken::new(1 << 63)).is_err());
    }

    #[test]
    fn c2_owner_ids_are_fresh_and_survive_a_trip_through_text() {
        let a = OwnerId::random();
        let b = OwnerId::random();
        assert_ne!(a, b);
        assert_eq!(a.to_string().len(), 32);
        assert_eq!(a.to_string().parse(), Ok(a));
        for bad in ["", "ff", &"+".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert_eq!(bad.parse::<OwnerId>(), Err(ParseOwnerIdError), "{bad}");
        }
    }
}
