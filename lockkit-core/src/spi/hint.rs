//! The way in which a backend says "something may have changed", without a task per claim.

use std::{
    fmt,
    sync::{Arc, Weak},
};

/// What a [`Hint`] rings.
pub trait Ring: Send + Sync + 'static {
    /// Remembers that something may have changed and wakes whoever waits for it.
    ///
    /// Called from any thread, possibly under a backend's own locks: it must not block, call the
    /// backend or drop a claim.
    fn ring(self: Arc<Self>);
}

/// Rung by a backend when a claim should look again: a waiting one attempts, a held one is kept
/// alive now.
///
/// Weak, so that it never keeps a claim alive; it remembers one ring, so that none is lost between
/// two looks. Ringing for no reason costs one request and is otherwise harmless.
#[derive(Clone, Default)]
pub struct Hint(Option<Weak<dyn Ring>>);

impl Hint {
    /// A hint that nobody hears.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// A hint that rings `target` for as long as that lives.
    #[must_use]
    pub fn to<R: Ring>(target: &Arc<R>) -> Self {
        let weak = Arc::downgrade(target);
        Self(Some(weak))
    }

    /// Rings. Cheap, from any thread, at any time, also under the backend's own locks.
    pub fn ring(&self) {
        if let Some(target) = self.0.as_ref().and_then(Weak::upgrade) {
            target.ring();
        }
    }
}

impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hint")
    }
}
