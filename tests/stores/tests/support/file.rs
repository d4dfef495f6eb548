//! The file store under test: a folder of its own for each case.

use std::{fs, path::Path, sync::Arc};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store, free_all};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
};
use lockkit_file::{Config, FileStore};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct FolderStore;

#[async_trait]
impl Store for FolderStore {
    fn name(&self) -> &str {
        "file"
    }

    fn descriptor(&self) -> Descriptor {
        let folder = TempDir::new().expect("a folder");
        let store = FileStore::open(Config::new(folder.path())).expect("a store in a new folder");
        store.descriptor().clone()
    }

    fn hooks(&self) -> Vec<Hook> {
        vec![Hook::Flush]
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(Folder(TempDir::new()?)))
    }
}

#[derive(Debug)]
struct Folder(TempDir);

impl Folder {
    fn store(&self) -> Result<FileStore, BoxError> {
        Ok(FileStore::open(Config::new(self.0.path()))?)
    }
}

#[async_trait]
impl Harness for Folder {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.store()?))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let store = self.store()?;
        free_all(&store, name).await?;
        Ok(store.close().await?)
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let mut leaks = Vec::new();
        for file in files(self.0.path())? {
            let is_idle = match Path::new(&file).extension().and_then(|ending| ending.to_str()) {
                Some("lock" | "note") => true,
                Some("json") => {
                    let record: String = fs::read_to_string(&file)?.split_whitespace().collect();
                    record.contains(r#""holders":[],"queue":[]"#)
                }
                // This is the file of an ended session, or a file that was not completely written.
                _ => false,
            };
            // The case's lockers live until its end, and a record keeps a spare file.
            if !is_idle && !file.contains("/sessions/") && !is_spare(&file) {
                leaks.push(file);
            }
        }
        Ok(leaks)
    }

    async fn close(&self) {}

    async fn flush(&self) -> Result<(), BoxError> {
        for file in files(self.0.path())? {
            if !file.contains("/sessions/") {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }
}

/// Whether the file is a spare: `<record>.<number of its gate>.new`.
fn is_spare(file: &str) -> bool {
    let spare = file.strip_suffix(".new").and_then(|file| file.rsplit_once('.'));
    spare.is_some_and(|(record, _)| record.ends_with(".json"))
}

fn files(folder: &Path) -> Result<Vec<String>, BoxError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}
