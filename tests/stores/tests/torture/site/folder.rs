//! A folder on this host, which has no server but its users.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use libtest_mimic::Failed;
use lockkit_torture::site::{BoxError, ServerFault, Site};
use tempfile::TempDir;

use super::Rounds;

pub(super) fn start() -> Result<Box<dyn Site>, Failed> {
    Ok(Box::new(Folder { root: TempDir::new()?, rounds: Rounds::default() }))
}

#[derive(Debug)]
struct Folder {
    root: TempDir,
    rounds: Rounds,
}

impl Site for Folder {
    fn name(&self) -> &str {
        "file"
    }

    fn open(&mut self) -> Result<String, BoxError> {
        let folder = self.root.path().join(self.rounds.next());
        Ok(format!("file://{}", folder.to_str().ok_or("a folder that is no text")?))
    }

    fn faults(&self) -> Vec<ServerFault> {
        Vec::new()
    }

    fn strike(&mut self, fault: &ServerFault, _: u64) -> Result<String, BoxError> {
        Err(format!("{}: there is no server", fault.kind).into())
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// The holders and waiters in the records. Claims of killed processes are no leak until another
    /// claim looks. Their sessions distinguish them, because the system has unlocked these.
    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        let round = self.root.path().join(self.rounds.now());
        let living = living(&round.join("sessions"))?;
        let mut leaks = Vec::new();
        for file in files(&round.join("names"))? {
            if file.extension().is_some_and(|ending| ending == "json") {
                let record = fs::read_to_string(&file)?;
                if living.iter().any(|session| record.contains(session.as_str())) {
                    leaks.push(format!("{}: {record}", file.display()));
                }
            }
        }
        Ok(leaks)
    }
}

/// The sessions that a live process keeps locked.
fn living(sessions: &Path) -> io::Result<Vec<String>> {
    let mut living = Vec::new();
    for file in files(sessions)? {
        if fs::File::open(&file)?.try_lock_shared().is_err() {
            living.extend(file.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(living)
}

/// All files below a folder.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(self::files(&path)?) } else { files.push(path) }
    }
    Ok(files)
}
