//! One interface to ask for any kind of lock.

use std::time::Duration;

use lockkit::{
    ErrorKind, LockGuard, LockOptions, Locker, Mutex, Result, RwLock, Semaphore, spi::Inspection,
};

use crate::history::{Lock, Mode, Patience};

/// A lock in one mode, ready for requests.
#[derive(Debug)]
pub(super) enum Handle {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

impl Handle {
    pub(super) fn new(
        locker: &Locker,
        lock: &Lock,
        mode: Mode,
        options: LockOptions,
    ) -> Result<Self> {
        Ok(match lock {
            Lock::Mutex(name) => Self::Mutex(locker.mutex(name)?.with_options(options)?),
            Lock::RwLock(name) => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                if mode == Mode::Shared { Self::Read(lock) } else { Self::Write(lock) }
            }
            Lock::Semaphore { name, limit } => {
                let count = if let Mode::Permits(count) = mode { count } else { *limit };
                Self::Permits(locker.semaphore(name, *limit)?.with_options(options)?, count)
            }
        })
    }

    pub(super) async fn ask(&self, patience: Patience) -> Result<Option<LockGuard>> {
        match patience {
            Patience::No => self.try_once().await,
            Patience::For(wait) => in_time(self.within(wait).await),
            Patience::UntilDropped(_) | Patience::Unbounded => self.wait().await.map(Some),
        }
    }

    async fn try_once(&self) -> Result<Option<LockGuard>> {
        match self {
            Self::Mutex(it) => it.try_lock().await,
            Self::Read(it) => it.try_read().await,
            Self::Write(it) => it.try_write().await,
            Self::Permits(it, count) => it.try_acquire_many(*count).await,
        }
    }

    async fn within(&self, wait: Duration) -> Result<LockGuard> {
        match self {
            Self::Mutex(it) => it.lock_timeout(wait).await,
            Self::Read(it) => it.read_timeout(wait).await,
            Self::Write(it) => it.write_timeout(wait).await,
            Self::Permits(it, count) => it.acquire_many_timeout(*count, wait).await,
        }
    }

    async fn wait(&self) -> Result<LockGuard> {
        match self {
            Self::Mutex(it) => it.lock().await,
            Self::Read(it) => it.read().await,
            Self::Write(it) => it.write().await,
            Self::Permits(it, count) => it.acquire_many(*count).await,
        }
    }
}

/// Returns `None` if the bound on waiting has passed.
pub(crate) fn in_time<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        answer => answer.map(Some),
    }
}

/// Looks at a lock.
pub(crate) async fn inspect(locker: &Locker, lock: &Lock) -> Result<Inspection> {
    match lock {
        Lock::Mutex(name) => locker.mutex(name)?.inspect().await,
        Lock::RwLock(name) => locker.rw_lock(name)?.inspect().await,
        Lock::Semaphore { name, limit } => locker.semaphore(name, *limit)?.inspect().await,
    }
}
