//! A session: a file that a backend keeps locked for its life. The system unlocks it when its
//! process ends.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::UNIX_EPOCH,
};

use lockkit_core::{Error, ErrorKind, OwnerId, Result};
use serde_json::json;

use crate::{
    error::{from_io, ours},
    files::{self, Identity, is_missing, remove},
    folder::{Folder, list},
    host,
};

/// The name of a session is random, like an owner id.
pub(crate) type SessionId = OwnerId;

/// The ending of a session's name before it is locked.
const UNBORN: &str = ".new";
/// A process that cleans up may remove such a file before it is locked.
const MOST_TRIES: usize = 10;

/// Our own session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    path: PathBuf,
    file: File,
    identity: Identity,
    over: AtomicBool,
    /// The process that began it. A forked child has a copy, too, and must not end the session.
    pid: u32,
}

impl Session {
    /// Begins a session, and removes the files of dead processes.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn begin(folder: &Folder) -> Result<Self> {
        folder.make()?;
        let sessions = folder.sessions();
        sweep(&sessions).map_err(|error| from_io(error, "tidying up", &sessions))?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_begin(&sessions) {
                Err(error) if is_missing(&error) && tries < MOST_TRIES => {}
                session => {
                    return session
                        .map_err(|error| from_io(error, "making a session in", &sessions));
                }
            }
        }
    }

    fn try_begin(sessions: &Path) -> io::Result<Self> {
        let id = SessionId::random();
        let path = sessions.join(id.to_string());
        let unborn = sessions.join(format!("{id}{UNBORN}"));
        let mut file = files::options().read(true).write(true).create_new(true).open(&unborn)?;
        // The session gets its final name only after this, so no process sees one that lives and is
        // not locked.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::NotFound.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let since = host::wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let story = json!({
            "lockkit": 1,
            "host": host::host_name(),
            "pid": process::id(),
            "program": host::program(),
            "since_unix_s": since,
        });
        writeln!(file, "{story:#}")?;
        let identity = Identity::of(&file.metadata()?);
        fs::rename(&unborn, &path)?;
        Ok(Self { id, path, file, identity, over: AtomicBool::new(false), pid: process::id() })
    }

    /// Whether other processes still take the session for alive. Once false, it is never true
    /// again.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn stands(&self) -> Result<bool> {
        if self.over.load(SeqCst) {
            return Ok(false);
        }
        let stands = self
            .identity
            .is_at(&self.path)
            .map_err(|error| from_io(error, "looking at", &self.path))?;
        if !stands {
            self.give_up();
        }
        Ok(stands)
    }

    /// Ends the session: all its locks are free.
    pub(crate) fn end(&self) {
        if self.over.load(SeqCst) || !self.is_of_this_process() {
            return;
        }
        if self.identity.is_at(&self.path).unwrap_or(false) {
            // If this fails, others find the file unlocked, and remove it.
            let _ = remove(&self.path);
        }
        self.give_up();
    }

    /// Another descriptor of the file. It keeps the session, too, until the session is given up.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn give_up(&self) {
        self.over.store(true, SeqCst);
        if self.is_of_this_process() {
            // A file that was moved away and back must not look alive.
            let _ = self.file.unlock();
        }
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        self.pid == process::id()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a session has ended. If so, its file is removed. A session whose file can't be read may
/// live.
///
/// # Errors
/// An error of the system.
pub(crate) fn is_dead(folder: &Folder, id: SessionId) -> Result<bool> {
    let path = folder.sessions().join(id.to_string());
    bury(&path).map_err(|error| from_io(error, "looking at the session", &path))
}

/// Removes the file of a dead session; returns true if it was dead.
fn bury(path: &Path) -> io::Result<bool> {
    let Some(file) = files::open(path)? else { return Ok(true) };
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let is_there = file.metadata().and_then(|seen| Identity::of(&seen).is_at(path));
    let removed = is_there.and_then(|is_there| if is_there { remove(path) } else { Ok(()) });
    // A child that is forked at this moment has the file open, too.
    let _ = file.unlock();
    removed.map(|()| true)
}

fn sweep(sessions: &Path) -> io::Result<()> {
    for name in list(sessions)? {
        if name.strip_suffix(UNBORN).unwrap_or(&name).parse::<SessionId>().is_ok() {
            // The file of another user may be closed to us. A call that needs it gets the error.
            let _ = bury(&sessions.join(name));
        }
    }
    Ok(())
}

/// The error for claims of a closed backend.
pub(crate) fn closed() -> Error {
    ours(ErrorKind::Closed, "the locker was shut down")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn c9_a_child_that_was_forked_does_not_end_its_parents_session() {
        let root = TempDir::new().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let session = Session::begin(&folder).unwrap();
        let file = session.file.try_clone().unwrap();
        // A child has a copy of it, with the same open file.
        let childs = Session {
            id: session.id,
            path: session.path.clone(),
            file,
            identity: session.identity,
            over: AtomicBool::new(false),
            pid: process::id() + 1,
        };
        drop(childs);
        assert!(session.stands().unwrap() && !is_dead(&folder, session.id).unwrap());
        // If the parent ends it, it is over, even if another process has its file open.
        let _file = session.file.try_clone().unwrap();
        session.end();
        assert!(is_dead(&folder, session.id).unwrap());
    }
}
