//! Pieces of SQL that both strategies use.

use std::fmt::Write as _;

use lockkit_core::LockName;

/// The server's time at the start of the statement, in µs since 1970. `UTC_TIMESTAMP` does not
/// depend on the time zone.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// Whether the server is a primary. `super_read_only` sets `read_only`, too. A user who may bypass
/// `read_only` could write to a demoted server, and the new primary would not know the grants
/// there. Newer servers report `read_only` as a word.
pub(crate) const WRITABLE: &str = "CONCAT(@@GLOBAL.read_only) IN('0','OFF')";

/// A token is at least the server's time of its grant. So a smaller number in its place has another
/// meaning.
pub(crate) const LEAST_TOKEN: u64 = 1_000_000_000_000_000;

/// No token is raised above this, so that there is room for all later grants. The column of the
/// table holds numbers up to four times as large.
pub(crate) const HIGHEST_TOKEN: u64 = 1 << 62;

/// Writes bytes as a literal that no character set, mode or quote can change.
pub(crate) fn literal(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "''".to_owned();
    }
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("X'");
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

/// Quotes the name of a database.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The condition that a connection has the user-level lock of this name.
pub(crate) fn is_owner(lock: &str, thread: u64) -> String {
    format!("IS_USED_LOCK({})<=>{thread}", literal(lock.as_bytes()))
}

/// The condition that finds a name by the primary key.
pub(crate) fn this(name: &LockName) -> String {
    format!(
        "kind={} AND name={}",
        literal(name.kind().as_str().as_bytes()),
        literal(name.as_str().as_bytes())
    )
}

#[cfg(test)]
mod tests {
    use lockkit_core::Kind;
    use lockkit_fixture::names::two_names;
    use proptest::{prelude::*, sample::select};

    use super::*;

    /// The bytes that the server reads from a literal.
    fn read(literal: &str) -> Option<Vec<u8>> {
        let digits = literal.strip_prefix("X'")?.strip_suffix('\'')?;
        let pairs = digits.as_bytes().chunks(2);
        pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
    }

    fn kind() -> impl Strategy<Value = Kind> {
        select(vec![Kind::Election, Kind::Mutex, Kind::RwLock, Kind::Semaphore])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Both columns are compared byte by byte, and both are long enough.
        #[test]
        fn c11_no_two_names_or_kinds_are_one_row((a, b) in two_names(), one in kind(), two in kind()) {
            let row = |kind: Kind, text: &str| {
                let name = LockName::new(kind, text).unwrap();
                (literal(kind.as_str().as_bytes()), literal(name.as_str().as_bytes()))
            };
            prop_assert_ne!(row(one, &a), row(two, &b));
            prop_assert_eq!(row(one, &a) == row(two, &a), one == two);
            prop_assert!(a.len() <= 255 && one.as_str().len() <= 16);
            prop_assert_eq!(read(&row(one, &a).1), Some(a.into_bytes()));
        }
    }

    #[test]
    fn c11_a_literal_has_no_room_for_tricks() {
        assert_eq!(literal(b"a'\\\0"), "X'61275c00'");
        assert_eq!(literal(b""), "''");
    }
}
