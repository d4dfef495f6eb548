//! Takes the lock of a turn, whatever its kind.

use std::time::Duration;

use lockkit::{
    Error, ErrorKind, ErrorStatus, Kind, LockGuard, LockName, LockOptions, Locker, Result,
};
use tokio::time::sleep;

use crate::{cli::Permits, reporter::Reporter};

/// The pause after a campaign that failed.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock {
    Election,
    Mutex,
    Permits(Permits),
    Shared,
    Write,
}

impl Lock {
    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::Election => Kind::Election,
            Self::Mutex => Kind::Mutex,
            Self::Permits(_) => Kind::Semaphore,
            Self::Shared | Self::Write => Kind::RwLock,
        }
    }

    /// Takes the lock; `None` if it is not free in time. With a bound of zero it asks once.
    pub(super) async fn lock(
        self,
        locker: &Locker,
        name: &LockName,
        options: &LockOptions,
        bound: Option<Duration>,
        reporter: Reporter,
    ) -> Result<Option<LockGuard>> {
        let name = name.as_str();
        let options = options.clone();
        let once = bound == Some(Duration::ZERO);
        match self {
            Self::Election => campaign(locker, name, options, reporter).await.map(Some),
            Self::Mutex => {
                let lock = locker.mutex(name)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_lock().await,
                    Some(bound) => in_time(lock.lock_timeout(bound).await),
                    None => lock.lock().await.map(Some),
                }
            }
            Self::Permits(Permits { count, limit }) => {
                let lock = locker.semaphore(name, limit)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_acquire_many(count).await,
                    Some(bound) => in_time(lock.acquire_many_timeout(count, bound).await),
                    None => lock.acquire_many(count).await.map(Some),
                }
            }
            Self::Shared => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_read().await,
                    Some(bound) => in_time(lock.read_timeout(bound).await),
                    None => lock.read().await.map(Some),
                }
            }
            Self::Write => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_write().await,
                    Some(bound) => in_time(lock.write_timeout(bound).await),
                    None => lock.write().await.map(Some),
                }
            }
        }
    }
}

/// `None` if the bound on waiting has passed.
fn in_time<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        answer => answer.map(Some),
    }
}

/// Campaigns until the host leads. A candidate waits until an unreachable store comes back.
async fn campaign(
    locker: &Locker,
    name: &str,
    options: LockOptions,
    reporter: Reporter,
) -> Result<LockGuard> {
    let value = options.label().unwrap_or_default().to_owned();
    let election = locker.election(name)?.with_options(options.without_wait_bound())?;
    let mut told = false;
    loop {
        match election.campaign(&value).await {
            Ok(leadership) => return Ok(leadership.into_guard()),
            Err(error) if may_pass(&error) => {
                if !std::mem::replace(&mut told, true) {
                    reporter.say(&format!("this campaign failed, and another one starts: {error}"));
                }
                sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn may_pass(error: &Error) -> bool {
    match error.status() {
        ErrorStatus::Temporary | ErrorStatus::Persistent => true,
        ErrorStatus::Permanent => false,
    }
}
