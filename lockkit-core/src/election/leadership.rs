//! Being the leader.

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
/// Dropping it is a best-effort resignation: it neither blocks nor reports anything, and works
/// outside a runtime too. The locker's background task does it soon;
/// [`Locker::shutdown`](crate::Locker::shutdown) waits for it. Prefer [`resign`](Self::resign),
/// which alone can tell that the leadership had been lost.
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

    /// Whether it leads, by the local clock and without I/O.
    ///
    /// Once false it stays false. It turns false before the store can make somebody else the
    /// leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// The number of this term, above those of all leaders before. Hand it to what the leader
    /// writes to, which shall refuse a smaller one than it has seen.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// What it campaigned with.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The identity of its claim, as observers see it.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.guard.owner()
    }

    /// How long it still leads without another renewal; zero once the leadership is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// The signal that the leadership is lost. It fires at the local deadline at the latest, also
    /// when the store is silent or gone, and never after a resignation.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// A view of the lock behind it, for others to work under it. It ends with the leadership.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.guard.hold()
    }

    /// The lock behind it alone, for code that works with any lock. Releasing it is resigning.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// Runs `work` for as long as it leads.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the leadership is lost before `work` is
    /// done; `work` is dropped then.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; it goes on leading.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.guard.run(work).await
    }

    /// Gives the leadership up, and says what was true: it led until now. The next candidate
    /// follows at once.
    ///
    /// # Errors
    /// As [`LockGuard::release`]: [`ErrorKind::Lost`](crate::ErrorKind::Lost) if it was lost
    /// before, and somebody else may have led at the same time. Any other error means that the
    /// outcome is unknown, and the lease ends the term, or the backend does.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, it is finished in the background.
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
