//! Gives a holder the file that shows other processes that its process lives.

use std::{
    fs::File,
    io,
    sync::{Arc, Weak},
};

use lockkit_core::{LockGuard, spi::Attachment};

use crate::session::Session;

/// The session of the process that holds a lock, for another process that must keep the lock.
///
/// The system frees the locks of a process when the last descriptor of its session's file is
/// closed. A process that looks after the work of this one can get a [`file`](Self::file) of its
/// own, for example as its standard output. Then it keeps all locks of this process until it ends,
/// too, however this process ends. An orderly release still frees a lock.
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
    /// This value may outlive the store, and must not keep its session then.
    session: Weak<Session>,
}

impl SessionFile {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        Self { session: Arc::downgrade(session) }
    }

    /// The session of a lock that is held; `None` if the lock is of another store.
    #[must_use]
    pub fn of(guard: &LockGuard) -> Option<Arc<Self>> {
        guard.attachment()
    }

    /// Another descriptor of the session's locked file. The caller must not write to it.
    ///
    /// # Errors
    /// An error of the system; [`io::ErrorKind::NotFound`] if the session is over.
    pub fn file(&self) -> io::Result<File> {
        self.session.upgrade().ok_or(io::ErrorKind::NotFound)?.share()
    }
}

impl Attachment for SessionFile {}
