//! The events that a locker reports about its work, in addition to its `tracing` spans.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    error::Error,
    name::LockName,
    spi::{LossReason, Mode, Released},
    token::FencingToken,
};

/// Hears what a locker does, for metrics or tests.
///
/// The task that does the work calls the observer inline, so the observer must be quick and must
/// not block. If an observer panics, lockkit catches the panic and the other observers still hear
/// the event. A program that is built with `panic = "abort"` ends instead.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// use lockkit_core::{Event, Locker, Memory, Observer, What};
/// #[derive(Debug, Default)]
/// struct Grants(AtomicU32);
///
/// impl Observer for Grants {
///     fn on_event(&self, event: &Event<'_>) {
///         if let What::Acquired { .. } = event.what {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let grants = Arc::new(Grants::default());
/// let locker = Locker::builder(Arc::new(Memory::new())).observer(grants.clone()).build();
/// locker.mutex("orders/42")?.lock().await?.release().await?;
/// assert_eq!(grants.0.load(Ordering::Relaxed), 1);
/// # locker.shutdown().await
/// # }
/// ```
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Hears one event.
    fn on_event(&self, event: &Event<'_>);
}

/// Something that happened to a lock.
#[non_exhaustive]
#[derive(Debug)]
pub struct Event<'a> {
    /// The lock.
    pub name: &'a LockName,
    /// The group that the lock's [options](crate::LockOptions::group) put it in.
    pub group: Option<&'a Arc<str>>,
    /// The kind of the event.
    pub what: What<'a>,
}

/// The kinds of events, each with its details.
///
/// Each [`Asked`](Self::Asked) is followed by one of [`Abandoned`](Self::Abandoned),
/// [`Acquired`](Self::Acquired), [`Refused`](Self::Refused) and [`TimedOut`](Self::TimedOut). Each
/// `Acquired` is followed by one of [`GivenBack`](Self::GivenBack) and [`Lost`](Self::Lost), unless
/// the locker ends before that.
#[non_exhaustive]
#[derive(Debug)]
pub enum What<'a> {
    /// A call for the lock was dropped before it ended. The background task removes what the call
    /// left in the store.
    #[non_exhaustive]
    Abandoned {
        /// The time from the call to its drop.
        waited: Duration,
    },
    /// The lock was granted.
    #[non_exhaustive]
    Acquired {
        /// How the lock is held.
        mode: Mode,
        /// The token of the grant.
        token: FencingToken,
        /// The time from the call to the grant.
        waited: Duration,
        /// How many requests this call sent to the store: none if the lock was transferred inside
        /// the process.
        attempts: u32,
    },
    /// A call for the lock has begun.
    #[non_exhaustive]
    Asked,
    /// A request failed. If it is worthwhile, the driver tries again within its bounds.
    #[non_exhaustive]
    Failed {
        /// The error of the request.
        error: &'a Error,
    },
    /// The holder gave the lock back, and a `Released` or a `Failed` follows. Or the holder made a
    /// [ticket](crate::LockGuard::into_ticket), and no release follows.
    #[non_exhaustive]
    GivenBack {
        /// The token of the grant.
        token: FencingToken,
        /// The time from the grant to now.
        held: Duration,
    },
    /// The lock was lost while it was held.
    #[non_exhaustive]
    Lost {
        /// The token of the grant.
        token: FencingToken,
        /// Why the lock was lost.
        reason: LossReason,
        /// The time from the grant to now.
        held: Duration,
    },
    /// A call for the lock ended with an error.
    #[non_exhaustive]
    Refused {
        /// The error that the call returns.
        error: &'a Error,
        /// The time from the call to its end.
        waited: Duration,
    },
    /// The store answered a release.
    #[non_exhaustive]
    Released {
        /// The token of the grant.
        token: FencingToken,
        /// The answer of the store.
        outcome: Released,
    },
    /// The store confirmed a renewal.
    #[non_exhaustive]
    Renewed {
        /// The token of the grant.
        token: FencingToken,
        /// How much of the lease was left when the answer came. Without the renewal, the holder
        /// would have lost the lock after that time.
        margin: Duration,
    },
    /// A renewal failed. It is tried again until the lease ends.
    #[non_exhaustive]
    RenewalFailed {
        /// The error of the renewal.
        error: &'a Error,
    },
    /// The bound on waiting passed, or `try_lock` found the lock taken.
    #[non_exhaustive]
    TimedOut {
        /// The time from the call to its end.
        waited: Duration,
    },
}
