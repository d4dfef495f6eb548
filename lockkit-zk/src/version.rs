//! The format of a node's data. It begins with `lockkit/1`, or it is not a lockkit record.

/// Nodes of later layouts that are not part of a queue begin with this prefix, in any folder.
const RESERVED: &str = "lockkit-";

/// Whether a newer lockkit wrote this data.
pub(crate) fn is_newer(data: &[u8]) -> bool {
    let Some(rest) = data.strip_prefix(b"lockkit/") else { return false };
    let digits: Vec<u8> = rest.iter().copied().take_while(u8::is_ascii_digit).collect();
    !matches!(&*digits, [] | [b'0', ..] | [b'1'])
}

/// Whether a newer lockkit made a node of this name.
pub(crate) fn is_newer_name(node: &str) -> bool {
    node.starts_with(RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c13_a_later_format_is_distinguished_from_ours_and_from_foreign_data() {
        for newer in ["lockkit/2 ", "lockkit/2", "lockkit/10 x", "lockkit/19", "lockkit/300\n"] {
            assert!(is_newer(newer.as_bytes()), "{newer}");
        }
        for known in [
            "",
            "lockkit/1 ",
            "lockkit/1",
            "lockkit/1 unfair",
            "lockkit/",
            "lockkit/x",
            "10.0.0.1",
            "lockkit/0 ",
        ] {
            assert!(!is_newer(known.as_bytes()), "{known}");
        }
    }
}
