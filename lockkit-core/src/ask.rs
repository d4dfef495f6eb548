//! Defines a request to release a lock, as the store carries it.
//!
//! A store sends a holder no messages, but every process can look at a lock. So a request is a
//! mutex. Its name follows from the lock's name, and its label says which grants it is about. A
//! holder that listens looks at that mutex again and again.

use std::fmt::Write as _;

use crate::{
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
    naming::check_text_within,
    spi::{Capabilities, Inspection},
    token::FencingToken,
};

/// The beginning of the names of these mutexes.
const PREFIX: &str = "lockkit-unlock/";

/// The longest reason of a [request](crate::Locker::request_release), in bytes. Together with a
/// token it fits into a label.
pub const MAX_REASON_BYTES: usize = 200;

/// The ability that a store without labels lacks, for its error.
pub(crate) const UNSUPPORTED: &str = "requests to release a lock, because it shows no labels";

/// The grants that a [request](crate::Locker::request_release) is about.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grants {
    /// All grants, including those that begin while the request lives.
    All,
    /// The grant with this token.
    Only(FencingToken),
    /// The grant with this token and all grants before it. Later holders are not asked.
    UpTo(FencingToken),
}

impl Grants {
    fn include(self, token: FencingToken) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => token == only,
            Self::UpTo(last) => token <= last,
        }
    }

    /// The beginning of the label. Tokens are written as the store knows them, because two lockers
    /// may add different numbers to them.
    fn mark(self, token_base: u64) -> String {
        let stored = |token: FencingToken| token.get().saturating_sub(token_base);
        match self {
            Self::All => "*".to_owned(),
            Self::Only(only) => format!("={}", stored(only)),
            Self::UpTo(last) => format!("<={}", stored(last)),
        }
    }

    fn of_mark(mark: &str) -> Option<Self> {
        if mark == "*" {
            return Some(Self::All);
        }
        if let Some(last) = mark.strip_prefix("<=") {
            return Some(Self::UpTo(last.parse().ok()?));
        }
        Some(Self::Only(mark.strip_prefix('=')?.parse().ok()?))
    }
}

/// Whether a store with these capabilities can carry requests.
pub(crate) fn is_possible(capabilities: &Capabilities) -> bool {
    capabilities.exclusive && capabilities.labels
}

/// Whether a name belongs to the mutex of a request, and not to a lock of a user.
pub(crate) fn is_ask(name: &LockName) -> bool {
    name.kind() == Kind::Mutex && name.as_str().starts_with(PREFIX)
}

/// The mutex of the requests for a lock. Its name has a 128-bit FNV-1a hash of the lock's kind and
/// name, so that it is never too long for a name. The hash never changes.
pub(crate) fn ask_name(name: &LockName) -> LockName {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = name.kind().as_str().bytes().chain([0]).chain(name.as_str().bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    let mut text = PREFIX.to_owned();
    // Writing to a `String` never fails.
    let _ = write!(text, "{hash:032x}");
    LockName::unchecked(Kind::Mutex, &text)
}

/// The label of the mutex.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] for a reason that can't be used.
pub(crate) fn label(grants: Grants, token_base: u64, reason: &str) -> Result<String> {
    check_text_within("the reason of a request", reason, MAX_REASON_BYTES)
        .map_err(|reason| Error::new(ErrorKind::InvalidOption, reason))?;
    Ok(format!("{} {reason}", grants.mark(token_base)))
}

/// The reason of a request for the grant with this token, as the store knows the token. `seen` is a
/// look at the mutex.
pub(crate) fn reason_for(token: FencingToken, seen: &Inspection) -> Option<String> {
    let labels = seen.holders.iter().filter_map(|holder| holder.label.as_deref());
    let mut requests = labels.filter_map(|label| {
        let (mark, reason) = label.split_once(' ')?;
        Some((Grants::of_mark(mark)?, reason))
    });
    requests.find(|(grants, _)| grants.include(token)).map(|(_, reason)| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        naming::MAX_NAME_BYTES,
        spi::{Holder, Mode},
    };

    const fn token(token: u64) -> FencingToken {
        FencingToken::new(token)
    }

    fn seen(label: impl Into<String>) -> Inspection {
        Inspection::new(vec![Holder::new(Mode::Exclusive).with_label(label.into())], None)
    }

    /// Fails if a request also reaches the next holder.
    #[test]
    fn c2_a_request_is_about_its_own_grants() {
        for (grants, asked, spared) in [
            (Grants::Only(token(1_007)), &[7][..], &[6, 8][..]),
            (Grants::UpTo(token(1_007)), &[3, 7], &[8, 1_007]),
            (Grants::UpTo(token(7)), &[0], &[1, 7]),
            (Grants::All, &[0, u64::MAX], &[]),
        ] {
            let seen = seen(label(grants, 1_000, "disk full").unwrap());
            for asked in asked {
                let reason = reason_for(token(*asked), &seen);
                assert_eq!(reason.as_deref(), Some("disk full"), "{grants:?}, {asked}");
            }
            for spared in spared {
                assert_eq!(reason_for(token(*spared), &seen), None, "{grants:?}, {spared}");
            }
        }
        for foreign in ["", "7", "7 a", "=x a", "<= a", "*", "** a", "lockkit pid 7"] {
            assert_eq!(reason_for(token(7), &seen(foreign)), None, "{foreign}");
        }
        assert_eq!(reason_for(token(7), &Inspection::default()), None);
    }

    #[test]
    fn c11_each_lock_has_a_mutex_for_its_requests_whatever_its_name() {
        let name = |kind, text: &str| LockName::new(kind, text).unwrap();
        let asked = ask_name(&name(Kind::Mutex, "a"));
        assert_eq!(asked.as_str(), "lockkit-unlock/116e64cd414ff78d769a730f48950c27");
        for other in [
            name(Kind::RwLock, "a"),
            name(Kind::Mutex, "A"),
            name(Kind::Mutex, &"é".repeat(127)),
            asked.clone(),
        ] {
            let other = ask_name(&other);
            assert_ne!(other, asked);
            assert!(is_ask(&other) && LockName::new(other.kind(), other.as_str()).is_ok());
        }
        assert!(!is_ask(&name(Kind::Election, asked.as_str())));
        assert!(!is_ask(&name(Kind::Mutex, "lockkit-unlock")));
    }

    #[test]
    fn c13_a_reason_is_bounded_and_printable() {
        let label = |reason: &str| label(Grants::UpTo(token(u64::MAX)), 0, reason);
        let longest = label(&"x".repeat(MAX_REASON_BYTES)).unwrap();
        assert!(longest.len() <= MAX_NAME_BYTES, "{longest}");
        let too_long = "é".repeat(101);
        for (bad, why) in [
            ("", "the reason of a request must not be empty"),
            ("a\nb", "must not contain control characters"),
            (&*too_long, "has 202 bytes, but at most 200 are allowed"),
        ] {
            let error = label(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
