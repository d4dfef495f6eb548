//! The locks of a workload, which are the same for all processes.

use lockkit::{Locker, spi::Capabilities};
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    error::{Error, Result},
    history::Lock,
    workload::Workload,
};

/// The number of permits of each semaphore.
pub(super) const PERMITS: u32 = 3;
/// The probability that a task chooses one of the locks that two tasks rarely want at a time.
const WIDE: f64 = 0.35;

/// The locks of the workload that the store supports.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    hot: Vec<Lock>,
    wide: Vec<Lock>,
}

impl Locks {
    pub(crate) fn of(workload: &Workload, locker: &Locker) -> Result<Self> {
        let Workload { mutexes, rw_locks, semaphores, wide, prefix, .. } = workload;
        let Capabilities { exclusive, shared, permits, .. } = *locker.capabilities();
        let count = |can: bool, number: &u32| 0..if can { *number } else { 0 };
        // Each kind has the same names. These are different locks, and must not affect each other.
        let name = |number: u32| format!("{prefix}/hot-{number}");
        let hot = count(exclusive, mutexes).map(|number| Lock::Mutex(name(number)));
        let hot = hot.chain(count(shared, rw_locks).map(|number| Lock::RwLock(name(number))));
        let hot = hot.chain(
            count(permits, semaphores)
                .map(|number| Lock::Semaphore { name: name(number), limit: PERMITS }),
        );
        let hot: Vec<_> = hot.collect();
        let wide: Vec<_> = count(exclusive, wide)
            .map(|number| Lock::Mutex(format!("{prefix}/wide-{number}")))
            .collect();
        if hot.is_empty() && wide.is_empty() {
            return Err(Error::new("this store supports no lock of the workload"));
        }
        Ok(Self { hot, wide })
    }

    /// The locks that all tasks want.
    pub(crate) fn hot(&self) -> &[Lock] {
        &self.hot
    }

    pub(super) fn choose(&self, rng: &mut StdRng) -> &Lock {
        let from_wide = rng.random_bool(WIDE);
        let from = match (from_wide, self.hot.as_slice(), self.wide.as_slice()) {
            (true, _, wide @ [_, ..]) | (false, [], wide) => wide,
            (_, hot, _) => hot,
        };
        &from[rng.random_range(0..from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_lock_has_the_same_names() {
        let locks = Locks::of(&Workload::new(1, 1), &Locker::memory()).unwrap();
        let name = || "torture/hot-0".to_owned();
        for lock in [
            Lock::Mutex(name()),
            Lock::RwLock(name()),
            Lock::Semaphore { name: name(), limit: PERMITS },
        ] {
            assert!(locks.hot().contains(&lock), "{lock:?}");
        }
    }
}
