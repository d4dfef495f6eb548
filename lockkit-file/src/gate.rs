//! The gate of a name: whoever changes its record is alone inside.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use lockkit_core::{Clock, Error, ErrorKind, Result};
use tokio::{task::coop::consume_budget, time::sleep};

use crate::{
    error::{from_io, ours},
    files::{self, is_at, is_missing},
    folder::{Folder, Place},
    host,
};

/// Whoever is inside is out again within microseconds, if it runs.
const SPINS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Stays locked until it is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct Gate {
    file: File,
    path: PathBuf,
}

impl Gate {
    /// Waits until nobody is inside. Never blocks the thread: somebody inside may have been stopped.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if somebody stays inside for longer than `patience`; what the system says.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn enter(folder: &Folder, place: &Place, patience: Duration) -> Result<Self> {
        // A store that never waits would keep a task that asks again and again on its runtime's thread for good.
        consume_budget().await;
        let (path, start) = (&place.gate, Clock::Boot.now());
        let mut tries = 0;
        loop {
            let file = open(folder, path)?;
            match file.try_lock() {
                Ok(()) => {
                    let gate = Self { file, path: path.clone() };
                    // Somebody may have removed it meanwhile, and others go through another one.
                    if gate.stands()? {
                        return Ok(gate);
                    }
                }
                Err(TryLockError::WouldBlock) if start.until(Clock::Boot.now()) >= patience => {
                    return Err(stuck(&file, path, patience));
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(from_io(error, "locking", path)),
            }
            tries += 1;
            if tries < SPINS {
                thread::yield_now();
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    fn stands(&self) -> Result<bool> {
        is_at(&self.file, &self.path).map_err(|error| from_io(error, "looking at", &self.path))
    }

    /// That nobody has put another gate in the place of this one, by which others may have come in since.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]
    pub(crate) fn check(&self) -> Result<()> {
        if self.stands()? {
            return Ok(());
        }
        Err(ours(ErrorKind::Unavailable, format!("{:?} was removed while it was in use", self.path)))
    }
}

fn open(folder: &Folder, path: &Path) -> Result<File> {
    let mut options = files::options();
    options.read(true).write(true).create(true);
    let file = match options.open(path) {
        Err(error) if is_missing(&error) => {
            folder.make()?;
            options.open(path)
        }
        file => file,
    };
    file.map_err(|error| from_io(error, "opening", path))
}

fn stuck(file: &File, path: &Path, patience: Duration) -> Error {
    let who = match file.metadata().ok().and_then(|seen| holder_of(seen.dev(), seen.ino())) {
        Some(pid) => format!("process {pid} ({})", host::program_of(pid)),
        None => "another process".to_owned(),
    };
    let reason = format!(
        "{who} has stood still for {patience:?} while it changed the lock behind {path:?}; it is stopped, or its disk \
         does not answer: let it go on, or end it"
    );
    ours(ErrorKind::Unavailable, reason)
}

/// Who has a file locked, where the system tells: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`.
fn holder_of(dev: u64, ino: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let wanted = format!("{major:02x}:{minor:02x}:{ino}");
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (pid, file) = (words.nth(4)?, words.next()?);
        // Who lives in another namespace is told as zero.
        let pid = pid.parse().ok().filter(|pid| *pid > 0);
        if file == wanted { pid } else { None }
    })
}
