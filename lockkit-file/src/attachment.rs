//! What a holder has beside its lock: the file by which others know that its process lives.

use std::{
    fs::File,
    io,
    sync::{Arc, Weak},
};

use lockkit_core::{LockGuard, spi::Attachment};

use crate::session::Session;

/// The session of the process that holds a lock, for another process that is to keep it.
///
/// The system frees what a process holds when the last descriptor of its session's file is closed.
/// A process that looks after the work of this one, and is given a [`file`](Self::file) of its own
/// as, say, its standard output, keeps all locks of this process until it ends, too, however this
/// one ends. An orderly release frees a lock all the same.
///
/// ```no_run
/// # async fn example(locker: &lockkit_core::Locker) -> Result<(), Box<dyn std::error::Error>> {
/// use lockkit_file::SessionFile;
///
/// let guard = locker.mutex("backup")?.lock().await?;
/// let session = SessionFile::of(&guard).ok_or("not a lock of the file backend")?;
/// std::process::Command::new("./keeper").stdout(session.file()?).spawn()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SessionFile {
    /// What outlives the store must not keep its session.
    session: Weak<Session>,
}

impl SessionFile {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        Self { session: Arc::downgrade(session) }
    }

    /// That of a lock that is held; `None` if the lock is of another store.
    #[must_use]
    pub fn of(guard: &LockGuard) -> Option<Arc<Self>> {
        guard.attachment()
    }

    /// Another descriptor of the session's locked file. Nothing may be written to it.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if the session is over.
    pub fn file(&self) -> io::Result<File> {
        self.session.upgrade().ok_or(io::ErrorKind::NotFound)?.share()
    }
}

impl Attachment for SessionFile {}
