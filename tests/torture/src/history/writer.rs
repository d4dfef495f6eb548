//! Writes a history, line by line.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Event, Record};
use crate::{
    clock,
    error::{Error, Result},
};

/// Writes the records of one process. Each record is one write to the file, without a buffer, so
/// the record survives if the writer is killed.
#[derive(Clone, Debug)]
pub struct Writer {
    to: Arc<Sink>,
}

#[derive(Debug)]
struct Sink {
    process: u32,
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Writes to a new file, in a folder that [`read`](super::read) reads if its name ends in
    /// `.jsonl`.
    ///
    /// # Errors
    /// The file exists already, or can't be created.
    pub fn create(path: &Path, process: u32) -> Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        let file =
            file.map_err(|error| Error::of(format!("could not create {}", path.display()), error))?;
        Ok(Self { to: Arc::new(Sink { process, path: path.to_owned(), file }) })
    }

    /// Writes a record of an event that happens now.
    ///
    /// # Panics
    /// The file can't be written. A history with a gap proves nothing.
    pub fn write(&self, event: Event) {
        self.write_at(clock::now(), event);
    }

    /// Writes a record of an event that happened at `at`, on the [common clock](clock::now).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_at(&self, at: u64, event: Event) {
        let Sink { process, path, file } = &*self.to;
        let record = Record { at, process: *process, event };
        let written = serde_json::to_string(&record).map_err(std::io::Error::from);
        let written = written.and_then(|line| (&*file).write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            panic!("could not write to {}: {error}", path.display());
        }
    }
}
