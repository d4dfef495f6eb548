//! The line of JSON about how a run ended.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use serde::Serialize;

use crate::error::{Error, Result};

/// How a run ended, in a line that no exit code of a command can be mistaken for.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Status {
    /// `exited`, `signaled`, `busy`, `done` (before, by another), `lost`, `asked`, `max_run`, `not_executable`,
    /// `not_found`, `interrupted` (while it waited) or `failed`.
    pub(crate) outcome: &'static str,
    /// Of lockkit.
    pub(crate) code: u8,
    /// That ended the command, or the wait for the lock.
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

/// Where it goes. A reader sees the old line or the new one, never half of one.
#[derive(Debug)]
pub(crate) struct StatusFile {
    path: PathBuf,
    new: PathBuf,
}

impl StatusFile {
    /// # Errors
    /// The file can't be written: better said before the run than after it.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let no_file = || Error::new(format!("the status file {} is no file", path.display()));
        let mut name = OsString::from(".");
        name.push(path.file_name().ok_or_else(no_file)?);
        name.push(format!(".{}.new", process::id()));
        let file = Self { path: path.to_owned(), new: path.with_file_name(name) };
        if path.is_dir() {
            return Err(no_file());
        }
        fs::write(&file.new, "")
            .and_then(|()| fs::remove_file(&file.new))
            .map_err(|error| file.failed(error))?;
        Ok(file)
    }

    fn write(&self, text: &str) -> Result<()> {
        let written = fs::write(&self.new, text).and_then(|()| fs::rename(&self.new, &self.path));
        written.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::of(format!("the status file {} can't be written", self.path.display()), error)
    }
}

/// For a field of a line.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
