//! The paths of the locks: `<prefix>/<kind>/<escaped name>`, one path component per name (C11).

use std::fmt::Write as _;

use lockkit_core::{Kind, LockName};

/// The folders under a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Begins with a slash.
    prefix: String,
}

impl Layout {
    /// A layout under `prefix`. [`check_prefix`] must have accepted the prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: format!("/{prefix}") }
    }

    /// The folder of a kind.
    pub(crate) fn kind(&self, kind: Kind) -> String {
        format!("{}/{kind}", self.prefix)
    }

    /// The folder of a lock.
    pub(crate) fn lock(&self, name: &LockName) -> String {
        format!("{}/{}/{}", self.prefix, name.kind(), escape(name.as_str()))
    }

    /// The folder of the notes beside locks of a kind.
    pub(crate) fn notes(&self, kind: Kind) -> String {
        format!("{}/note/{kind}", self.prefix)
    }

    /// The note beside a lock.
    pub(crate) fn note(&self, name: &LockName) -> String {
        format!("{}/{}", self.notes(name.kind()), escape(name.as_str()))
    }

    /// The node that a client writes to in order to learn the time.
    pub(crate) fn clock(&self) -> String {
        format!("{}/clock", self.prefix)
    }

    /// The folder of the nodes that `heartbeat=write` writes to.
    pub(crate) fn sessions(&self) -> String {
        format!("{}/session", self.prefix)
    }
}

/// Checks a prefix: one or more path components without the first slash. An error says what is
/// wrong.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), &'static str> {
    if prefix.is_empty() || prefix.len() > 255 {
        return Err("it must have 1 to 255 bytes");
    }
    if prefix.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(
            "it must not begin or end with a slash, and must not contain an empty part, `.` or `..`",
        );
    }
    if prefix.split('/').next() == Some("zookeeper") {
        return Err("ZooKeeper reserves the node /zookeeper");
    }
    if prefix.chars().any(is_forbidden) {
        return Err("it contains characters that ZooKeeper does not allow in paths");
    }
    Ok(())
}

/// Turns any name into one path component, reversibly. `/`, `%` and characters that ZooKeeper
/// forbids become `%XX` per byte.
fn escape(name: &str) -> String {
    let dots = matches!(name, "." | "..");
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        if dots || matches!(c, '/' | '%') || is_forbidden(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a String can't fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Reverses `escape`. Returns `None` for a component that is no escaped name.
pub(crate) fn unescape(component: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(component.len());
    let mut rest = component;
    while let Some((plain, escaped)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let (byte, after) = escaped.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(byte, 16).ok()?);
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    let name = String::from_utf8(bytes).ok()?;
    // Each name has one path: `a` is not also `%61`.
    (escape(&name) == component).then_some(name)
}

/// The rule of ZooKeeper's PathUtils, which looks at UTF-16 units. It forbids characters that need
/// surrogates, such as an emoji, and the private use area.
fn is_forbidden(c: char) -> bool {
    matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xe000..=0xf8ff | 0xfff0..)
}

#[cfg(test)]
mod tests {
    use lockkit_fixture::names::{name, two_names};
    use percent_encoding::percent_decode_str;
    use proptest::{prelude::*, sample::select};

    use super::*;

    #[test]
    fn c11_characters_that_zookeeper_forbids_are_escaped_and_others_stay_readable() {
        assert_eq!(escape("orders 42"), "orders 42");
        assert_eq!(escape("a/b%"), "a%2Fb%25");
        assert_eq!(escape("."), "%2E");
        assert_eq!(escape(".."), "%2E%2E");
        assert_eq!(escape("..."), "...");
        assert_eq!(escape("é"), "é");
        assert_eq!(escape("🔒"), "%F0%9F%94%92");
        assert_eq!(escape("\u{e000}\u{ffff}\u{85}"), "%EE%80%80%EF%BF%BF%C2%85");
    }

    fn kind() -> impl Strategy<Value = Kind> {
        select(vec![Kind::Election, Kind::Mutex, Kind::RwLock, Kind::Semaphore])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c11_a_name_is_one_component_of_a_path_and_found_again(name in name()) {
            let escaped = escape(&name);
            prop_assert!(!escaped.contains('/') && !escaped.chars().any(is_forbidden), "{escaped}");
            prop_assert!(!matches!(escaped.as_str(), "" | "." | ".."));
            prop_assert_eq!(percent_decode_str(&escaped).decode_utf8().unwrap(), &*name);
            prop_assert_eq!(unescape(&escaped), Some(name));
        }

        #[test]
        fn c11_no_two_names_or_kinds_meet((a, b) in two_names(), one in kind(), two in kind(), prefix in "[a-z]{1,3}(/[a-z]{1,8}){0,2}") {
            let layout = Layout::new(&prefix);
            let path = |kind, text: &str| layout.lock(&LockName::new(kind, text).unwrap());
            prop_assert_ne!(path(one, &a), path(two, &b));
            prop_assert_eq!(path(one, &a) == path(two, &a), one == two);
            let note = |kind, text: &str| layout.note(&LockName::new(kind, text).unwrap());
            prop_assert_ne!(note(one, &a), note(one, &b));
            prop_assert_eq!(note(one, &a) == note(two, &a), one == two);
            // No lock's folder is above another lock's folder, or above another folder of lockkit.
            for folder in [layout.kind(two), layout.sessions(), layout.clock(), layout.notes(two), note(two, &b), path(two, &b)] {
                let is_inside = folder.starts_with(&format!("{}/", path(one, &a)));
                prop_assert!(!is_inside, "{folder}");
                prop_assert_ne!(&folder, &path(one, &a));
            }
        }

        #[test]
        fn c14_each_path_component_belongs_to_one_name(component in name()) {
            if let Some(name) = unescape(&component) {
                prop_assert_eq!(escape(&name), component);
            }
        }
    }

    #[test]
    fn c14_a_foreign_key_has_no_name() {
        for foreign in ["%61", "%2f", "%", "%2", "%+1", "%é", "%FF", "%F0%9F%94", "a%2"] {
            assert_eq!(unescape(foreign), None, "{foreign}");
        }
        assert_eq!(unescape("a%2Fb%25").as_deref(), Some("a/b%"));
    }

    #[test]
    fn kinds_are_separate() {
        let layout = Layout::new("apps/locks");
        let name = LockName::new(Kind::RwLock, "a/b").unwrap();
        assert_eq!(layout.lock(&name), "/apps/locks/rwlock/a%2Fb");
        assert_eq!(layout.kind(Kind::Mutex), "/apps/locks/mutex");
    }

    #[test]
    fn c13_a_prefix_that_is_no_path_is_refused() {
        for good in ["lockkit", "a/b", "a b", "%41", "x.y"] {
            check_prefix(good).unwrap();
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "a/..",
            "zookeeper",
            "zookeeper/x",
            "🔒",
            &"x".repeat(256),
        ] {
            check_prefix(bad).unwrap_err();
        }
    }
}
