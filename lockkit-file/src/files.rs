//! Small files that are read without a lock and replaced whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use lockkit_core::{Error, Result};
use rustix::{fs::OFlags, io::Errno};

use crate::{error::from_io, host::micros};

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
    /// When it was written, in µs since 1970.
    pub(crate) written: u64,
}

/// What a file holds; nothing if there is none.
///
/// # Errors
/// What the system says.
pub(crate) fn read(path: &Path) -> Result<Content> {
    let failed = |error| from_io(error, "reading", path);
    let Some(file) = open(path).map_err(failed)? else { return Ok(Content::default()) };
    let written = file.metadata().and_then(|seen| seen.modified()).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Content { bytes, written: micros(written) })
}

/// Replaces a file whole, by swapping it with a spare one beside it. One writer at a time.
///
/// A rename over the old file would have ext4 write both to the disk at once, which takes three hundred times as long. Who
/// reads the old file at the same time may see it change: its sum tells.
///
/// # Errors
/// What the system says. One whose outcome is unknown if the swap failed.
pub(crate) fn replace(path: &Path, bytes: &[u8], may_go_on: impl FnOnce() -> Result<()>) -> Result<()> {
    let spare = beside(path);
    let failed = |error| from_io(error, "writing", &spare);
    let mut file = options().write(true).create(true).open(&spare).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.set_len(u64::try_from(bytes.len()).unwrap_or(LARGEST)).map_err(failed)?;
    may_go_on()?;
    let swapped = match swap(&spare, path) {
        // The first one has nothing to swap with, and some file systems can't.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::rename(&spare, path),
        swapped => swapped.map_err(io::Error::from),
    };
    swapped.map_err(|error| from_io(error, "replacing", path)).map_err(Error::with_outcome_unknown)
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

fn beside(path: &Path) -> PathBuf {
    let mut spare = path.as_os_str().to_owned();
    spare.push(".new");
    PathBuf::from(spare)
}

/// The new content of a file that is to be on the disk before it counts.
#[derive(Debug)]
pub(crate) struct Draft {
    new: PathBuf,
    file: File,
}

impl Draft {
    /// Writes it. One writer at a time; what one left that died is replaced.
    ///
    /// # Errors
    /// What the system says. Nothing stays of it.
    pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<Self> {
        let new = beside(path);
        let failed = |error| from_io(error, "writing", &new);
        // A new file, not an old one emptied: whoever was stopped while it wrote the old one has that to itself.
        let mut create = options();
        create.write(true).create_new(true);
        let mut file = match create.open(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove(&new).and_then(|()| create.open(&new)).map_err(failed)?
            }
            file => file.map_err(failed)?,
        };
        if let Err(error) = file.write_all(bytes) {
            // It has a name that the next writer replaces.
            let _ = remove(&new);
            return Err(failed(error));
        }
        Ok(Self { new, file })
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
        fs::rename(&self.new, path)
            .map_err(|error| from_io(error, "replacing", path))
            .map_err(Error::with_outcome_unknown)
    }
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
