//! From lock names to Redis keys. Different names never meet (C11).

use std::{fmt::Write as _, sync::Arc};

use lockkit_core::{Error, ErrorKind, Kind, LockName, Result};

/// Where a locker keeps its keys.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    pub(crate) prefix: String,
    pub(crate) raw: bool,
}

/// The keys and the channel of one name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// A string: the owner of the lock.
    pub(crate) lock: String,
    /// A string: the last fence, and the owner that it was given to.
    pub(crate) fence: String,
    /// Told when the lock is freed.
    pub(crate) channel: Arc<str>,
}

impl Keyspace {
    /// All keys of a name share a hash tag. A lock key ends with `}` and a helper key does not.
    ///
    /// With raw keys the name is a key by itself, next to helper keys that start with the prefix: such names are
    /// refused.
    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys> {
        let raw = self.raw && name.kind() == Kind::Mutex;
        let kind = if raw { "raw" } else { name.kind().as_str() };
        let mut base = String::with_capacity(self.prefix.len() + kind.len() + name.as_str().len() + 16);
        base.extend([self.prefix.as_str(), ":", kind, ":{"]);
        escape(name.as_str(), &mut base);
        base.push('}');
        let fence = [&base, ":fence"].concat();
        let channel = [&base, ":free"].concat().into();
        let lock = if raw { self.raw_key(name)? } else { base };
        Ok(Keys { lock, fence, channel })
    }

    fn raw_key(&self, name: &LockName) -> Result<String> {
        let own = name.as_str().strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(':'));
        if own {
            let reason = format!(
                "with key=raw, a mutex name must not start with {:?}: lockkit's own keys start so; \
                 choose another prefix or another name",
                [&self.prefix, ":"].concat()
            );
            return Err(Error::new(ErrorKind::InvalidName, reason));
        }
        Ok(name.as_str().to_owned())
    }
}

/// Braces would end or empty the hash tag; the escape character is escaped, so that no two names look the same.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keyspace(raw: bool) -> Keyspace {
        Keyspace { prefix: "lockkit".to_owned(), raw }
    }

    fn mutex(text: &str) -> LockName {
        LockName::new(Kind::Mutex, text).unwrap()
    }

    fn all(keys: &Keys) -> [&str; 2] {
        [&keys.lock, &keys.fence]
    }

    #[test]
    fn c11_keys_share_one_hash_tag_that_is_never_empty() {
        let keys = keyspace(false).keys(&mutex("}a{50%")).unwrap();
        assert_eq!(keys.lock, "lockkit:mutex:{%7Da%7B50%25}");
        assert_eq!(keys.fence, "lockkit:mutex:{%7Da%7B50%25}:fence");
        assert_eq!(&*keys.channel, "lockkit:mutex:{%7Da%7B50%25}:free");
    }

    #[test]
    fn c11_raw_keys_are_the_names_of_mutexes_only() {
        let keys = keyspace(true).keys(&mutex("jobs/{7}")).unwrap();
        assert_eq!(all(&keys), ["jobs/{7}", "lockkit:raw:{jobs/%7B7%7D}:fence"]);
        let election = LockName::new(Kind::Election, "a").unwrap();
        assert_eq!(keyspace(true).keys(&election).unwrap().lock, "lockkit:election:{a}");
    }

    #[test]
    fn c11_a_raw_name_that_could_be_a_helper_key_is_refused() {
        for name in ["lockkit:", "lockkit:raw:{a}:fence"] {
            let error = keyspace(true).keys(&mutex(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
        }
        assert!(keyspace(true).keys(&mutex("lockkit")).is_ok());
    }

    fn name() -> impl Strategy<Value = String> {
        // Many braces and percent signs, and pieces of real keys.
        let piece = prop_oneof![
            "[%{}7BDb5:* a🔒]{1,4}",
            Just("}:fence".to_owned()),
            Just("lockkit:raw:{".to_owned()),
            Just("%7B".to_owned()),
            "\\PC{1,3}",
        ];
        prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn c11_no_two_names_share_a_key(a in name(), b in name(), raw: bool) {
            prop_assume!(a != b);
            let (Ok(a), Ok(b)) = (keyspace(raw).keys(&mutex(&a)), keyspace(raw).keys(&mutex(&b))) else {
                return Ok(());
            };
            for key in all(&a) {
                prop_assert!(!all(&b).contains(&key), "{key} is a key of both");
            }
            prop_assert_ne!(a.channel, b.channel);
        }

        #[test]
        fn c11_no_two_kinds_share_a_key(a in name(), raw: bool) {
            let keys = |kind| keyspace(raw).keys(&LockName::new(kind, &a).unwrap());
            let Ok(mutex) = keys(Kind::Mutex) else { return Ok(()) };
            for kind in [Kind::Election, Kind::RwLock, Kind::Semaphore] {
                let other = keys(kind).unwrap();
                for key in all(&mutex) {
                    prop_assert!(!all(&other).contains(&key));
                }
            }
        }
    }
}
