//! The state of all calls that listen for requests to release one hold.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::Tick;

/// The time from one look for requests to the next, and from the grant to the first look.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The calls that listen on one hold share its looks, so they cost no more looks than one call.
#[derive(Debug)]
pub(crate) struct Listening(Mutex<State>);

#[derive(Debug)]
struct State {
    /// How many calls listen.
    listeners: usize,
    /// Whether the background task looks for these calls.
    is_watched: bool,
    /// When the last look began. At first the time of the grant, because a request for this grant
    /// is never older.
    looked: Tick,
    /// How many looks have found a request.
    found: u64,
    /// The reason, if the last look found a request.
    reason: Option<String>,
    /// Whether a call has returned the reason.
    is_returned: bool,
}

impl Listening {
    pub(crate) fn new(granted: Tick) -> Self {
        Self(Mutex::new(State {
            listeners: 0,
            is_watched: false,
            looked: granted,
            found: 0,
            reason: None,
            is_returned: true,
        }))
    }

    /// Counts a call that listens, for as long as the answer lives.
    pub(crate) fn join(&self) -> Listener<'_> {
        let mut state = self.lock();
        state.listeners += 1;
        Listener { listening: self, found_before: state.found }
    }

    /// True for the first caller, which must have the background task look until
    /// [`end_watch`](Self::end_watch).
    pub(crate) fn begin_watch(&self) -> bool {
        !mem::replace(&mut self.lock().is_watched, true)
    }

    pub(crate) fn end_watch(&self) {
        self.lock().is_watched = false;
    }

    /// Whether any call still listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.lock().listeners > 0
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Tick {
        self.lock().looked.after(BETWEEN_LOOKS)
    }

    pub(crate) fn begin_look(&self, now: Tick) {
        self.lock().looked = now;
    }

    /// Keeps the result of a look.
    pub(crate) fn end_look(&self, reason: Option<String>) {
        let mut state = self.lock();
        if reason.is_some() {
            state.found += 1;
            state.is_returned = false;
        }
        state.reason = reason;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call that listens.
#[derive(Debug)]
pub(crate) struct Listener<'a> {
    listening: &'a Listening,
    found_before: u64,
}

impl Listener<'_> {
    /// The reason of a request that was found since the call began. A request that no call has
    /// returned counts, too: its call may have been dropped and made anew.
    pub(crate) fn reason(&self, now: Tick) -> Option<String> {
        let mut state = self.listening.lock();
        let is_left = !state.is_returned && now < state.looked.after(BETWEEN_LOOKS);
        if state.found == self.found_before && !is_left {
            return None;
        }
        let reason = state.reason.clone()?;
        state.is_returned = true;
        Some(reason)
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.listening.lock().listeners -= 1;
    }
}
