//! Lets a backend wake claims when something may have changed, without a task per claim.

use std::{
    fmt,
    sync::{Arc, Weak},
};

/// The target of a [`Wake`].
pub trait Wakeable: Send + Sync + 'static {
    /// Remembers that something may have changed, and wakes the task that waits for the claim.
    ///
    /// A backend calls this from any thread, possibly while it holds its own locks. So this
    /// function must not block, call the backend or drop a claim.
    fn wake(self: Arc<Self>);
}

/// A backend's means to make one claim look again: a waiting claim attempts, and a held claim is
/// renewed now.
///
/// It is a weak reference, so it never keeps a claim alive. The claim remembers one wake-up, so
/// that no wake-up is lost between two looks. A wake-up without a reason costs one request and is
/// otherwise harmless.
#[derive(Clone, Default)]
pub struct Wake(Option<Weak<dyn Wakeable>>);

impl Wake {
    /// Wakes nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Wakes `target` for as long as `target` lives.
    #[must_use]
    pub fn to<R: Wakeable>(target: &Arc<R>) -> Self {
        let weak = Arc::downgrade(target);
        Self(Some(weak))
    }

    /// Wakes the claim. This is cheap. A backend may call it from any thread, at any time, even
    /// while it holds its own locks.
    pub fn wake(&self) {
        if let Some(target) = self.0.as_ref().and_then(Weak::upgrade) {
            target.wake();
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}
