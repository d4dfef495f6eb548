//! Reservations for watches. A client that reconnects sends all watched paths in one packet. Above
//! 128 KiB the client library sends two packets with the same number, which ends the session.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Relaxed},
    },
};

use super::Session;

const MOST_BYTES: usize = 100 * 1024;

/// A session, and a reservation of some bytes of watched paths on it.
pub(crate) struct WatchReservation {
    session: Arc<Session>,
    bytes: usize,
}

impl WatchReservation {
    /// Returns `None` if the session's waiters leave too few bytes.
    pub(crate) fn on(session: &Arc<Session>, bytes: usize) -> Option<Self> {
        let more = |used: usize| Some(used + bytes).filter(|&sum| sum <= MOST_BYTES || used == 0);
        session.watched_bytes.fetch_update(AcqRel, Relaxed, more).ok()?;
        Some(Self { session: Arc::clone(session), bytes })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for WatchReservation {
    fn drop(&mut self) {
        self.session.watched_bytes.fetch_sub(self.bytes, AcqRel);
    }
}

impl fmt::Debug for WatchReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchReservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
