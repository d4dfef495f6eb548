//! Tests properties of the keys of all names.

use lockkit_fixture::names::{name, two_names};
use proptest::{prelude::*, sample::select};

use super::*;

const KINDS: [Kind; 4] = [Kind::Election, Kind::Mutex, Kind::RwLock, Kind::Semaphore];

fn keyspace() -> impl Strategy<Value = Keyspace> {
    // Prefixes that look like other keys of ours, or like patterns.
    let prefix = prop_oneof![
        Just("lockkit".to_owned()),
        Just("lockkit:mutex".to_owned()),
        Just("a*?".to_owned()),
        "[a-z:%\\[\\]*?\\\\]{1,8}",
    ];
    (prefix, any::<bool>(), any::<bool>()).prop_map(|(prefix, raw, cluster)| Keyspace {
        prefix,
        raw,
        cluster,
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    select(KINDS.to_vec())
}

/// The keys of a name. With `keys=raw`, some names are refused.
fn keys(keyspace: &Keyspace, kind: Kind, text: &str) -> Option<Keys> {
    keyspace.keys(&LockName::new(kind, text).unwrap()).ok()
}

fn all(keys: &Keys) -> Vec<&str> {
    keys.of(keys.family())
}

/// Without the counter, which all names share.
fn own(keys: &Keys) -> Vec<&str> {
    all(keys).into_iter().filter(|key| *key != keys.counter).collect()
}

/// The part of a key that a cluster hashes, by its specification.
fn hash_tag(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Matches like `stringmatchlen` of Redis, for the characters that our patterns have.
fn matches(pattern: &str, key: &str) -> bool {
    let Some(start) = pattern.strip_suffix('*') else { return false };
    let mut literal = String::new();
    let mut escaped = false;
    for c in start.chars() {
        if !escaped && c == '\\' {
            escaped = true;
            continue;
        }
        assert!(escaped || !matches!(c, '*' | '?' | '['), "a bare {c} in {pattern}");
        literal.push(c);
        escaped = false;
    }
    !escaped && key.starts_with(&literal)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c11_no_two_names_share_a_key((a, b) in two_names(), keyspace in keyspace(), one in kind(), two in kind()) {
        let (Some(a), Some(b)) = (keys(&keyspace, one, &a), keys(&keyspace, two, &b)) else { return Ok(()) };
        for key in own(&a) {
            prop_assert!(!all(&b).contains(&key), "{key} is a key of both");
        }
        prop_assert_ne!(a.slot_channels(), b.slot_channels());
    }

    #[test]
    fn c11_no_two_kinds_share_a_key(name in name(), keyspace in keyspace(), one in kind(), two in kind()) {
        prop_assume!(one != two);
        let (Some(a), Some(b)) = (keys(&keyspace, one, &name), keys(&keyspace, two, &name)) else { return Ok(()) };
        for key in own(&a) {
            prop_assert!(!all(&b).contains(&key), "{key} is a key of both");
        }
        prop_assert_ne!(a.slot_channels(), b.slot_channels());
    }

    #[test]
    fn c11_two_prefixes_share_no_key((a, b) in two_names(), one in keyspace(), two in keyspace(), kind in kind(), same: bool) {
        prop_assume!(one.prefix != two.prefix);
        let b = if same { a.clone() } else { b };
        let plain = |keyspace: Keyspace| Keyspace { raw: false, ..keyspace };
        let (Some(a), Some(b)) = (keys(&plain(one), kind, &a), keys(&plain(two), kind, &b)) else { return Ok(()) };
        for key in all(&a) {
            prop_assert!(!all(&b).contains(&key), "{key} is a key of both");
        }
    }

    #[test]
    fn c11_all_keys_of_a_name_are_in_one_slot_which_is_known(name in name(), keyspace in keyspace(), kind in kind()) {
        let keyspace = Keyspace { cluster: true, ..keyspace };
        let Some(keys) = keys(&keyspace, kind, &name) else { return Ok(()) };
        for key in all(&keys).into_iter().chain([&*keys.slot_channels()]) {
            prop_assert_eq!(slot(hash_tag(key)), keys.slot, "{}", key);
        }
    }

    #[test]
    fn c14_a_name_is_found_by_its_keys(
        name in name(),
        keyspace in keyspace(),
        kind in kind(),
        start in any::<prop::sample::Index>(),
    ) {
        let keyspace = Keyspace { raw: false, ..keyspace };
        let keys = keys(&keyspace, kind, &name).unwrap();
        let starts: Vec<_> = name.char_indices().map(|(at, _)| at).collect();
        let start = &name[..starts[start.index(starts.len())]];
        let expected = LockName::new(kind, &name).unwrap();
        let lock = if is_counted(kind) { Sign::Maybe } else { Sign::Held };
        for (key, sign) in [(&keys.lock, lock), (&keys.queue, Sign::Maybe), (&keys.live, Sign::Maybe)] {
            prop_assert!(matches(&keyspace.pattern(kind, start), key));
            prop_assert_eq!(keyspace.name_of(key, kind), Some((expected.clone(), sign)));
        }
        prop_assert_eq!(keyspace.name_of(&keys.counter, kind), None);
    }

    /// The key can be any other key in the store.
    #[test]
    fn c14_each_found_key_belongs_to_its_name(key in name(), inside: bool, part in select(vec!["", ":queue", ":live", ":grants"]), kind in kind()) {
        let keyspace = Keyspace { prefix: "lockkit".to_owned(), raw: false, cluster: false };
        let key = if inside { format!("{}{key}}}{part}", keyspace.start(kind)) } else { key };
        if let Some((name, _)) = keyspace.name_of(&key, kind) {
            prop_assert!(all(&keyspace.keys(&name).unwrap()).contains(&&*key), "{key} is none of {name}");
        }
    }
}
