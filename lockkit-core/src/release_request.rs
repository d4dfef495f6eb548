//! Defines a request to the holders of a lock to release it.

use std::fmt;

use crate::{
    ask::{Grants, UNSUPPORTED, ask_name, is_possible, label},
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    handle::Handle,
    locker::Locker,
    name::{Kind, LockName},
    options::{LockOptions, Renewal},
    spi::Mode,
};

/// A request to the holders of a lock to release it. It lasts for as long as this value lives.
///
/// The request is polite: a holder may [listen](crate::Hold::release_requested) for it, and decides
/// by itself. [`Locker::force_release`] frees a lock without its holder.
///
/// ```
/// use lockkit_core::{Grants, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// let name = guard.name().clone();
/// let holder = tokio::spawn(async move {
///     let reason = guard.release_requested().await?; // in a `select!`, beside the work
///     guard.release().await?;
///     lockkit_core::Result::Ok(reason)
/// });
/// let request = locker.request_release(&name, Grants::All, "a deploy needs the lock").await?;
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// request.withdraw().await?;
/// assert_eq!(holder.await.unwrap()?, "a deploy needs the lock");
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
///
/// # Drop
/// The drop withdraws the request in the background, as the drop of a [`LockGuard`] releases a
/// lock. If the process dies, the request ends with its lease, whose length is the locker's default
/// ttl.
#[must_use = "dropping the request withdraws it"]
#[clippy::has_significant_drop]
pub struct ReleaseRequest {
    name: LockName,
    guard: LockGuard,
}

impl Locker {
    /// Asks the holders of a lock to release it, for as long as the returned value lives. Every
    /// holder that [listens](crate::Hold::release_requested) gets `reason`: 1 to 200 bytes without
    /// control characters. All users of the store can read the reason.
    ///
    /// There is one request for a lock at a time. Another request waits for its turn, in the bound
    /// of [`LockOptions::wait`] of the locker's defaults.
    ///
    /// The request takes a mutex of its own in the store, `lockkit-unlock/` and a hash of the
    /// lock's name. The mutex is not in [`names`](Self::names), and observers hear nothing of it.
    /// Use no mutex of your own with such a name.
    ///
    /// # Errors
    /// * [`ErrorKind::Unsupported`] if the backend has no exclusive locks or shows no labels.
    /// * [`ErrorKind::InvalidOption`] for a reason that can't be used.
    /// * [`ErrorKind::Timeout`] if another request lasts for too long.
    /// * Any error of the store, as from [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store.
    pub async fn request_release(
        &self,
        name: &LockName,
        grants: Grants,
        reason: &str,
    ) -> Result<ReleaseRequest> {
        let explain = |error: Error| self.explain(error, "request release", name);
        self.require(is_possible(self.capabilities()), UNSUPPORTED).map_err(explain)?;
        let label = label(grants, self.keeper.locker().token_base, reason).map_err(explain)?;
        let options =
            LockOptions::new().with_label(label).with_renewal(Renewal::Auto).without_max_hold();
        let mutex = Handle::new(self, Kind::Mutex, ask_name(name).as_str())?;
        match mutex.with_options(options)?.lock(Mode::Exclusive).await {
            Ok(guard) => Ok(ReleaseRequest { name: name.clone(), guard }),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                let text = "another request to release this lock has not ended in time; requests \
                            for one lock take turns, so try again later";
                Err(explain(Error::new(ErrorKind::Timeout, text)))
            }
            Err(error) => Err(error),
        }
    }
}

impl ReleaseRequest {
    /// The name of the lock that the request is about.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Whether holders can still see the request. It turns false if the store could not be reached
    /// for longer than the ttl.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.guard.is_held()
    }

    /// Ends the request. A holder that has seen it may release the lock all the same.
    ///
    /// # Errors
    /// As [`LockGuard::release`]. After [`ErrorKind::Lost`] the request had ended before; after any
    /// other error it ends with its lease.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task ends the request.
    pub async fn withdraw(self) -> Result<()> {
        self.guard.release().await
    }
}

impl fmt::Debug for ReleaseRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseRequest")
            .field("name", &self.name)
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
