//! Keeps a machine busy while its tests run.

use std::{
    fs::{self, File},
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result};

const BUSY_LOOPS: usize = 2;
const WRITTEN_AT_ONCE: usize = 1 << 20;
const MOST_WRITTEN: usize = 256;

/// Two busy loops, and one loop that writes to the disk and waits for it. Dropping this ends them.
#[derive(Debug)]
pub(super) struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    file: PathBuf,
}

impl Load {
    /// # Errors
    /// The file for the writes can't be created.
    pub(super) fn begin(folder: &Path) -> Result<Self> {
        let path = folder.join("load");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..BUSY_LOOPS {
            let ends = Arc::clone(&ends);
            threads.push(thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
        }
        let disk = Arc::clone(&ends);
        threads.push(thread::spawn(move || write(file, &disk)));
        Ok(Self { ends, threads, file: path })
    }
}

/// Ignores errors, because a full disk is also load.
fn write(mut file: File, ends: &AtomicBool) {
    let block = vec![0; WRITTEN_AT_ONCE];
    let mut written = 0;
    while !ends.load(Ordering::Relaxed) {
        if written == MOST_WRITTEN {
            let _ = file.set_len(0).and_then(|()| file.rewind());
            written = 0;
        }
        let _ = file.write_all(&block).and_then(|()| file.sync_all());
        written += 1;
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_writes_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let load = Load::begin(folder.path()).unwrap();
        let file = load.file.clone();
        while fs::metadata(&file).unwrap().len() == 0 {
            thread::yield_now();
        }
        drop(load);
        assert!(!file.exists());
    }
}
