//! One type for the three locks that exclude, so that each case about exclusion runs over all of
//! them.

use std::{fmt, time::Duration};

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockGuard, LockName, LockOptions, Locker, Mutex, Result, RwLock,
    Semaphore,
    spi::{Capabilities, Inspection, Mode, Released},
};

/// Which lock a case runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    Mutex,
    OnePermit,
    Writer,
}

impl Flavor {
    pub(crate) fn is_in(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Mutex => capabilities.exclusive,
            Self::OnePermit => capabilities.permits,
            Self::Writer => capabilities.shared,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
            Self::OnePermit => Kind::Semaphore,
            Self::Writer => Kind::RwLock,
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Mutex | Self::Writer => Mode::Exclusive,
            Self::OnePermit => {
                Mode::Permits { count: 1.try_into().unwrap(), limit: 1.try_into().unwrap() }
            }
        }
    }

    pub(crate) fn lock(self, locker: &Locker, name: &str, options: LockOptions) -> Result<AnyLock> {
        Ok(match self {
            Self::Mutex => AnyLock::Mutex(locker.mutex(name)?.with_options(options)?),
            Self::OnePermit => {
                AnyLock::OnePermit(locker.semaphore(name, 1)?.with_options(options)?)
            }
            Self::Writer => AnyLock::Writer(locker.rw_lock(name)?.with_options(options)?),
        })
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutex => "mutex",
            Self::OnePermit => "one_permit",
            Self::Writer => "writer",
        })
    }
}

/// A lock that excludes.
#[derive(Clone, Debug)]
pub(crate) enum AnyLock {
    Mutex(Mutex),
    OnePermit(Semaphore),
    Writer(RwLock),
}

impl AnyLock {
    pub(crate) fn name(&self) -> &LockName {
        match self {
            Self::Mutex(lock) => lock.name(),
            Self::OnePermit(lock) => lock.name(),
            Self::Writer(lock) => lock.name(),
        }
    }

    pub(crate) async fn lock(&self) -> Result<LockGuard> {
        match self {
            Self::Mutex(lock) => lock.lock().await,
            Self::OnePermit(lock) => lock.acquire().await,
            Self::Writer(lock) => lock.write().await,
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<LockGuard>> {
        match self {
            Self::Mutex(lock) => lock.try_lock().await,
            Self::OnePermit(lock) => lock.try_acquire().await,
            Self::Writer(lock) => lock.try_write().await,
        }
    }

    /// `None` when the bound has passed.
    pub(crate) async fn lock_timeout(&self, bound: Duration) -> Result<Option<LockGuard>> {
        in_time(match self {
            Self::Mutex(lock) => lock.lock_timeout(bound).await,
            Self::OnePermit(lock) => lock.acquire_timeout(bound).await,
            Self::Writer(lock) => lock.write_timeout(bound).await,
        })
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection> {
        match self {
            Self::Mutex(lock) => lock.inspect().await,
            Self::OnePermit(lock) => lock.inspect().await,
            Self::Writer(lock) => lock.inspect().await,
        }
    }

    pub(crate) async fn force_release(&self, token: FencingToken) -> Result<Released> {
        match self {
            Self::Mutex(lock) => lock.force_release(token).await,
            Self::OnePermit(lock) => lock.force_release(token).await,
            Self::Writer(lock) => lock.force_release(token).await,
        }
    }
}

/// `None` if the bound on waiting has passed.
pub(crate) fn in_time<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        answer => answer.map(Some),
    }
}
