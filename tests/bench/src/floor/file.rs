//! The rivals in a folder. The floor lets the system lock and unlock a file (`flock`), and writes
//! the number of the grant into it. The classic only lets the system lock the file, and waits for
//! it in a thread.

use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit::{OwnerId, url::StoreUrl};

use super::{Floor, FloorClient, Rival, held};
use crate::{Error, Result, report::Side};

/// All rivals of lockkit in this folder.
pub(super) fn rivals(url: &StoreUrl) -> Vec<Rival> {
    let sides = [Side::Classic, Side::Floor];
    match folder(url) {
        Ok(folder) => {
            let folder = Arc::new(folder);
            let floor = |side| Ok(FileFloor { side, folder: Arc::clone(&folder) });
            sides.map(|side| Rival::new(side, floor(side))).into()
        }
        Err(error) => sides.map(|side| Rival::without(side, error.to_string())).into(),
    }
}

#[derive(Debug)]
struct FileFloor {
    side: Side,
    folder: Arc<PathBuf>,
}

/// Makes the folder for the files of all rivals.
fn folder(url: &StoreUrl) -> Result<PathBuf> {
    let folder = PathBuf::from(url.path()).join(format!("floor-{}", OwnerId::random()));
    fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

fn failed(error: io::Error) -> Error {
    Error::of("the rival could not lock a file", error)
}

#[async_trait]
impl Floor for FileFloor {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let client = || -> Box<dyn FloorClient> {
            Box::new(FileClient {
                side: self.side,
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
    side: Side,
    folder: Arc<PathBuf>,
    files: HashMap<String, Arc<File>>,
    grants: u64,
}

impl FileClient {
    fn file(&mut self, name: &str) -> io::Result<&Arc<File>> {
        if !self.files.contains_key(name) {
            let path = self.folder.join(name.replace('/', "_"));
            let file =
                File::options().create(true).read(true).write(true).truncate(false).open(path)?;
            self.files.insert(name.to_owned(), file.into());
        }
        self.files.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[async_trait]
impl FloorClient for FileClient {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        self.grants += 1;
        let grant = self.grants;
        let side = self.side;
        let file = self.file(name).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if side == Side::Classic => wait(file).await?,
            taken => taken.map_err(|error| failed(error.into()))?,
        }
        if side == Side::Floor {
            file.write_all_at(&grant.to_be_bytes(), 0).map_err(failed)?;
        }
        let granted = held(hold).await;
        file.unlock().map_err(failed)?;
        Ok(granted)
    }
}

/// Waits in a thread. If the client is dropped meanwhile, the thread has the last handle of the
/// file. Then the system frees the lock as soon as the thread gets it.
async fn wait(file: &Arc<File>) -> Result<()> {
    let file = Arc::clone(file);
    let waited = tokio::task::spawn_blocking(move || file.lock()).await;
    let waited =
        waited.map_err(|error| Error::of("the thread that waits for a file lock failed", error))?;
    waited.map_err(failed)
}
