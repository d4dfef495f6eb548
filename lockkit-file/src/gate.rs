//! The gate of a name: only the process inside it may change the name's record.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use lockkit_core::{Clock, Error, ErrorKind, Result};
use tokio::time::sleep;

use crate::{
    error::{from_io, ours},
    files::{self, Identity, is_missing},
    folder::{Folder, LockPaths},
    gate_cache::{CachedGate, GateCache, Written},
    host,
};

/// A process that runs leaves the gate within microseconds.
const SPINS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// How often the list of locks is read until it shows who is inside.
const LOOKS: u32 = 10;

/// Stays locked until this is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct Gate {
    file: Arc<File>,
    path: PathBuf,
    /// Distinguishes this gate from one that was removed.
    identity: Identity,
    /// The record as it was when this process last left the gate. Others may have entered since.
    pub(crate) written: Option<Written>,
}

impl Gate {
    /// Waits until no process is inside. It never blocks the thread, because the process inside may
    /// be stopped.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if another process stays inside for longer than `patience`; an
    /// error of the system.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn enter(
        folder: &Folder,
        gates: &GateCache,
        paths: &LockPaths,
        patience: Duration,
    ) -> Result<Self> {
        let start = Clock::Boot.now();
        let mut tries = 0;
        loop {
            match Self::try_enter(folder, gates, paths)? {
                Entry::Inside(gate) => return Ok(gate),
                Entry::Taken(file) if start.until(Clock::Boot.now()) >= patience => {
                    return Err(stuck(&file, &paths.gate, patience));
                }
                Entry::Taken(_) | Entry::Removed => {}
            }
            tries += 1;
            if tries < SPINS {
                thread::yield_now();
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    /// Enters if no process stays inside. It waits for as long as a change takes.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn enter_now(
        folder: &Folder,
        gates: &GateCache,
        paths: &LockPaths,
    ) -> Result<Option<Self>> {
        for _ in 0..SPINS {
            if let Entry::Inside(gate) = Self::try_enter(folder, gates, paths)? {
                return Ok(Some(gate));
            }
            thread::yield_now();
        }
        Ok(None)
    }

    fn try_enter(folder: &Folder, gates: &GateCache, paths: &LockPaths) -> Result<Entry> {
        let path = &paths.gate;
        let CachedGate { gate: file, identity, written } = match gates.take(&paths.key) {
            Some(open) => open,
            None => open(folder, path)?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Entry::Taken(file)),
            Err(TryLockError::Error(error)) => return Err(from_io(error, "locking", path)),
        }
        let gate = Self { file, path: path.to_owned(), identity, written };
        // If the gate was removed meanwhile, others enter through another one.
        Ok(if gate.stands()? { Entry::Inside(gate) } else { Entry::Removed })
    }

    /// Leaves, and keeps the gate open for the next time.
    pub(crate) fn leave(mut self, gates: &GateCache, paths: &LockPaths) {
        let open = CachedGate {
            gate: Arc::clone(&self.file),
            identity: self.identity,
            written: self.written.take(),
        };
        // It is unlocked before another task can take it from the cache, because that task would be
        // let in beside us.
        drop(self);
        gates.put(&paths.key, open);
    }

    fn stands(&self) -> Result<bool> {
        self.identity.is_at(&self.path).map_err(|error| from_io(error, "looking at", &self.path))
    }

    pub(crate) fn number(&self) -> u64 {
        self.identity.ino
    }

    /// Checks that no other gate is in the place of this one. Others may have entered through such
    /// a gate.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]
    pub(crate) fn check(&self) -> Result<()> {
        if self.stands()? {
            return Ok(());
        }
        Err(ours(
            ErrorKind::Unavailable,
            format!(
                "another program removed {:?} while lockkit used it; leave lockkit's folder alone",
                self.path
            ),
        ))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // To close it is not enough: a child that was forked meanwhile has the file open, too.
        let _ = self.file.unlock();
    }
}

#[expect(clippy::large_enum_variant, reason = "one is taken apart as soon as it is made")]
enum Entry {
    Inside(Gate),
    Removed,
    /// Another process or task is inside.
    Taken(Arc<File>),
}

