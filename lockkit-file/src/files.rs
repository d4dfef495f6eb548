//! Small files that are replaced whole. A former one is written over only while nobody reads it.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
};

use lockkit_core::{Error, Result};
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use crate::{
    error::{from_io, stranger},
    host::micros,
};

const FILE_MODE: u32 = 0o660;
/// Far more than a record of thousands of waiters has: what is larger is not ours.
const LARGEST: u64 = 64 << 20;
/// With less room than this, the standard library asks for the end by a read of its own.
const SPARE: usize = 64;
/// Also in the place of the lock that one has.
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;
/// A reader whose file is replaced reads again. After so many times it reads what it has, and the
/// sum judges that.
const MOST_READS: u32 = 100;

/// Options that follow no link: in a folder that others may write to, one could lead anywhere. Nor
/// wait for a pipe.
pub(crate) fn options() -> OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(flags.bits().cast_signed());
    options
}

/// Opens to read; `None` if there is no such file.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    match options().read(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: Stamp,
}

/// Which file it is, and when it was written; all zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    identity: Identity,
    size: u64,
    /// When anything about it has changed, also its name: seconds and nanoseconds.
    changed: (i64, i64),
    /// In µs since 1970.
    pub(crate) written: u64,
}

impl Stamp {
    pub(crate) fn of(seen: &Metadata) -> io::Result<Self> {
        let changed = (seen.ctime(), seen.ctime_nsec());
        let written = micros(seen.modified()?);
        Ok(Self { identity: Identity::of(seen), size: seen.size(), changed, written })
    }

    /// Of the file that is there now.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(seen) => Self::of(&seen),
            Err(error) if is_missing(&error) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }
}

/// What a file holds that nobody may replace meanwhile, or that nobody writes over; nothing if
/// there is none.
///
/// # Errors
/// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a pipe and the like; what the
/// system says.
pub(crate) fn read(path: &Path) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    match open(path).map_err(failed)? {
        Some(file) => content(&file, path, &file.metadata().map_err(failed)?),
        None => Ok(Content::default()),
    }
}

/// What a file holds that others may replace at any time: its lock keeps them from writing over it
/// until it is read.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_shared(path: &Path) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    for _ in 0..MOST_READS {
        let Some(file) = open(path).map_err(failed)? else { return Ok(Content::default()) };
        // Where that fails, somebody writes over what was the file a moment ago.
        let is_locked = file.try_lock_shared().is_ok();
        let seen = file.metadata().map_err(failed)?;
        // One that was replaced before it was locked may hold what was never in place.
        if is_locked && Identity::of(&seen).is_at(path).map_err(failed)? {
            return content(&file, path, &seen);
        }
        thread::yield_now();
    }
    read(path)
}

fn content(file: &File, path: &Path, seen: &Metadata) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    check_plain(seen, path)?;
    let stamp = Stamp::of(seen).map_err(failed)?;
    // Room for all of it, and for the read that finds the end: without, it is read in many small
    // pieces.
    let room = usize::try_from(seen.len().min(LARGEST)).unwrap_or_default() + SPARE;
    let mut bytes = Vec::with_capacity(room);
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Content { bytes, stamp })
}

/// # Errors
/// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a pipe, a socket, a device or a
/// folder.
pub(crate) fn check_plain(seen: &Metadata, path: &Path) -> Result<()> {
    if seen.is_file() {
        Ok(())
    } else {
        Err(stranger(path, "it is something else than a plain file"))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn swap(spare: &Path, path: &Path) -> rustix::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    renameat_with(CWD, spare, CWD, path, RenameFlags::EXCHANGE)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn swap(_: &Path, _: &Path) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

/// The new content of a file, beside it.
#[derive(Debug)]
pub(crate) struct Draft {
    new: PathBuf,
    pub(crate) file: File,
}

impl Draft {
    /// Writes it to the file `new`; what another writer left there is written over or replaced. Two
    /// writers must not have the same name for their drafts at a time.
    ///
    /// # Errors
    /// What the system says. Nothing stays of it.
    pub(crate) fn write(new: PathBuf, bytes: &[u8]) -> Result<Self> {
        let failed = |error| from_io(error, "writing", &new);
        let file = match former(&new, bytes.len()) {
            Some(file) => file,
            None => Self::create(&new).map_err(failed)?,
        };
        // Once it is in place, others may lock it to read it, too, and nobody may write over it
        // while it is kept.
        let written = (&file).write_all(bytes).and_then(|()| Ok(flock(&file, SHARED)?));
        if let Err(error) = written {
            // It has a name that the next writer replaces.
            let _ = remove(&new);
            return Err(failed(error));
        }
        Ok(Self { new, file })
    }

    fn create(new: &Path) -> io::Result<File> {
        let mut create = options();
        create.write(true).create_new(true);
        // First, so that a full disk has its room.
        remove(new)?;
        create.open(new)
    }

    /// Makes it last over a loss of power.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| from_io(error, "writing to the disk", &self.new))
    }

    /// Puts it in the place of the file.
    ///
    /// # Errors
    /// What the system says: the outcome is unknown.
    pub(crate) fn publish(self, path: &Path) -> Result<File> {
        fs::rename(&self.new, path).map_err(|error| not_replaced(error, path))?;
        Ok(self.file)
    }

    /// Puts it in the place of the file, whose content gets the draft's name.
    ///
    /// A rename over the old file would have ext4 write both to the disk at once, which takes a
    /// hundred times as long.
    ///
    /// # Errors
    /// What the system says: the outcome is unknown.
    pub(crate) fn swap(self, path: &Path) -> Result<File> {
        match swap(&self.new, path) {
            // The first one has nothing to swap with, and some file systems can't.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.publish(path)
            }
            swapped => {
                swapped.map(|()| self.file).map_err(|error| not_replaced(error.into(), path))
            }
        }
    }

    /// Takes it back, where nobody else has a draft of the same name.
    pub(crate) fn discard(self) {
        // A file too many hurts nobody.
        let _ = remove(&self.new);
    }
}

/// The former file under a draft's name, locked, and no longer than `size`: to write it over is
/// several times as fast as to make a new one. `None` if there is none, or if it is not ours alone.
fn former(new: &Path, size: usize) -> Option<File> {
    let file = options().write(true).open(new).ok()?;
    // A reader may still read what was in place until the last swap.
    file.try_lock().ok()?;
    let seen = file.metadata().ok()?;
    // Somebody may keep it under another name, as a backup.
    if !seen.is_file() || seen.nlink() != 1 {
        return None;
    }
    let size = u64::try_from(size).ok()?;
    if seen.len() > size {
        file.set_len(size).ok()?;
    }
    Some(file)
}

fn not_replaced(error: io::Error, path: &Path) -> Error {
    from_io(error, "replacing", path).with_outcome_unknown()
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if !is_missing(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Tells a file from all others for as long as it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    dev: u64,
    pub(crate) ino: u64,
}

impl Identity {
    pub(crate) fn of(seen: &Metadata) -> Self {
        Self { dev: seen.dev(), ino: seen.ino() }
    }

    /// Whether `path` leads to this file.
    pub(crate) fn is_at(self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(there) => Ok(self == Self::of(&there)),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Neither the file nor, perhaps, its folder is there.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests;
