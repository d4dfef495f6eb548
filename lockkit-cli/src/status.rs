//! Writes the status file: a line of JSON about how a run ended.

use std::{
    fs::{self, Metadata, Permissions},
    io::{ErrorKind, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// How a run ended, in a line that can't be confused with an exit code of the command.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Status {
    /// `exited`, `signaled`, `busy`, `done` (another run did it before), `lost`, `asked`,
    /// `max_run`, `not_executable`, `not_found`, `interrupted` (during the wait) or `failed`.
    pub(crate) outcome: &'static str,
    /// The exit code of lockkit.
    pub(crate) code: u8,
    /// The signal that ended the command, or the wait for the lock.
    pub(crate) signal: Option<i32>,
    pub(crate) name: String,
    pub(crate) token: Option<u64>,
    pub(crate) waited_ms: u64,
    pub(crate) ran_ms: Option<u64>,
    pub(crate) reason: Option<String>,
}

impl Status {
    pub(crate) fn write(&self, file: &StatusFile) -> Result<()> {
        let line = serde_json::to_string(self).map_err(|error| file.failed(error))?;
        file.write(&format!("{line}\n"))
    }
}

/// The file for the line. A reader sees the old line or the new one, never a part of a line.
#[derive(Debug)]
pub(crate) struct StatusFile {
    path: PathBuf,
}

impl StatusFile {
    /// # Errors
    /// The path leads to something other than a regular file, or the file can't be written. It is
    /// better to report that before the run than after it.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let file = Self { path: path.to_owned() };
        let (target, old) = file.target()?;
        file.new_file(&target, old.as_ref())?;
        Ok(file)
    }

    fn write(&self, text: &str) -> Result<()> {
        // The file may be another one than before the run.
        let (target, old) = self.target()?;
        let mut new = self.new_file(&target, old.as_ref())?;
        new.write_all(text.as_bytes()).map_err(|error| self.failed(error))?;
        new.persist(target).map_err(|error| self.failed(error.error))?;
        Ok(())
    }

    /// The file to replace, behind all links, and its metadata if it exists. A rename would put a
    /// file in the place of a device, and later writers to the device would write to that file.
    fn target(&self) -> Result<(PathBuf, Option<Metadata>)> {
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => {
                let target = fs::canonicalize(&self.path).map_err(|error| self.failed(error))?;
                Ok((target, Some(metadata)))
            }
            Ok(_) => Err(self.no_file("it exists, but it is not a regular file")),
            Err(error) if error.kind() == ErrorKind::NotFound && !self.path.is_symlink() => {
                self.path.file_name().ok_or_else(|| self.no_file("its path has no file name"))?;
                Ok((self.path.clone(), None))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(self.no_file("it is a link to nothing"))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// A new file in the folder of the target. No other process can have prepared its name. Users
    /// who could read the old file can read the new one.
    fn new_file(&self, target: &Path, old: Option<&Metadata>) -> Result<NamedTempFile> {
        let folder = target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let new = tempfile::Builder::new()
            .prefix(".lockkit-status-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|error| self.failed(error))?;
        if let Some(old) = old {
            new.as_file().set_permissions(old.permissions()).map_err(|error| self.failed(error))?;
        }
        Ok(new)
    }

    fn no_file(&self, why: &str) -> Error {
        Error::new(format!("could not write the status file {}: {why}", self.path.display()))
    }

    fn failed(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::of(format!("could not write the status file {}", self.path.display()), error)
    }
}

/// Milliseconds for a field of the line.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
