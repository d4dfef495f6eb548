//! The floor of a folder: the system locks and unlocks a file, and the client writes the number of
//! its grant into it.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit::{OwnerId, url::StoreUrl};

use super::{Floor, FloorClient, held};
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct FileFloor {
    folder: Arc<PathBuf>,
}

impl FileFloor {
    pub(crate) fn open(url: &StoreUrl) -> Result<Self> {
        let folder = PathBuf::from(url.path()).join(format!("floor-{}", OwnerId::random()));
        fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Self { folder: Arc::new(folder) })
    }
}

fn failed(error: io::Error) -> Error {
    Error::of("a bare file that is locked", error)
}

#[async_trait]
impl Floor for FileFloor {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let client = || -> Box<dyn FloorClient> {
            Box::new(FileClient {
                folder: Arc::clone(&self.folder),
                files: HashMap::new(),
                grants: 0,
            })
        };
        Ok((0..tasks).map(|_| client()).collect())
    }

    async fn close(&self) -> Result<()> {
        match fs::remove_dir_all(&*self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

struct FileClient {
    folder: Arc<PathBuf>,
    files: HashMap<String, File>,
    grants: u64,
}

impl FileClient {
    fn file(&mut self, name: &str) -> io::Result<&File> {
        if !self.files.contains_key(name) {
            let path = self.folder.join(name.replace('/', "_"));
            let file =
                File::options().create(true).read(true).write(true).truncate(false).open(path)?;
            self.files.insert(name.to_owned(), file);
        }
        self.files.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[async_trait]
impl FloorClient for FileClient {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        self.grants += 1;
        let grant = self.grants;
        let file = self.file(name).map_err(failed)?;
        file.try_lock().map_err(|error| failed(error.into()))?;
        file.write_all_at(&grant.to_be_bytes(), 0).map_err(failed)?;
        let granted = held(hold).await;
        file.unlock().map_err(failed)?;
        Ok(granted)
    }
}
