//! Takes several mutexes without a deadlock.

use std::{sync::Arc, time::Duration};

use super::guard::MultiGuard;
use crate::{
    driver::request::Bound,
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    handle::Handle,
    locker::Locker,
    name::{Kind, LockName},
    options::LockOptions,
    spi::{LossReason, Mode},
    within::within,
};

const LEAST_GRACE: Duration = Duration::from_millis(20);

/// Several mutexes of one locker that are taken together: all of them, or none.
///
/// A call takes them one by one in the byte order of their names, whatever order the caller gave.
/// So calls with sets that overlap wait for each other, but never in a circle. This holds only
/// among sets. A holder of one of the names can close a circle if it then waits for a set. So can a
/// task that waits for two sets one after the other.
///
/// ```
/// use lockkit_core::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let both = locker.mutex_set(["account/7", "account/3"])?;
/// let guard = both.lock().await?; // who names them the other way round waits, and nobody for ever
/// assert!(locker.mutex("account/3")?.try_lock().await?.is_none());
/// assert!(guard.fencing_token("account/3").is_some());
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MutexSet {
    /// The handles in the order of their names; at least one.
    handles: Arc<[Handle]>,
}

impl Locker {
    /// Returns the mutexes with these names, to take all of them together, or none. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], also if a name is given twice. [`ErrorKind::InvalidOption`] if
    /// no name is given. [`ErrorKind::Unsupported`] if the backend has no exclusive locks.
    pub fn mutex_set(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<MutexSet> {
        self.require(self.capabilities().exclusive, "exclusive locks")?;
        let handles = names.into_iter().map(|name| Handle::new(self, Kind::Mutex, name.as_ref()));
        MutexSet::new(handles.collect::<Result<_>>()?)
    }

    /// Waits for all mutexes with these names: short for [`mutex_set`](Self::mutex_set) and
    /// [`MutexSet::lock`].
    ///
    /// ```
    /// # async fn transfer(locker: lockkit_core::Locker) -> lockkit_core::Result<()> {
    /// let both = locker.lock_all(["account/7", "account/3"]).await?;
    /// // … move the money, with `both.fencing_token("account/7")` …
    /// both.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of those two calls.
    ///
    /// # Cancel safety
    /// Cancel safe, as [`MutexSet::lock`].
    pub async fn lock_all(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<MultiGuard> {
        let set = self.mutex_set(names)?;
        set.lock().await
    }
}

impl MutexSet {
    /// # Errors
    /// [`ErrorKind::InvalidName`] if a name is given twice, [`ErrorKind::InvalidOption`] if no name
    /// is given.
    pub(crate) fn new(mut handles: Vec<Handle>) -> Result<Self> {
        if handles.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                "a set of mutexes needs at least one name",
            ));
        }
        handles.sort_by(|a, b| a.name().cmp(b.name()));
        for pair in handles.windows(2) {
            if let [first, second] = pair
                && first.name() == second.name()
            {
                let text = format!("{} is in the set twice; name each mutex once", second.name());
                return Err(Error::new(ErrorKind::InvalidName, text));
            }
        }
        Ok(Self { handles: handles.into() })
    }

    /// Sets options of each mutex. An option that is not set keeps its value, which is at first the
    /// locker's default.
    ///
    /// [`wait`](LockOptions::wait) bounds the whole call. With
    /// [`Renewal::Manual`](crate::Renewal::Manual) the first locks are not renewed while the call
    /// waits for the others.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if the options contradict each other.
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        let handles =
            self.handles.iter().map(|handle| handle.clone().with_options(options.clone()));
        Ok(Self { handles: handles.collect::<Result<_>>()? })
    }

    /// The checked names, in the order in which they are taken.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.handles.iter().map(Handle::name)
    }

    /// Waits for all of the mutexes.
    ///
    /// If the call fails, it gives back the taken locks in reverse order before it returns. If the
    /// store is in trouble, the background task gives them back. The same holds for the rest after
    /// one `op_timeout` at the latest.
    ///
    /// # Errors
    /// * [`ErrorKind::Timeout`] when [`LockOptions::wait`] has passed, with the name that was not
    ///   free.
    /// * [`ErrorKind::Lost`] if a taken lock was lost while the call waited for others.
    /// * Any error of [`Mutex::lock`](crate::Mutex::lock), with the name that failed.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back the taken locks and
    /// whatever else the call left in the store. The call then loses its place in the queues. A
    /// call that is kept and not polled keeps the locks that it has taken.
    pub async fn lock(&self) -> Result<MultiGuard> {
        self.lock_within(self.first().bound()).await
    }

    async fn lock_within(&self, bound: Bound) -> Result<MultiGuard> {
        self.acquire(bound).await?.map_err(|busy| {
            let text = "the lock was not free within the wait for all names of the set";
            busy.explain(Error::new(ErrorKind::Timeout, text), "lock all")
        })
    }

    /// Asks once for each mutex. Returns `None` if one of them is taken.
    ///
    /// # Errors
    /// Any error of the store, or [`ErrorKind::Lost`] as [`lock`](Self::lock). A mutex that is
    /// taken is no error.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        Ok(self.acquire(Bound::Try).await?.ok())
    }

    /// Waits at most `wait` for all of the mutexes. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), with `wait` as the bound.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<MultiGuard> {
        self.lock_within(Bound::Within(wait)).await
    }

    /// Returns the guard, or the handle of the mutex that was not free.
    async fn acquire(&self, bound: Bound) -> Result<Result<MultiGuard, &Handle>> {
        let bound = if let Bound::Within(Duration::ZERO) = bound { Bound::Try } else { bound };
        let clock = self.first().clock();
        let started = clock.now();
        let mut taken = MultiGuard::with_capacity(self.handles.len());
        let mut quickest = Duration::MAX;
        for handle in &*self.handles {
            let asked = clock.now();
            let left = match bound {
                Bound::Within(wait) => asked.until(started.after(wait)),
                Bound::Forever | Bound::Try => Duration::MAX,
            };
            let rest = if let Bound::Within(_) = bound { Bound::Within(left) } else { bound };
            let answer =
                if left.is_zero() { Ok(None) } else { take_one(&taken, handle, rest).await };
            match answer {
                Ok(Some(guard)) => {
                    taken.push(guard);
                    quickest = quickest.min(asked.until(clock.now()));
                }
                Ok(None) => {
                    self.give_up(taken, quickest).await;
                    return Ok(Err(handle));
                }
                // The wait for other locks used up the bound. So a missing answer need not mean
                // that the store is in trouble.
                Err(error)
                    if !taken.is_empty()
                        && left < quickest.saturating_mul(2)
                        && error.is_temporary() =>
                {
                    return Ok(Err(handle));
                }
                Err(error) => {
                    if !error.is_temporary() {
                        self.give_up(taken, quickest).await;
                    }
                    return Err(error);
                }
            }
        }
        if let Some((name, reason)) = taken.lost().now() {
            self.give_up(taken, quickest).await;
            return Err(lost_meanwhile(&name, reason, self.first()));
        }
        Ok(Ok(taken))
    }

    /// Gives back the taken locks in reverse order before the call returns, so that the caller's
    /// next attempt does not queue behind its own locks. If this takes longer than two round trips
    /// for each lock, the background task gives back the rest.
    async fn give_up(&self, taken: MultiGuard, quickest: Duration) {
        let each = quickest.saturating_mul(2).max(LEAST_GRACE);
        let grace = each.saturating_mul(u32::try_from(taken.names().len()).unwrap_or(u32::MAX));
        within(grace.min(self.first().op_timeout()), taken.release_all()).await;
    }

    fn first(&self) -> &Handle {
        &self.handles[0]
    }
}

/// Takes one more lock, and fails if a taken one is lost meanwhile.
async fn take_one(taken: &MultiGuard, handle: &Handle, bound: Bound) -> Result<Option<LockGuard>> {
    let lost = taken.lost();
    tokio::select! {
        biased;
        (name, reason) = lost.wait() => Err(lost_meanwhile(&name, reason, handle)),
        answer = handle.acquire(Mode::Exclusive, bound) => answer,
    }
}

fn lost_meanwhile(name: &LockName, reason: LossReason, handle: &Handle) -> Error {
    let text = format!("the lock was lost during the wait for other locks of its set: {reason}");
    handle.explain(Error::new(ErrorKind::Lost, text).with_name(name), "lock all")
}
