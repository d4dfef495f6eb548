//! Small files that are read without a lock and replaced whole.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use lockkit_core::{Error, Result};
use rustix::{fs::OFlags, io::Errno};

use crate::{
    error::{from_io, stranger},
    host::micros,
};

const FILE_MODE: u32 = 0o660;
/// Far more than a record of thousands of waiters has: what is larger is not ours.
const LARGEST: u64 = 64 << 20;

/// Options that follow no link: in a folder that others may write to, one could lead anywhere. Nor wait for a pipe.
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
    inode: u64,
    size: u64,
    /// In µs since 1970.
    pub(crate) written: u64,
}

impl Stamp {
    fn of(seen: &Metadata) -> io::Result<Self> {
        Ok(Self { inode: seen.ino(), size: seen.size(), written: micros(seen.modified()?) })
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

/// What a file holds; nothing if there is none.
///
/// # Errors
/// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a pipe and the like; what the system says.
pub(crate) fn read(path: &Path) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    let Some(file) = open(path).map_err(failed)? else { return Ok(Content::default()) };
    let seen = file.metadata().map_err(failed)?;
    check_plain(&seen, path)?;
    let stamp = Stamp::of(&seen).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Content { bytes, stamp })
}

/// # Errors
/// [`ErrorKind::WrongType`](lockkit_core::ErrorKind::WrongType) for a pipe, a socket, a device or a folder.
pub(crate) fn check_plain(seen: &Metadata, path: &Path) -> Result<()> {
    if seen.is_file() { Ok(()) } else { Err(stranger(path, "it is something else than a plain file")) }
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
    /// Writes it to the file `new`; what another writer left there is replaced.
    ///
    /// # Errors
    /// What the system says. Nothing stays of it.
    pub(crate) fn write(new: PathBuf, bytes: &[u8]) -> Result<Self> {
        let failed = |error| from_io(error, "writing", &new);
        let mut file = Self::create(&new).map_err(failed)?;
        if let Err(error) = file.write_all(bytes) {
            // It has a name that the next writer replaces.
            let _ = remove(&new);
            return Err(failed(error));
        }
        Ok(Self { new, file })
    }

    /// A new file, not an old one written over: whoever was stopped while it wrote that one has it to itself.
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
    pub(crate) fn publish(self, path: &Path) -> Result<()> {
        fs::rename(&self.new, path).map_err(|error| not_replaced(error, path))
    }

    /// Puts it in the place of the file, whose content gets the draft's name.
    ///
    /// A rename over the old file would have ext4 write both to the disk at once, which takes a hundred times as long.
    ///
    /// # Errors
    /// What the system says: the outcome is unknown.
    pub(crate) fn swap(self, path: &Path) -> Result<()> {
        match swap(&self.new, path) {
            // The first one has nothing to swap with, and some file systems can't.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.publish(path),
            swapped => swapped.map_err(|error| not_replaced(error.into(), path)),
        }
    }

    /// Takes it back, where nobody else has a draft of the same name.
    pub(crate) fn discard(self) {
        // A file too many hurts nobody.
        let _ = remove(&self.new);
    }
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

/// Whether `path` still leads to `file`.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Neither the file nor, perhaps, its folder is there.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
