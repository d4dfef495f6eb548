//! Remembers names that are likely to have a row.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use lockkit_core::LockName;

/// Each place remembers one name. All places take 64 KB.
const PLACES: u16 = 8192;

/// The names for which this client has seen a row. It forgets some names, and may be wrong about
/// others: rows are removed, and two names may have one hash. So it only decides which statement to
/// try first.
#[derive(Debug)]
pub(crate) struct KnownRows {
    hashes: RandomState,
    places: Box<[AtomicU64]>,
}

impl Default for KnownRows {
    fn default() -> Self {
        Self {
            hashes: RandomState::new(),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl KnownRows {
    pub(crate) fn insert(&self, name: &LockName) {
        let (hash, place) = self.find(name);
        if let Some(place) = place {
            place.store(hash, Relaxed);
        }
    }

    pub(crate) fn contains(&self, name: &LockName) -> bool {
        let (hash, place) = self.find(name);
        place.is_some_and(|place| place.load(Relaxed) == hash)
    }

    fn find(&self, name: &LockName) -> (u64, Option<&AtomicU64>) {
        // 0 marks an empty place.
        let hash = self.hashes.hash_one(name).max(1);
        let place =
            usize::try_from(hash % u64::from(PLACES)).ok().and_then(|place| self.places.get(place));
        (hash, place)
    }
}

#[cfg(test)]
mod tests {
    use lockkit_core::Kind;

    use super::*;

    #[test]
    fn a_name_is_known_after_it_was_seen_and_others_are_not() {
        let known = KnownRows::default();
        let name = |kind, text| LockName::new(kind, text).unwrap();
        let mutex = name(Kind::Mutex, "a");
        assert!(!known.contains(&mutex));
        known.insert(&mutex);
        assert!(known.contains(&mutex));
        let others = [name(Kind::Election, "a"), name(Kind::Mutex, "b")];
        assert!(others.iter().all(|other| !known.contains(other)));
    }

    #[test]
    fn the_cache_does_not_grow_and_forgets_instead() {
        let known = KnownRows::default();
        let name = |number: u32| LockName::new(Kind::Mutex, &number.to_string()).unwrap();
        let names: Vec<_> = (0..4 * u32::from(PLACES)).map(name).collect();
        for name in &names {
            known.insert(name);
        }
        let left = names.iter().filter(|name| known.contains(name)).count();
        assert!(left <= usize::from(PLACES) && left > usize::from(PLACES) / 2, "{left}");
    }
}
