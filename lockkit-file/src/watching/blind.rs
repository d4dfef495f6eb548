//! Looking without being told: what has changed since the last look.

use std::{collections::HashMap, mem, time::Duration};

use lockkit_core::{Clock, Result, Tick};

use crate::{
    files::Stamp,
    folder::Place,
    host::{micros, wall_clock},
    record::Record,
    store::Store,
};

/// How often it looks.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
/// Waiters look as often by themselves.
pub(super) const LONGEST: Duration = Duration::from_secs(1);
/// It rests for so many times as long as it has looked.
const REST: u32 = 20;
/// In µs: a file that was written later may be replaced by one that looks the same, as a file
/// system's clock ticks every few milliseconds.
const FRESH: u64 = 100_000;

type Seen = (Stamp, Record);

#[derive(Debug)]
pub(super) struct Blind {
    /// By keys.
    seen: HashMap<String, Seen>,
    due: Tick,
}

impl Default for Blind {
    fn default() -> Self {
        Self { seen: HashMap::new(), due: Clock::Boot.now() }
    }
}

impl Blind {
    pub(super) fn due(&self) -> Tick {
        self.due
    }

    pub(super) fn is_due(&self) -> bool {
        Clock::Boot.now() >= self.due
    }

    /// As if all had changed that anybody here cares about.
    pub(super) fn look_at_all(&mut self, store: &Store) {
        let start = Clock::Boot.now();
        // What nobody cares about any more is forgotten.
        let mut seen = mem::take(&mut self.seen);
        for place in store.locals.places() {
            match look_at(store, &place, seen.remove(&place.key)) {
                Ok(found) => self.seen.extend(found.map(|found| (place.key, found))),
                Err(_) => {
                    store.locals.hear(&place, None);
                    store.locals.tell_observers(&place);
                }
            }
        }
        let end = Clock::Boot.now();
        self.due = end.after((start.until(end) * REST).clamp(SHORTEST, LONGEST));
    }
}

/// What is found there; `None` if it may change unseen.
fn look_at(store: &Store, place: &Place, known: Option<Seen>) -> Result<Option<Seen>> {
    let there = Stamp::at(&place.record).ok();
    let known = known.filter(|(stamp, _)| Some(*stamp) == there);
    let has_changed = known.is_none();
    let (stamp, mut record) = match known {
        Some(known) => known,
        None => store.read_stamped(place)?,
    };
    let anybody_died = store.drop_dead_in_front(&mut record)?;
    store.locals.hear(place, Some(&record));
    if has_changed || anybody_died {
        store.locals.tell_observers(place);
    }
    let is_old = stamp.written.saturating_add(FRESH) < micros(wall_clock());
    Ok(is_old.then_some((stamp, record)))
}

#[cfg(test)]
mod tests {
    use std::{future::Future as _, pin::pin, sync::Arc, task::Context};

    use lockkit_core::{
        Kind, LockName, OwnerId,
        spi::{Attempt, Wait},
    };
    use tempfile::TempDir;
    use tokio::sync::Notify;

    use super::*;
    use crate::{
        folder::Folder,
        kept::Kept,
        record::{Asker, Share},
    };

    fn is_told(bell: &Notify) -> bool {
        pin!(bell.notified()).poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    async fn take(store: &Store, place: &Place) {
        let session = store.session().unwrap().id;
        let asker =
            Asker { owner: OwnerId::random(), session, share: Share::Exclusive, label: None };
        let take = |record: &mut Record, now: &_| record.attempt(&asker, Wait::No, now);
        let taken = store.change(place, None, Duration::ZERO, take, |_| {}).await.unwrap();
        assert!(matches!(taken, Attempt::Granted(_)));
    }

    #[tokio::test]
    async fn c8_what_has_changed_and_who_has_died_is_seen_and_nothing_else() {
        let root = TempDir::new().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let place = folder.place(&LockName::new(Kind::Mutex, "a").unwrap());
        let store = Store::new(folder.clone(), Kept::new());
        let other = Store::new(folder, Kept::new());
        let mut blind = Blind::default();
        let bell = Arc::new(Notify::new());
        store.locals.observe(&place, &bell);
        blind.look_at_all(&store);
        assert!(is_told(&bell));
        take(&other, &place).await;
        blind.look_at_all(&store);
        assert!(is_told(&bell), "it has changed");
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        std::fs::File::options()
            .write(true)
            .open(&place.record)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        blind.look_at_all(&store);
        assert!(is_told(&bell), "it is another file");
        blind.look_at_all(&store);
        assert!(!is_told(&bell), "nothing has changed");
        other.close();
        blind.look_at_all(&store);
        assert!(is_told(&bell), "the holder has died");
    }
}