fn open(folder: &Folder, path: &Path) -> Result<CachedGate> {
    let mut options = files::options();
    options.read(true).write(true).create(true);
    let file = match options.open(path) {
        Err(error) if is_missing(&error) => {
            folder.make()?;
            options.open(path)
        }
        file => file,
    };
    let file = file.map_err(|error| from_io(error, "opening", path))?;
    let seen = file.metadata().map_err(|error| from_io(error, "looking at", path))?;
    files::check_plain(&seen, path)?;
    Ok(CachedGate { gate: Arc::new(file), identity: Identity::of(&seen), written: None })
}

fn stuck(file: &File, path: &Path, patience: Duration) -> Error {
    let who = match file.metadata().ok().and_then(|seen| holder_of(seen.dev(), seen.ino())) {
        Some(pid) => format!("process {pid} ({})", host::program_of(pid)),
        None => "another process".to_owned(),
    };
    let reason = format!(
        "{who} has not moved for {patience:?} while it changes the lock in {path:?}; it is \
         stopped, or its disk does not answer; continue the process, or kill it"
    );
    ours(ErrorKind::Unavailable, reason)
}

/// The process that has a file locked, if the system shows it:
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`.
///
/// The system gives the list in pieces. If another lock ends between two of them, a line is left
/// out. So this looks several times.
fn holder_of(dev: u64, ino: u64) -> Option<u32> {
    let major = rustix::fs::major(dev);
    let minor = rustix::fs::minor(dev);
    let wanted = format!("{major:02x}:{minor:02x}:{ino}");
    (0..LOOKS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let pid = words.nth(4)?;
            let file = words.next()?;
            // The system shows zero for a process in another namespace.
            let pid = pid.parse().ok().filter(|pid| *pid > 0);
            if file == wanted { pid } else { None }
        })
    })
}

#[cfg(test)]
mod tests {
    use lockkit_core::{Kind, LockName};
    use tempfile::TempDir;

    use super::*;

    fn paths(root: &TempDir) -> (Folder, LockPaths) {
        let folder = Folder::new(root.path().to_owned());
        let paths = folder.paths(&LockName::new(Kind::Mutex, "a").unwrap());
        (folder, paths)
    }

    #[test]
    fn c13_a_child_that_a_process_forks_inside_the_gate_keeps_no_other_process_out() {
        let root = TempDir::new().unwrap();
        let (folder, paths) = paths(&root);
        let gate = Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap().unwrap();
        assert!(Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap().is_none());
        // A child has the same open file.
        let childs = gate.file.try_clone().unwrap();
        drop(gate);
        assert!(Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap().is_some());
        drop(childs);
    }

    #[test]
    fn c13_a_gate_that_is_no_plain_file_is_refused() {
        let root = TempDir::new().unwrap();
        let (folder, paths) = paths(&root);
        folder.make().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&paths.gate).unwrap();
        assert_eq!(
            Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap_err().kind(),
            ErrorKind::WrongType
        );
        fs::remove_file(&paths.gate).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &paths.gate, 0o600.into()).unwrap();
        assert_eq!(
            Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap_err().kind(),
            ErrorKind::WrongType
        );
    }

    /// Two gates with the same descriptor would have the same lock.
    #[test]
    fn c1_a_gate_that_is_kept_open_lets_in_one_at_a_time() {
        let root = TempDir::new().unwrap();
        let (folder, paths) = paths(&root);
        let gates = GateCache::new();
        for _ in 0..3 {
            let gate = Gate::enter_now(&folder, &gates, &paths).unwrap().unwrap();
            assert!(Gate::enter_now(&folder, &gates, &paths).unwrap().is_none());
            gate.leave(&gates, &paths);
            let others = Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap();
            assert!(others.is_some(), "what is kept is locked");
            assert!(Gate::enter_now(&folder, &gates, &paths).unwrap().is_none());
        }
    }

    #[test]
    fn c1_a_removed_gate_that_is_kept_open_admits_no_process() {
        let root = TempDir::new().unwrap();
        let (folder, paths) = paths(&root);
        let gates = GateCache::new();
        Gate::enter_now(&folder, &gates, &paths).unwrap().unwrap().leave(&gates, &paths);
        fs::remove_file(&paths.gate).unwrap();
        let inside = Gate::enter_now(&folder, &GateCache::new(), &paths).unwrap().unwrap();
        assert!(Gate::enter_now(&folder, &gates, &paths).unwrap().is_none(), "two are inside");
        drop(inside);
        assert!(Gate::enter_now(&folder, &gates, &paths).unwrap().is_some());
    }
}
