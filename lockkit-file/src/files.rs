//! Small files that are replaced whole. A former file is overwritten only while no process reads
//! it.

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
/// Far more than a record with thousands of waiters needs. A larger file is not lockkit's.
const LARGEST: u64 = 64 << 20;
/// If the buffer has less room than this, the standard library finds the end by an extra read.
const SPARE: usize = 64;
/// This also replaces a lock that the same open file already has.
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;
/// A reader whose file is replaced reads again. After this many attempts it takes the bytes that it
/// has, and the sum decides whether they are whole.
const MOST_READS: u32 = 100;

/// Options that follow no link: in a folder that others may write to, a link could lead anywhere.
/// They do not wait for a pipe either.
pub(crate) fn options() -> OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(flags.bits().cast_signed());
    options
}

/// Opens a file to read; `None` if there is no such file.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    match options().read(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: Stamp,
}

/// Identifies a file and its last change; all zero if there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    identity: Identity,
    size: u64,
    /// When the file was last changed in any way, even its name: seconds and nanoseconds.
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

    /// The stamp of the file that is there now.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(seen) => Self::of(&seen),
            Err(error) if is_missing(&error) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }
}

/// Reads a file that no process may replace meanwhile, or that no process overwrites. The content
/// is empty if there is no file.
///
/// # Errors
/// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a pipe and the like; an error
/// of the system.
pub(crate) fn read(path: &Path) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    match open(path).map_err(failed)? {
        Some(file) => content(&file, path, &file.metadata().map_err(failed)?),
        None => Ok(Content::default()),
    }
}

/// Reads a file that others may replace at any time. A lock on the file prevents that it is
/// overwritten before it is read.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_shared(path: &Path) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    for _ in 0..MOST_READS {
        let Some(file) = open(path).map_err(failed)? else { return Ok(Content::default()) };
        // If this fails, a process overwrites this file, which was in place a moment ago.
        let is_locked = file.try_lock_shared().is_ok();
        let seen = file.metadata().map_err(failed)?;
        // A file that was replaced before it was locked may have a content that was never in place.
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
    // The buffer has room for the whole file and for the read that finds its end. Otherwise it
    // would be read in many small pieces.
    let room = usize::try_from(seen.len().min(LARGEST)).unwrap_or_default() + SPARE;
    let mut bytes = Vec::with_capacity(room);
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Content { bytes, stamp })
}

/// # Errors
/// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a pipe, a socket, a device or a
/// folder.
pub(crate) fn check_plain(seen: &Metadata, path: &Path) -> Result<()> {
    if seen.is_file() { Ok(()) } else { Err(stranger(path, "it is not a plain file")) }
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

/// The new content of a file, in a second file beside it.
#[derive(Debug)]
pub(crate) struct Draft {
    new: PathBuf,
    pub(crate) file: File,
}

impl Draft {
    /// Writes it to the file `new`, and overwrites or replaces what another writer left there. Two
    /// writers must not use the same name for their drafts at the same time.
    ///
    /// # Errors
    /// An error of the system. No draft is left then.
    pub(crate) fn write(new: PathBuf, bytes: &[u8]) -> Result<Self> {
        let failed = |error| from_io(error, "writing", &new);
        let file = match former(&new, bytes.len()) {
            Some(file) => file,
            None => Self::create(&new).map_err(failed)?,
        };
        // Once the file is in place, others may lock it to read it, too. No process may overwrite
        // it while this one keeps it.
        let written = (&file).write_all(bytes).and_then(|()| Ok(flock(&file, SHARED)?));
        if let Err(error) = written {
            // If this fails, the next writer replaces the file under that name.
            let _ = remove(&new);
            return Err(failed(error));
        }
        Ok(Self { new, file })
    }

    fn create(new: &Path) -> io::Result<File> {
        let mut create = options();
        create.write(true).create_new(true);
        // The old file goes first, so that its room is free on a full disk.
        remove(new)?;
        create.open(new)
    }

    /// Writes the draft to the disk, so that it outlasts a loss of power.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| from_io(error, "writing to the disk", &self.new))
    }

    /// Puts the draft in the place of the file.
    ///
    /// # Errors
    /// An error of the system. The outcome is unknown.
    pub(crate) fn publish(self, path: &Path) -> Result<File> {
        fs::rename(&self.new, path).map_err(|error| not_replaced(error, path))?;
        Ok(self.file)
    }

    /// Puts the draft in the place of the file. The old content gets the draft's name.
    ///
    /// With a rename over the old file, ext4 would write both to the disk at once, which takes a
    /// hundred times as long.
    ///
    /// # Errors
    /// An error of the system. The outcome is unknown.
    pub(crate) fn swap(self, path: &Path) -> Result<File> {
        match swap(&self.new, path) {
            // The first record has no file to swap with, and some file systems can't swap.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.publish(path)
            }
            swapped => {
                swapped.map(|()| self.file).map_err(|error| not_replaced(error.into(), path))
            }
        }
    }

    /// Removes the draft. No other process may have a draft of the same name.
    pub(crate) fn discard(self) {
        // An extra file does no harm.
        let _ = remove(&self.new);
    }
}

/// The former file under a draft's name, locked, and not longer than `size`. To overwrite it is
/// several times as fast as to make a new file. `None` if there is none, or if it is not ours
/// alone.
fn former(new: &Path, size: usize) -> Option<File> {
    let file = options().write(true).open(new).ok()?;
    // A reader may still read the file that was in place until the last swap.
    file.try_lock().ok()?;
    let seen = file.metadata().ok()?;
    // A user may keep the file under another name, as a backup.
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

/// Distinguishes a file from all others for as long as it is open.
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

/// Whether the error means that the file, or perhaps its folder, does not exist.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests;
