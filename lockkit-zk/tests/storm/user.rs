//! One task: it locks, gives up at any moment, holds, and releases or drops.

use std::{
    collections::HashMap,
    fmt,
    ops::AddAssign,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_conformance::{Stay, Witness};
use lockkit_core::{Kind, LockGuard, LockName, Locker, Released, Result, spi::Mode};
use tokio::time::{sleep, timeout};

use crate::chance::Chance;

const MUTEXES: u64 = 3;
/// Beside those that all fight for, some that are held for longer than a session can be away, to be lost with it.
const LONG_MUTEXES: u64 = 8;
const LONG: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(10);
const PERMITS: u32 = 3;

/// What was held, by its name.
pub(crate) type Stays = Mutex<HashMap<LockName, Witness>>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) grants: usize,
    pub(crate) cancellations: usize,
    pub(crate) losses: usize,
    pub(crate) errors: usize,
    pub(crate) unknown_releases: usize,
}

pub(crate) async fn run(
    locker: Locker,
    mut chance: Chance,
    stays: Arc<Stays>,
    over: Arc<AtomicBool>,
) -> Tally {
    let mut tally = Tally::default();
    while !over.load(Relaxed) {
        let patience = match chance.below(4) {
            0 => chance.micros(300),
            1 => chance.micros(3_000),
            2 => chance.micros(50_000),
            _ => Duration::from_secs(5),
        };
        let (name, mode) = match chance.below(8) {
            _ if chance.below(50) == 0 => {
                ((Kind::Mutex, MUTEXES + chance.below(LONG_MUTEXES)), Mode::Exclusive)
            }
            0 => ((Kind::RwLock, 0), Mode::Shared),
            1 => ((Kind::RwLock, 0), Mode::Exclusive),
            2 => ((Kind::Semaphore, 0), permits(1 + u32::try_from(chance.below(2)).unwrap())),
            _ => ((Kind::Mutex, chance.below(MUTEXES)), Mode::Exclusive),
        };
        match timeout(patience, acquire(&locker, name, mode, chance.below(8) == 0)).await {
            Err(_) => tally.cancellations += 1,
            // Refused at once while the servers can't be reached: not a reason to spin.
            Ok(Err(_)) => {
                tally.errors += 1;
                sleep(chance.micros(20_000)).await;
            }
            Ok(Ok(None)) => {}
            Ok(Ok(Some(guard))) => {
                tally.grants += 1;
                let length = if name.1 < MUTEXES { chance.micros(2_000) } else { LONG };
                hold(guard, length, &mut chance, &stays, &mut tally).await;
            }
        }
    }
    tally
}

fn permits(count: u32) -> Mode {
    Mode::Permits { count: count.try_into().unwrap(), limit: PERMITS.try_into().unwrap() }
}

async fn acquire(
    locker: &Locker,
    name: (Kind, u64),
    mode: Mode,
    only_try: bool,
) -> Result<Option<LockGuard>> {
    let text = name.1.to_string();
    match (name.0, mode) {
        (Kind::RwLock, Mode::Shared) if only_try => locker.rw_lock(&text)?.try_read().await,
        (Kind::RwLock, Mode::Shared) => locker.rw_lock(&text)?.read().await.map(Some),
        (Kind::RwLock, _) if only_try => locker.rw_lock(&text)?.try_write().await,
        (Kind::RwLock, _) => locker.rw_lock(&text)?.write().await.map(Some),
        (_, Mode::Permits { count, .. }) if only_try => {
            locker.semaphore(&text, PERMITS)?.try_acquire_many(count.get()).await
        }
        (_, Mode::Permits { count, .. }) => {
            locker.semaphore(&text, PERMITS)?.acquire_many(count.get()).await.map(Some)
        }
        _ if only_try => locker.mutex(&text)?.try_lock().await,
        _ => locker.mutex(&text)?.lock().await.map(Some),
    }
}

async fn hold(guard: LockGuard, length: Duration, chance: &mut Chance, stays: &Stays, tally: &mut Tally) {
    let mut stay = Stay::begin(&guard);
    while stay.look(&guard) && stay.until - stay.from < length {
        if chance.below(2) == 0 {
            tokio::task::yield_now().await;
        } else {
            sleep((length / 4).min(LOOK)).await;
        }
    }
    stay.look(&guard);
    stays.lock().unwrap().entry(guard.name().clone()).or_default().record(stay);
    if chance.below(3) == 0 {
        tally.losses += usize::from(guard.lost().is_lost());
        return;
    }
    match guard.release().await {
        Ok(Released::Freed) => {}
        Ok(_) => tally.losses += 1,
        Err(_) => tally.unknown_releases += 1,
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.cancellations += other.cancellations;
        self.losses += other.losses;
        self.errors += other.errors;
        self.unknown_releases += other.unknown_releases;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, cancellations, losses, errors, unknown_releases } = self;
        write!(
            f,
            "{grants} grants, {cancellations} cancelled futures, {losses} losses, {errors} errors, \
             {unknown_releases} releases with an unknown outcome"
        )
    }
}
