//! Lock names for property tests (C11): any allowed name, and pairs of different names that are
//! easily confused.

use proptest::{collection::vec, prelude::*, sample::select};

/// The longest name, in bytes.
const LONGEST: usize = 255;

/// Characters with a meaning in stores, in their keys, paths, patterns and escapes. Also texts that
/// some programs take for equal.
const TRAPS: &[&str] = &[
    "/",
    "{",
    "}",
    "%",
    "*",
    "?",
    "[",
    "]",
    "\\",
    ":",
    "'",
    "\"",
    "`",
    "_",
    " ",
    ".",
    "..",
    "\u{a0}",
    "\u{feff}",
    "\u{200d}",
    "%7B",
    "%7b",
    "%25",
    "%257B",
    "%2F",
    "%2E",
    "%C3%A9",
    "}:token",
    ":queue",
    ":grants",
    "{a}",
    "lockkit:",
    "mutex",
    "lockkit:raw:{",
    "held",
    "-lock-0000000001",
    "_c_",
    "é",
    "e\u{301}",
    "ß",
    "ss",
    "\u{212a}",
    "k",
    "K",
    "İ",
    "🔒",
    "🏳\u{fe0f}\u{200d}🌈",
    "\u{e000}",
    "\u{fff0}",
    "\u{ffff}",
    "\u{10ffff}",
    "字",
];

/// Pairs of texts that look alike.
const ALIKE: &[(&str, &str)] = &[
    ("é", "e\u{301}"),
    ("/", "%2F"),
    ("%2F", "%2f"),
    ("{", "%7B"),
    ("}", "%7D"),
    ("%", "%25"),
    (".", "%2E"),
    ("..", "."),
    ("ß", "ss"),
    ("\u{212a}", "K"),
    ("\\", "\\\\"),
    (" ", "\u{a0}"),
    ("*", "a"),
    ("_", "a"),
];

/// Any name that a lock may have.
pub fn name() -> impl Strategy<Value = String> {
    let any_char = any::<char>().prop_filter("a control character", |c| !c.is_control());
    let piece = prop_oneof![
        4 => select(TRAPS).prop_map(str::to_owned),
        2 => "[a-zA-Z0-9]{1,4}",
        1 => any_char.prop_map(String::from),
    ];
    let short = vec(piece.clone(), 1..6).prop_map(|pieces| pieces.concat());
    // Whole pieces up to the limit, and single bytes for the rest.
    let longest = (piece, 0..4usize).prop_map(|(piece, less)| {
        let mut text = piece.repeat((LONGEST - less) / piece.len());
        text.push_str(&"x".repeat(LONGEST - less - text.len()));
        text
    });
    prop_oneof![6 => short, 1 => longest]
}

/// Two different names, mostly with a small difference.
pub fn two_names() -> impl Strategy<Value = (String, String)> {
    let other = (name(), any::<prop::sample::Index>(), 0..8u8, select(ALIKE), name());
    let pair = other.prop_map(|(name, at, how, (one, two), stranger)| {
        let starts: Vec<_> = name.char_indices().map(|(at, _)| at).collect();
        let at = starts[at.index(starts.len())];
        let (before, after) = name.split_at(at);
        let (first, rest) = after.split_at(after.chars().next().map_or(0, char::len_utf8));
        let near = match how {
            0 if first.to_lowercase() != first => format!("{before}{}{rest}", first.to_lowercase()),
            0 => format!("{before}{}{rest}", first.to_uppercase()),
            1 => format!("{name} "),
            2 => format!(" {name}"),
            3 => format!("{before}{rest}"),
            4 => format!("{before}{one}{rest}"),
            5 if name.contains(one) => name.replace(one, two),
            5 => name.replace(two, one),
            6 => format!("{before}{first}{first}{rest}"),
            _ => stranger,
        };
        (name, near)
    });
    pair.prop_filter("no two names", |(a, b)| a != b && !b.is_empty() && b.len() <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn names_are_valid_and_different((a, b) in two_names()) {
            for name in [&a, &b] {
                prop_assert!((1..=LONGEST).contains(&name.len()) && !name.contains(char::is_control), "{name:?}");
            }
            prop_assert_ne!(a, b);
        }
    }
}
