//! Defines the guard of a leader's term.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    error::Result,
    guard::LockGuard,
    hold::Hold,
    lost::Lost,
    token::{FencingToken, OwnerId},
};

/// One term as the leader.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = lockkit_core::Locker::memory();
/// let leadership = locker.election("scheduler")?.campaign("10.0.0.7:8080").await?;
/// let plan = leadership.run(async { "the plan for today" }).await?; // dropped if the term ends
/// println!("{plan}, written in term {}", leadership.term());
/// leadership.resign().await?;
/// # locker.shutdown().await
/// # }
/// ```
///
/// # Drop
/// Dropping it is a best-effort resignation. The drop neither blocks nor reports anything, and
/// works outside a runtime too. The locker's background task sends the resignation soon, and
/// [`Locker::shutdown`](crate::Locker::shutdown) waits for it. Prefer [`resign`](Self::resign):
/// only a resignation can report that the leadership had been lost.
#[must_use = "dropping it gives the leadership up"]
#[clippy::has_significant_drop]
pub struct Leadership {
    guard: LockGuard,
    value: Arc<str>,
}

impl Leadership {
    pub(super) fn new(guard: LockGuard, value: &str) -> Self {
        Self { guard, value: value.into() }
    }

    /// Whether the candidate still leads, by the local clock and without I/O.
    ///
    /// Once false it stays false. It turns false before the store can make another candidate the
    /// leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// The number of this term, above those of all leaders before. Pass it to each resource that
    /// the leader writes to. The resource must refuse a smaller number than it has seen.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// The value with which the leader campaigned.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The owner id of its claim, as observers see it.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.guard.owner()
    }

    /// How long the leadership still lasts without another renewal; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// The signal that the leadership is lost. It fires at the local deadline at the latest, even
    /// if the store is silent or gone. It never fires after a resignation.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// A view of the lock behind the leadership, for tasks that work under it. The view ends with
    /// the leadership.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.guard.hold()
    }

    /// Returns only the guard of the lock behind the leadership, for code that works with any lock.
    /// Releasing that guard means resigning.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// Runs `work` for as long as the candidate leads.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the leadership is lost before `work` is done;
    /// `work` is then dropped.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the leadership continues.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.guard.run(work).await
    }

    /// Gives up the leadership. `Ok` means that the candidate led until now. The next candidate
    /// follows at once.
    ///
    /// # Errors
    /// As [`LockGuard::release`]: [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the leadership was
    /// lost before. Then another candidate may have led at the same time. Any other error means
    /// that the outcome is unknown, and that the lease or the backend will end the term.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task finishes the resignation.
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("name", self.guard.name())
            .field("value", &self.value)
            .field("term", &self.term())
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}
