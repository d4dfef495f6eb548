//! The sessions of one locker. There is usually one. A new session replaces one that is over. More
//! sessions open when one can't watch for all waiters, or would have too many nodes.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use futures_util::future::join_all;
use lockkit_core::{ErrorKind, Result};

use super::{PathBytes, Reservation, Session, lock, open::open};
use crate::{config::Config, error, folder};

/// Opens sessions when they are needed.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Config,
    sessions: Mutex<Vec<Arc<Session>>>,
    /// One caller opens a session, and the others wait for it.
    opening: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    folders: folder::KnownFolders,
}

impl Pool {
    /// Opens the first session.
    ///
    /// # Errors
    /// The reason why there is no session.
    pub(crate) async fn open(config: Config) -> Result<Self> {
        let first = Arc::new(open(&config).await?);
        Ok(Self {
            config,
            sessions: vec![first].into(),
            opening: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            folders: folder::KnownFolders::default(),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn folders(&self) -> &folder::KnownFolders {
        &self.folders
    }

    /// Returns a session that lives.
    ///
    /// # Errors
    /// The reason why there is no session.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        Ok(Arc::clone(self.reservation(PathBytes::default()).await?.session()))
    }

    /// Returns a session that lives, with a reservation for paths. `bytes` leaves out the chroot,
    /// which is counted once for each sort of paths.
    ///
    /// # Errors
    /// The reason why there is no session.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn reservation(&self, bytes: PathBytes) -> Result<Reservation> {
        let chroot = self.config.chroot().map_or(0, str::len);
        let with_chroot = |bytes| if bytes == 0 { 0 } else { bytes + chroot };
        let bytes = PathBytes {
            watched: with_chroot(bytes.watched),
            in_nodes: with_chroot(bytes.in_nodes),
        };
        if let Some(reservation) = self.find(bytes)? {
            return Ok(reservation);
        }
        let _opening = self.opening.lock().await;
        if let Some(reservation) = self.find(bytes)? {
            return Ok(reservation);
        }
        if self.config.client().is_some() && !lock(&self.sessions).is_empty() {
            return Err(no_room());
        }
        let session = Arc::new(open(&self.config).await?);
        // An unused session has space for any path.
        let reservation = Reservation::on(&session, bytes).ok_or_else(closed)?;
        lock(&self.sessions).push(session);
        if self.closed.load(Acquire) {
            self.close().await;
            return Err(closed());
        }
        Ok(reservation)
    }

    fn find(&self, bytes: PathBytes) -> Result<Option<Reservation>> {
        if self.closed.load(Acquire) {
            return Err(closed());
        }
        let mut sessions = lock(&self.sessions);
        let mut live = sessions.iter().filter(|session| !session.is_over());
        let found = live.find_map(|session| Reservation::on(session, bytes));
        // A session that no claim uses is closed once another one has much room. Without that
        // condition, each short lock beside a full session would open and close a session.
        let mut has_much_room = false;
        let retired: Vec<_> = sessions
            .extract_if(.., |session| {
                let is_unused = has_much_room && Arc::strong_count(session) == 1;
                let is_needed = !session.is_over() && !is_unused;
                has_much_room |= is_needed && Reservation::has_much_room_on(session);
                !is_needed
            })
            .collect();
        drop(sessions);
        drop(retired); // outside the lock
        Ok(found)
    }

    /// Ends all sessions, and with them all their nodes. A session of the program continues without
    /// them.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Release);
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        join_all(sessions.iter().map(|session| session.close())).await;
    }
}

/// The error for one claim too many on the session of the program's client.
fn no_room() -> lockkit_core::Error {
    let reason = "so many claims hold or wait for locks on the session of the program's client that \
                  it has no room for the path of another one; hold fewer locks, let fewer tasks \
                  wait, or let lockkit open its own sessions";
    error::ours(ErrorKind::Unavailable, reason)
}

fn closed() -> lockkit_core::Error {
    error::ours(ErrorKind::Closed, "the locker was shut down")
}
