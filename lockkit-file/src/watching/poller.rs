//! Looks for changes since the last look, where the system does not report them.

use std::{collections::HashMap, mem, time::Duration};

use lockkit_core::{Clock, Result, Tick};

use crate::{
    files::Stamp,
    folder::LockPaths,
    host::{micros, wall_clock},
    record::Record,
    store::Store,
};

/// The shortest pause between two looks.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
/// The longest pause: waiters look as often by themselves.
pub(super) const LONGEST: Duration = Duration::from_secs(1);
/// The pause is this many times as long as the look.
const REST: u32 = 20;
/// In µs. A file that was written later than this may be replaced by one that looks the same. The
/// reason is that a file system's clock ticks only every few milliseconds.
const FRESH: u64 = 100_000;

type Seen = (Stamp, Record);

#[derive(Debug)]
pub(super) struct FolderPoller {
    /// The last look at each record, by key.
    seen: HashMap<String, Seen>,
    due: Tick,
}

impl Default for FolderPoller {
    fn default() -> Self {
        Self { seen: HashMap::new(), due: Clock::Boot.now() }
    }
}

impl FolderPoller {
    pub(super) fn due(&self) -> Tick {
        self.due
    }

    pub(super) fn is_due(&self) -> bool {
        Clock::Boot.now() >= self.due
    }

    /// Looks at all locks that a claim or an observer here needs, as if all had changed.
    pub(super) fn look_at_all(&mut self, store: &Store) {
        let start = Clock::Boot.now();
        // Locks that none of them needs any more are forgotten.
        let mut seen = mem::take(&mut self.seen);
        for paths in store.local_claims.all_paths() {
            match look_at(store, &paths, seen.remove(&paths.key)) {
                Ok(found) => self.seen.extend(found.map(|found| (paths.key, found))),
                Err(_) => {
                    store.local_claims.hear(&paths, None);
                    store.local_claims.tell_observers(&paths);
                }
            }
        }
        let end = Clock::Boot.now();
        self.due = end.after((start.until(end) * REST).clamp(SHORTEST, LONGEST));
    }
}

/// Looks at one record and returns it; `None` if it may change unseen.
fn look_at(store: &Store, paths: &LockPaths, known: Option<Seen>) -> Result<Option<Seen>> {
    let there = Stamp::at(&paths.record).ok();
    let known = known.filter(|(stamp, _)| Some(*stamp) == there);
    let has_changed = known.is_none();
    let (stamp, mut record) = match known {
        Some(known) => known,
        None => store.read_stamped(paths)?,
    };
    let anybody_died = store.drop_dead_in_front(&mut record)?;
    store.local_claims.hear(paths, Some(&record));
    if has_changed || anybody_died {
        store.local_claims.tell_observers(paths);
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
        gate_cache::GateCache,
        record::{Asker, Share},
    };

    fn is_told(signal: &Notify) -> bool {
        pin!(signal.notified()).poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    async fn take(store: &Store, paths: &LockPaths) {
        let session = store.session().unwrap().id;
        let asker =
            Asker { owner: OwnerId::random(), session, share: Share::Exclusive, label: None };
        let take = |record: &mut Record, now: &_| record.attempt(&asker, Wait::No, now);
        let taken = store.change(paths, None, Duration::ZERO, take, |_| {}).await.unwrap();
        assert!(matches!(taken, Attempt::Granted(_)));
    }

    #[tokio::test]
    async fn c8_only_changed_records_and_dead_processes_are_seen() {
        let root = TempDir::new().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let paths = folder.paths(&LockName::new(Kind::Mutex, "a").unwrap());
        let store = Store::new(folder.clone(), GateCache::new());
        let other = Store::new(folder, GateCache::new());
        let mut poller = FolderPoller::default();
        let signal = Arc::new(Notify::new());
        store.local_claims.observe(&paths, &signal);
        poller.look_at_all(&store);
        assert!(is_told(&signal));
        take(&other, &paths).await;
        poller.look_at_all(&store);
        assert!(is_told(&signal), "it has changed");
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        std::fs::File::options()
            .write(true)
            .open(&paths.record)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        poller.look_at_all(&store);
        assert!(is_told(&signal), "it is another file");
        poller.look_at_all(&store);
        assert!(!is_told(&signal), "nothing has changed");
        other.close();
        poller.look_at_all(&store);
        assert!(is_told(&signal), "the holder has died");
    }
}
