//! Lets the core say that no caller waits for an attempt any more.

use std::{
    fmt,
    future::{pending, poll_fn},
    sync::{Arc, Weak},
    task::{Context, Poll},
};

/// The object that a [`Caller`] asks.
pub trait Attendance: Send + Sync + 'static {
    /// Is ready once the caller has left. Until then it remembers the task of `cx` and wakes it
    /// when the caller leaves. Only one task at a time may ask.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The caller that waits for an attempt. The background task finishes an abandoned attempt. An
/// attempt that waits inside the store should end its wait when the caller leaves, and answer
/// `Busy`.
#[derive(Clone, Default)]
pub struct Caller(Option<Weak<dyn Attendance>>);

impl Caller {
    /// A caller that never leaves.
    #[must_use]
    pub const fn patient() -> Self {
        Self(None)
    }

    /// The caller that `attendance` represents. When `attendance` is dropped, the caller has left.
    #[must_use]
    pub fn of<A: Attendance>(attendance: &Arc<A>) -> Self {
        let weak = Arc::downgrade(attendance);
        Self(Some(weak))
    }

    /// Completes once the caller has left: its call was cancelled, or its wait bound has passed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn gone(&self) {
        let Some(attendance) = &self.0 else { return pending().await };
        poll_fn(|cx| {
            attendance.upgrade().map_or(Poll::Ready(()), |attendance| attendance.poll_gone(cx))
        })
        .await
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    struct Present;

    impl Attendance for Present {
        fn poll_gone(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    #[test]
    fn a_patient_caller_never_goes() {
        assert_eq!(Caller::patient().gone().now_or_never(), None);
        assert_eq!(Caller::default().gone().now_or_never(), None);
    }

    #[test]
    fn a_caller_is_cancelled_when_its_future_is_dropped() {
        let present = Arc::new(Present);
        let caller = Caller::of(&present);
        assert_eq!(caller.gone().now_or_never(), None);
        drop(present);
        assert_eq!(caller.gone().now_or_never(), Some(()));
    }
}
