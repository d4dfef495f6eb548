//! Maps lock names to Redis keys. Different names never share a key (C11).

use std::{
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use lockkit_core::{Error, ErrorKind, Kind, LockName, Result};

use crate::family::Family;

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// Where a locker keeps its keys.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    pub(crate) prefix: String,
    pub(crate) raw: bool,
    /// True if all keys of a name must be in one slot.
    pub(crate) cluster: bool,
}

/// The keys of one name. The files in `scripts/` describe their content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The start of all keys of the name, except of a raw lock key.
    pub(crate) base: Arc<str>,
    /// The key that locks the name. It is a string of the owner, or, for the counted kinds, a hash
    /// of the grants.
    pub(crate) lock: String,
    /// The key of the last token of all names, on a cluster of those in the slot.
    pub(crate) counter: String,
    pub(crate) queue: String,
    pub(crate) live: String,
    /// Only for the counted kinds.
    pub(crate) holders: String,
    /// The cluster's slot of all these keys.
    pub(crate) slot: u16,
}

impl Keyspace {
    /// All keys of a name share a hash tag. The lock key of a mutex ends with `}`, and no other key
    /// does.
    ///
    /// With raw keys, the name is a key by itself, next to helper keys that start with the prefix.
    /// A name that could be such a helper key is refused.
    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys> {
        let raw = self.raw && name.kind() == Kind::Mutex;
        let kind = if raw { "raw" } else { name.kind().as_str() };
        let mut base =
            String::with_capacity(self.prefix.len() + kind.len() + name.as_str().len() + 16);
        base.extend([self.prefix.as_str(), ":", kind, ":{"]);
        let tag = base.len();
        escape(name.as_str(), &mut base);
        let slot = if self.cluster { slot(base.get(tag..).unwrap_or_default()) } else { 0 };
        base.push('}');
        let [queue, live] = [":queue", ":live"].map(|part| [&base, part].concat());
        let counted = is_counted(name.kind());
        let holders = if counted { [&base, ":holders"].concat() } else { String::new() };
        let lock = match (raw, counted) {
            (true, _) => self.raw_key(name)?,
            (false, true) => [&base, ":grants"].concat(),
            (false, false) => base.clone(),
        };
        let counter = self.counter(slot);
        Ok(Keys { base: base.into(), lock, counter, queue, live, holders, slot })
    }

    /// The key of the last token: of the server, or of a slot of the cluster.
    fn counter(&self, slot: u16) -> String {
        let end =
            if self.cluster { TAGS.get(usize::from(slot)).map_or("", String::as_str) } else { "" };
        [&self.prefix, ":token", end].concat()
    }

    /// The key by which all lockers of a prefix agree on the keys of mutexes, and its slot.
    pub(crate) fn strategy_key(&self) -> (String, u16) {
        let key = [&self.prefix, ":keys"].concat();
        let slot = if self.cluster { slot(&key) } else { 0 };
        (key, slot)
    }

    /// The value that this locker writes to that key.
    pub(crate) fn strategy(&self) -> &'static str {
        if self.raw { "raw" } else { "escaped" }
    }

    /// The start of the clients' channels where messages do not stay in a slot.
    pub(crate) fn channels(&self) -> String {
        [&self.prefix, ":wake:"].concat()
    }

    fn raw_key(&self, name: &LockName) -> Result<String> {
        let own =
            name.as_str().strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(':'));
        if own {
            let reason = format!(
                "with keys=raw, a mutex name must not start with {:?}, because lockkit's own keys \
                 do; choose another prefix or another name",
                [&self.prefix, ":"].concat()
            );
            return Err(Error::new(ErrorKind::InvalidName, reason));
        }
        if self.cluster && name.as_str().contains(['{', '}', '%']) {
            let reason = "with keys=raw, a mutex name on a cluster must not contain {, } or %, \
                          because its helper keys would then be on another node";
            return Err(Error::new(ErrorKind::InvalidName, reason));
        }
        Ok(name.as_str().to_owned())
    }
}

impl Keyspace {
    /// A pattern of SCAN for the keys of all names of a kind that begin with `prefix`.
    pub(crate) fn pattern(&self, kind: Kind, prefix: &str) -> String {
        let mut start = self.start(kind);
        escape(prefix, &mut start);
        let mut pattern = String::with_capacity(start.len() + 8);
        for c in start.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        pattern
    }

    /// The name that a key belongs to, if a claim may hold it or wait for it while the key exists.
    pub(crate) fn name_of(&self, key: &str, kind: Kind) -> Option<(LockName, Sign)> {
        let (tag, part) = key.strip_prefix(&self.start(kind))?.split_once('}')?;
        let sign = match part {
            "" if !is_counted(kind) => Sign::Held,
            ":queue" | ":live" => Sign::Maybe,
            ":holders" | ":grants" if is_counted(kind) => Sign::Maybe,
            _ => return None,
        };
        let text = tag.replace("%7B", "{").replace("%7D", "}").replace("%25", "%");
        let mut again = String::with_capacity(tag.len());
        escape(&text, &mut again);
        // A key that is escaped differently is not lockkit's.
        (again == tag).then_some(())?;
        Some((LockName::new(kind, &text).ok()?, sign))
    }

    fn start(&self, kind: Kind) -> String {
        [&self.prefix, ":", kind.as_str(), ":{"].concat()
    }
}

/// How much a key proves about its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    /// The key may have outlived the claims that it belonged to.
    Maybe,
    /// The name is taken.
    Held,
}

fn is_counted(kind: Kind) -> bool {
    matches!(kind, Kind::RwLock | Kind::Semaphore)
}

