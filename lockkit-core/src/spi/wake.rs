//! The way in which a backend says "something may have changed", without a task per claim.

use std::{
    fmt,
    sync::{Arc, Weak},
};

/// What a [`Wake`] wakes.
pub trait Wakeable: Send + Sync + 'static {
    /// Remembers that something may have changed and wakes whoever waits for it.
    ///
    /// Called from any thread, possibly under a backend's own locks: it must not block, call the
    /// backend or drop a claim.
    fn wake(self: Arc<Self>);
}

/// A backend wakes a claim that should look again: a waiting claim attempts, a held claim is
/// renewed now.
///
/// It is weak, so that it never keeps a claim alive. The claim remembers one wake-up, so that none
/// is lost between two looks. A wake-up for no reason costs one request and is otherwise harmless.
#[derive(Clone, Default)]
pub struct Wake(Option<Weak<dyn Wakeable>>);

impl Wake {
    /// Wakes nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Wakes `target` for as long as that lives.
    #[must_use]
    pub fn to<R: Wakeable>(target: &Arc<R>) -> Self {
        let weak = Arc::downgrade(target);
        Self(Some(weak))
    }

    /// Wakes the claim. Cheap, from any thread, at any time, also under the backend's own locks.
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
