//! Reads and writes the note beside a lock.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use lockkit_core::{
    Error, ErrorKind, OwnerId, Result,
    spi::{Note, Noted},
};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::coop::consume_budget};

use crate::{
    error::{from_io, newer, ours, stranger},
    files::{self, Draft},
    folder::LockPaths,
    gate::Gate,
    session::Session,
    store::Store,
    version,
};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    lockkit: u32,
    kind: String,
    name: String,
    revision: u64,
    text: String,
}

const VERSION: u32 = 1;

/// The note; an empty one if none was written.
///
/// # Errors
/// [`ErrorKind::WrongType`] for a file that is not lockkit's, [`ErrorKind::NewerFormat`]; an error
/// of the system.
pub(crate) fn read(paths: &LockPaths) -> Result<Note> {
    let bytes = files::read(&paths.note)?.bytes;
    if bytes.is_empty() {
        return Ok(Note::default());
    }
    let failed = |reason: &str| stranger(&paths.note, reason);
    if let Some(format) = version::newer(&bytes, VERSION) {
        return Err(newer(&paths.note, format));
    }
    version::check(&bytes, VERSION).map_err(|reason| failed(&reason))?;
    let stored: Stored =
        serde_json::from_slice(&bytes).map_err(|error| failed(&error.to_string()))?;
    if (stored.kind.as_str(), stored.name.as_str())
        != (paths.name.kind().as_str(), paths.name.as_str())
    {
        return Err(failed(&format!("it belongs to the {} {:?}", stored.kind, stored.name)));
    }
    Ok(Note::new(stored.revision, stored.text))
}

/// Writes the note, if the holder still holds the lock.
///
/// # Errors
/// As [`read`], and [`Gate::enter`].
///
/// # Cancel safety
/// If this is dropped, the note may be written or not: the outcome is unknown.
pub(crate) async fn write(
    store: &Store,
    paths: &LockPaths,
    (owner, session): (OwnerId, &Arc<Session>),
    note: &Note,
    patience: Duration,
) -> Result<Noted> {
    consume_budget().await;
    let gate = Gate::enter(&store.folder, &store.gates, paths, patience).await?;
    if !session.stands()? || !Store::read_inside(&gate, paths)?.is_held_by(owner, session.id) {
        return Ok(Noted::NotHeld);
    }
    let stored = read(paths)?;
    let noted = note.replaces(&stored);
    if noted != Noted::Written || *note == stored {
        return Ok(noted);
    }
    let stored = Stored {
        lockkit: VERSION,
        kind: paths.name.kind().as_str().to_owned(),
        name: paths.name.as_str().to_owned(),
        revision: note.revision,
        text: note.text.clone(),
    };
    let failed = |error| ours(ErrorKind::Unexpected, format!("could not encode the note: {error}"));
    let bytes = serde_json::to_vec_pretty(&stored).map_err(failed)?;
    // A note records work that was done, so it must outlast a loss of power. A thread waits for the
    // disk, because a runtime must not.
    let (done, written) = oneshot::channel();
    let path = paths.note.clone();
    let draft = paths.note_draft();
    let thread = thread::Builder::new().name("lockkit-file-note".to_owned());
    let started = thread.spawn(move || {
        // If the caller was dropped, no task receives the result.
        let _ = done.send(put(&gate, &path, draft, &bytes));
    });
    started.map_err(|error| {
        ours(
            ErrorKind::Unavailable,
            format!("could not start a thread that writes the note: {error}"),
        )
    })?;
    let unknown = || {
        ours(ErrorKind::Unexpected, "the thread that writes the note ended without a result")
            .with_outcome_unknown()
    };
    written.await.map_err(|_| unknown())??;
    Ok(Noted::Written)
}

fn put(gate: &Gate, path: &Path, draft: PathBuf, bytes: &[u8]) -> Result<()> {
    let draft = Draft::write(draft, bytes)?;
    draft.sync()?;
    gate.check()?;
    draft.publish(path)?;
    let folder = path.parent().unwrap_or(path);
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced
        .map_err(|error: io::Error| from_io(error, "writing to the disk", folder))
        .map_err(Error::with_outcome_unknown)
}

#[cfg(test)]
mod tests {
    use lockkit_core::{ErrorKind, Kind, LockName};
    use tempfile::TempDir;

    use super::*;
    use crate::folder::Folder;

    /// The first release writes this text.
    const GOLDEN: &str = "{\n  \"lockkit\": 1,\n  \"kind\": \"mutex\",\n  \"name\": \"orders/42\",\n  \
                          \"revision\": 7,\n  \"text\": \"up to 4711\"\n}";

    #[test]
    fn a_note_of_the_first_format_is_read_and_of_a_later_one_refused() {
        let root = TempDir::new().unwrap();
        let folder = Folder::new(root.path().to_owned());
        folder.make().unwrap();
        let paths = folder.paths(&LockName::new(Kind::Mutex, "orders/42").unwrap());
        std::fs::write(&paths.note, GOLDEN).unwrap();
        assert_eq!(read(&paths).unwrap(), Note::new(7, "up to 4711".to_owned()));
        let stored: Stored = serde_json::from_str(GOLDEN).unwrap();
        assert_eq!(serde_json::to_string_pretty(&stored).unwrap(), GOLDEN);
        std::fs::write(&paths.note, GOLDEN.replace("1,", "2,\n  \"more\": 0,")).unwrap();
        let error = read(&paths).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        assert!(error.to_string().contains("in the format 2"), "{error}");
    }
}