/// Braces would end or empty the hash tag, so they are escaped. The escape character is escaped,
/// too, so that no two names look the same.
fn escape(name: &str, out: &mut String) {
    for c in name.chars() {
        match c {
            '%' | '{' | '}' => {
                // Writing to a String can't fail.
                let _ = write!(out, "%{:02X}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
}

impl Keys {
    /// The family of the scripts that know these keys.
    pub(crate) fn family(&self) -> Family {
        if self.holders.is_empty() { Family::Exclusive } else { Family::Counted }
    }

    /// The start of the channels of the clients that wait for this name, where messages stay inside
    /// its slot.
    pub(crate) fn slot_channels(&self) -> String {
        [&self.base, ":wake:"].concat()
    }

    /// Only in the exclusive family. The key is not made in advance, because most claims never need
    /// it.
    pub(crate) fn note(&self) -> String {
        [&self.base, ":note"].concat()
    }

    /// The keys in the order of a family's scripts.
    pub(crate) fn of(&self, family: Family) -> Vec<&str> {
        match family {
            Family::Exclusive => self.exclusive().to_vec(),
            Family::Counted => self.counted().to_vec(),
        }
    }

    pub(crate) fn exclusive(&self) -> [&str; 4] {
        [&self.lock, &self.counter, &self.queue, &self.live]
    }

    pub(crate) fn counted(&self) -> [&str; 5] {
        [&self.counter, &self.queue, &self.live, &self.holders, &self.lock]
    }
}

/// For each slot, the end `:{number}` of a key that is in this slot.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut tags = vec![String::new(); usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        let text = number.to_string();
        let Some(tag) = tags.get_mut(usize::from(slot(&text))).filter(|tag| tag.is_empty()) else {
            continue;
        };
        *tag = format!(":{{{text}}}");
        missing -= 1;
        if missing == 0 {
            break;
        }
    }
    tags
});

/// The slot of a hash tag; see the cluster specification of Redis.
fn slot(tag: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag.as_bytes()) % SLOTS
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace(raw: bool) -> Keyspace {
        Keyspace { prefix: "lockkit".to_owned(), raw, cluster: false }
    }

    fn mutex(text: &str) -> LockName {
        LockName::new(Kind::Mutex, text).unwrap()
    }

    #[test]
    fn c11_keys_share_one_hash_tag_that_is_never_empty() {
        let keys = keyspace(false).keys(&mutex("}a{50%")).unwrap();
        assert_eq!(keys.lock, "lockkit:mutex:{%7Da%7B50%25}");
        assert_eq!(keys.queue, "lockkit:mutex:{%7Da%7B50%25}:queue");
        assert_eq!(keys.counter, "lockkit:token");
        assert_eq!(keys.slot_channels(), "lockkit:mutex:{%7Da%7B50%25}:wake:");
    }

    #[test]
    fn c11_raw_keys_are_the_names_of_mutexes_only() {
        let keys = keyspace(true).keys(&mutex("jobs/{7}")).unwrap();
        assert_eq!((&*keys.lock, &*keys.queue), ("jobs/{7}", "lockkit:raw:{jobs/%7B7%7D}:queue"));
        let election = LockName::new(Kind::Election, "a").unwrap();
        assert_eq!(keyspace(true).keys(&election).unwrap().lock, "lockkit:election:{a}");
    }

    #[test]
    fn c11_a_raw_name_that_could_be_a_helper_key_is_refused() {
        for name in ["lockkit:", "lockkit:token", "lockkit:raw:{a}:queue"] {
            let error = keyspace(true).keys(&mutex(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
        }
        assert!(keyspace(true).keys(&mutex("lockkit")).is_ok());
    }

    #[test]
    fn c11_slots_are_those_of_the_cluster_specification() {
        let keyspace = Keyspace { cluster: true, ..keyspace(false) };
        // The slots are those that CLUSTER KEYSLOT gives.
        for (name, slot) in [("123456789", 12_739), ("a", 15_495), ("foo", 12_182)] {
            assert_eq!(keyspace.keys(&mutex(name)).unwrap().slot, slot, "{name}");
        }
        let raw = Keyspace { raw: true, ..keyspace };
        for name in ["a{b}", "}", "50%"] {
            assert_eq!(raw.keys(&mutex(name)).unwrap_err().kind(), ErrorKind::InvalidName);
        }
    }

    #[test]
    fn c14_a_pattern_matches_exactly_its_names() {
        let keyspace = Keyspace { prefix: "a*".to_owned(), ..keyspace(false) };
        assert_eq!(keyspace.pattern(Kind::Mutex, "[x?]{%\\"), "a\\*:mutex:{\\[x\\?\\]%7B%25\\\\*");
    }

    #[test]
    fn c14_keys_without_a_name_are_skipped() {
        let name_of = |key| keyspace(false).name_of(key, Kind::Mutex);
        for key in [
            "lockkit:mutex:{a}:token",
            "lockkit:token",
            "lockkit:token:{a}",
            "lockkit:mutex:{a}:holders",
            "lockkit:mutex:{a}b",
            "lockkit:mutex:{}",
            "lockkit:mutex:{a",
            "lockkit:mutex:{%7b}",
            "lockkit:mutex:{%}",
            "lockkit:mutex:{{}",
            "lockkit:rwlock:{a}:queue",
            "other:mutex:{a}",
            "",
        ] {
            assert_eq!(name_of(key), None, "{key}");
        }
        assert_eq!(name_of("lockkit:mutex:{a}"), Some((mutex("a"), Sign::Held)));
        assert_eq!(name_of("lockkit:mutex:{%257B}:queue"), Some((mutex("%7B"), Sign::Maybe)));
    }
}
