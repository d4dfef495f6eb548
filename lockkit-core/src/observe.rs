//! What a locker tells about its work, beside its `tracing` spans.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    error::Error,
    name::LockName,
    spi::{LossReason, Mode, Released},
    token::FencingToken,
};

/// Hears what a locker does, for metrics or tests.
///
/// Called inline, from the task that does the work: it must be quick and must not block. A panic of
/// one observer is caught, and the others still hear the event; a program that is built with
/// `panic = "abort"` ends.
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
    /// What it was.
    pub what: What<'a>,
}

/// What happened.
///
/// Each [`Asked`](Self::Asked) is followed by one of [`Abandoned`](Self::Abandoned),
/// [`Acquired`](Self::Acquired), [`Refused`](Self::Refused) and [`TimedOut`](Self::TimedOut), and
/// each `Acquired` by one of [`GivenBack`](Self::GivenBack) and [`Lost`](Self::Lost), unless the
/// locker goes first.
#[non_exhaustive]
#[derive(Debug)]
pub enum What<'a> {
    /// A call for the lock was dropped before it ended. What it left behind is being cleaned up.
    #[non_exhaustive]
    Abandoned {
        /// From the call to its drop.
        waited: Duration,
    },
    /// The lock was granted.
    #[non_exhaustive]
    Acquired {
        /// How it is held.
        mode: Mode,
        /// The token of the grant.
        token: FencingToken,
        /// From the call to the grant.
        waited: Duration,
        /// How many requests of its own it took: none, if it was transferred inside the process.
        attempts: u32,
    },
    /// A call for the lock has begun.
    #[non_exhaustive]
    Asked,
    /// A request failed; the driver goes on inside its bounds.
    #[non_exhaustive]
    Failed {
        /// What went wrong.
        error: &'a Error,
    },
    /// The holder is done with it. The release follows, and with it a `Released` or a `Failed`.
    #[non_exhaustive]
    GivenBack {
        /// The token of the grant.
        token: FencingToken,
        /// From the grant to here.
        held: Duration,
    },
    /// The lock was lost while it was held.
    #[non_exhaustive]
    Lost {
        /// The token of the grant.
        token: FencingToken,
        /// Why.
        reason: LossReason,
        /// From the grant to here.
        held: Duration,
    },
    /// A call for the lock ended with an error.
    #[non_exhaustive]
    Refused {
        /// Which.
        error: &'a Error,
        /// From the call to its end.
        waited: Duration,
    },
    /// A release was answered.
    #[non_exhaustive]
    Released {
        /// The token of the grant.
        token: FencingToken,
        /// What the store said.
        outcome: Released,
    },
    /// A renewal was confirmed.
    #[non_exhaustive]
    Renewed {
        /// The token of the grant.
        token: FencingToken,
        /// What was left of the lease just then: what stood between the holder and a loss.
        margin: Duration,
    },
    /// A renewal failed; it is tried again for as long as the lease stands.
    #[non_exhaustive]
    RenewalFailed {
        /// What went wrong.
        error: &'a Error,
    },
    /// The bound on waiting passed, or a try found the lock taken.
    #[non_exhaustive]
    TimedOut {
        /// From the call to its end.
        waited: Duration,
    },
}
