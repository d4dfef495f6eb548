//! Pieces of SQL that both strategies use.

use std::fmt::Write as _;

/// The server's time in µs since 1970, whatever its time zone (`UTC_TIMESTAMP` heeds none): of the start of the
/// statement.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// A fence is at least the server's time of its grant, so a smaller number in its place means something else.
pub(crate) const LEAST_FENCE: u64 = 1_000_000_000_000_000;

/// No token is raised above that: there shall be room for all that are granted later. Twice as many fit into the table.
pub(crate) const HIGHEST_FENCE: u64 = 1 << 62;

/// A literal that no character set, mode or quote can change.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c11_a_literal_has_no_room_for_tricks() {
        assert_eq!(literal(b"a'\\\0"), "X'61275c00'");
        assert_eq!(literal(b""), "''");
    }
}
