//! Defines the guard of several locks that are held together.

use std::{fmt, future::Future, time::Duration};

use futures_util::future::join_all;

use super::lost::AnyLost;
use crate::{
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    name::LockName,
    token::FencingToken,
};

/// Several locks that are held together.
///
/// Each lock has its own fencing token, for the resource that the lock's name protects. Tokens of
/// two names are not comparable.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = lockkit_core::Locker::memory();
/// let guard = locker.lock_all(["account/7", "account/3"]).await?;
/// guard.run(async { /* move the money */ }).await?; // dropped if one of them is lost
/// for (name, token) in guard.tokens() {
///     println!("{name} was written under token {token}");
/// }
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
///
/// # Drop
/// As the drop of a [`LockGuard`], in reverse order of the names. Prefer
/// [`release`](Self::release): only a release can report that a lock had been lost.
#[must_use = "dropping the guard gives the locks up"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    /// The guards in the order of their names.
    guards: Vec<LockGuard>,
}

impl MultiGuard {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { guards: Vec::with_capacity(capacity) }
    }

    pub(super) fn push(&mut self, guard: LockGuard) {
        self.guards.push(guard);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// The names of the locks, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.guards.iter().map(|guard| guard.name())
    }

    /// The fencing token for the resource that this name protects. It is `None` if none of these
    /// locks has this name.
    #[must_use]
    pub fn fencing_token(&self, name: &str) -> Option<FencingToken> {
        self.guards
            .iter()
            .find(|guard| guard.name().as_str() == name)
            .map(|guard| guard.fencing_token())
    }

    /// The fencing tokens with the names that they belong to, in the order of the names.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = (&LockName, FencingToken)> {
        self.guards.iter().map(|guard| (guard.name(), guard.fencing_token()))
    }

    /// Whether all leases are still valid, by the local clock and without I/O. Once false it stays
    /// false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// How long all leases are still valid without another renewal: the shortest remaining time.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(|guard| guard.remaining()).min().unwrap_or_default()
    }

    /// The signal that one of the locks is lost.
    #[must_use]
    pub fn lost(&self) -> AnyLost {
        AnyLost::new(self.guards.iter().map(|guard| guard.lost()).collect())
    }

    /// Runs `work` for as long as all locks are held.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if one of the locks is lost before `work` is done; `work` is then
    /// dropped.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the locks stay held.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let lost = self.lost();
        tokio::select! {
            biased;
            (name, _) = lost.wait() => Err(self.lost_error(&name)),
            output = work => match lost.now() {
                None => Ok(output),
                Some((name, _)) => Err(self.lost_error(&name)),
            },
        }
    }

    /// Renews all leases now, at the same time.
    ///
    /// # Errors
    /// As [`Hold::renew`](crate::Hold::renew), for the first name whose renewal failed. The other
    /// renewals were sent as well.
    ///
    /// # Cancel safety
    /// Cancel safe: the background task finishes renewals that were already sent.
    pub async fn renew(&self) -> Result<()> {
        join_all(self.guards.iter().map(|guard| guard.renew())).await.into_iter().collect()
    }

    /// Gives all locks back, in reverse order of the names. `Ok` means that all locks were held
    /// until now and are free. If one release fails, the call continues with the next lock.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if one or more locks were lost before, and all others are free now. Any
    /// other error means that the outcome of one or more releases is unknown. The error names all
    /// locks that were not freed for certain. Each release has the bound of [`LockGuard::release`].
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task gives back the rest.
    pub async fn release(mut self) -> Result<()> {
        let mut lost = Failures::default();
        let mut unknown = Failures::default();
        while let Some(guard) = self.guards.pop() {
            let name = guard.name().clone();
            match guard.release().await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Lost => lost.add(name, error),
                Err(error) => unknown.add(name, error),
            }
        }
        not_all(&lost, &unknown)
    }

    /// Gives back locks under which no work was done yet. If the call is dropped, the background
    /// task gives back the rest.
    pub(super) async fn release_all(mut self) {
        while let Some(guard) = self.guards.pop() {
            // The background task continues a failed release, so the caller needs no error here.
            let _ = guard.release().await;
        }
    }

    fn lost_error(&self, name: &LockName) -> Error {
        let guard = self.guards.iter().find(|guard| guard.name() == name);
        guard.map_or_else(
            || Error::new(ErrorKind::Lost, "a lock of the set was lost; take the set again"),
            |guard| guard.lost_error("run"),
        )
    }
}

/// The locks that were not freed for the same reason.
#[derive(Default)]
struct Failures {
    /// The names, in reverse order.
    names: Vec<LockName>,
    first: Option<Error>,
}

impl Failures {
    fn add(&mut self, name: LockName, error: Error) {
        self.names.push(name);
        self.first.get_or_insert(error);
    }

    fn names(&self) -> Vec<&LockName> {
        self.names.iter().rev().collect()
    }
}

/// # Errors
/// One error for all locks that were not freed for certain.
fn not_all(lost: &Failures, unknown: &Failures) -> Result<()> {
    let Some(error) = unknown.first.as_ref().or(lost.first.as_ref()) else { return Ok(()) };
    let mut text = error.context().to_owned();
    if !unknown.names.is_empty() {
        text = format!("{text}; the store may still hold {:?}", unknown.names());
    }
    if !lost.names.is_empty() {
        text = format!("{text}; these locks were lost before: {:?}", lost.names());
    }
    let mut all =
        Error::new(error.kind(), text).with_status(error.status()).with_operation("release all");
    if let Some(backend) = error.backend() {
        all = all.with_backend(backend);
    }
    Err(if error.is_outcome_unknown() { all.with_outcome_unknown() } else { all })
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard").field("guards", &self.guards).finish()
    }
}

/// Gives back the lock that was taken last first, so that a waiter for the first name finds the
/// others free.
impl Drop for MultiGuard {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}
