//! The sessions of one locker: one, a new one once it is over, and more where so many wait that one can't watch all.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use lockkit_core::{ErrorKind, Result};

use super::{Place, Session, lock, open::open};
use crate::{config::Config, error, folder};

/// Opens sessions as they are needed.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Config,
    sessions: Mutex<Vec<Arc<Session>>>,
    /// One opens, the others wait for it.
    opening: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    folders: folder::Known,
}

impl Pool {
    /// Opens the first session.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn open(config: Config) -> Result<Self> {
        let first = Arc::new(open(&config).await?);
        Ok(Self {
            config,
            sessions: vec![first].into(),
            opening: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            folders: folder::Known::default(),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn folders(&self) -> &folder::Known {
        &self.folders
    }

    /// A session that lives, for a single request.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        self.with_room_for(0).await
    }

    /// A place for a claim, on a session with room for its watches.
    ///
    /// # Errors
    /// Why there is no session.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn place(&self, watched_bytes: usize) -> Result<Place> {
        let session = self.with_room_for(watched_bytes).await?;
        // Nothing is awaited from here on, so the room is not lost.
        Ok(Place::new(session, watched_bytes))
    }

    async fn with_room_for(&self, bytes: usize) -> Result<Arc<Session>> {
        if let Some(session) = self.find(bytes)? {
            return Ok(session);
        }
        let _opening = self.opening.lock().await;
        if let Some(session) = self.find(bytes)? {
            return Ok(session);
        }
        let session = Arc::new(open(&self.config).await?);
        session.reserve(bytes);
        lock(&self.sessions).push(Arc::clone(&session));
        if self.closed.load(Acquire) {
            self.close().await;
            return Err(closed());
        }
        Ok(session)
    }

    fn find(&self, bytes: usize) -> Result<Option<Arc<Session>>> {
        if self.closed.load(Acquire) {
            return Err(closed());
        }
        let mut sessions = lock(&self.sessions);
        let mut is_first = true;
        // Those that were opened for a crowd go when the crowd has gone.
        let retired: Vec<_> = sessions
            .extract_if(.., |session| {
                let needed = !session.is_over() && (is_first || Arc::strong_count(session) > 1);
                is_first &= !needed;
                !needed
            })
            .collect();
        let found = sessions.iter().find(|session| session.reserve(bytes)).cloned();
        drop(sessions);
        drop(retired); // outside the lock
        Ok(found)
    }

    /// Ends all sessions; what stands on them is gone with that.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Release);
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        for session in sessions {
            session.close().await;
        }
    }
}

fn closed() -> lockkit_core::Error {
    error::ours(ErrorKind::Closed, "the locker was shut down")
}
