//! The note beside a lock: a node of its own, `/<prefix>/note/<kind>/<name>`, for which no folder
//! of a lock is opened.
//!
//! Its data is `lockkit/1 <revision>` and, on the next line, the text. It is persistent: the folder
//! of an idle lock is deleted by the servers, and whoever stands in it is part of the queue.

use futures_util::future::join3;
use lockkit_core::{
    Error, ErrorKind, LockName, Result,
    spi::{Note, Noted},
};
use zookeeper_client::{
    Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult, MultiWriter,
};

use crate::{
    config::Config,
    error::{self, Phase},
    folder,
    session::{Pool, Session},
    version,
};

/// How often the note is looked at again when somebody else writes it meanwhile, which only an
/// operator does.
const MOST_LOOKS: u32 = 8;
const VERSION: &str = "lockkit/1 ";

/// What must stand for a grant to stand: nodes and their versions, of which -1 is any.
pub(crate) type Proofs = [(String, i32)];

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Noted(Noted),
    /// All that must stand does, but one has another version. Nothing was written.
    OtherVersion,
}

/// The note; an empty one if nobody wrote one.
///
/// # Errors
/// No answer, or another program's node.
pub(crate) async fn note(session: &Session, config: &Config, name: &LockName) -> Result<Note> {
    Ok(read(session, &config.layout().note(name)).await?.map(|(note, _)| note).unwrap_or_default())
}

/// Writes the note in a transaction, which does nothing unless the grant stands and the note is the
/// one that was read. The first of all notes is made without a look, in one trip.
///
/// # Errors
/// No answer: it may have been written.
pub(crate) async fn write(
    session: &Session,
    pool: &Pool,
    name: &LockName,
    proofs: &Proofs,
    note: &Note,
) -> Result<Outcome> {
    let client = session.client()?;
    let layout = pool.config().layout();
    let path = layout.note(name);
    let folder = layout.notes(name.kind());
    let failed = |error| session.failed(error, Phase::Write, "writing the note", &path);
    let mut stored = if note.revision == 1 { None } else { read(session, &path).await? };
    for _ in 0..MOST_LOOKS {
        let noted = note.replaces(stored.as_ref().map_or(&Note::default(), |(stored, _)| stored));
        let mut writer = client.new_multi_writer();
        for (path, version) in proofs {
            writer.add_check_version(path, *version).map_err(failed)?;
        }
        match (&stored, noted) {
            // A revision only rises: what was read is enough, and whether the grant stands is still
            // to be told.
            (_, Noted::Outdated | Noted::NotHeld) => {}
            (Some((stored, version)), Noted::Written) if stored == note => {
                writer.add_check_version(&path, *version).map_err(failed)?;
            }
            (Some((_, version)), Noted::Written) => {
                writer.add_set_data(&path, &to_bytes(note), Some(*version)).map_err(failed)?;
            }
            (None, Noted::Written) => {
                let persistent = CreateMode::Persistent.with_acls(pool.config().acl.acls());
                writer.add_create(&path, &to_bytes(note), &persistent).map_err(failed)?;
            }
        }
        let (index, source) = match commit(&client, pool, &folder, writer).await {
            Ok(_) => return Ok(Outcome::Noted(noted)),
            Err(MultiWriteError::OperationFailed { index, source }) => (index, source),
            Err(MultiWriteError::RequestFailed { source }) => return Err(failed(source)),
        };
        match (source, index < proofs.len()) {
            (ZkError::NoNode, true) => return Ok(Outcome::Noted(Noted::NotHeld)),
            (ZkError::BadVersion, true) => return Ok(Outcome::OtherVersion),
            (ZkError::NoNode, false) if stored.is_none() => {
                pool.folders().remove(&folder);
                folder::make(&client, &folder, pool.config().acl).await?;
            }
            // Somebody has written or deleted it meanwhile: an earlier request of ours, or an
            // operator.
            (ZkError::BadVersion | ZkError::NodeExists | ZkError::NoNode, false) => {}
            (source, _) => return Err(failed(source)),
        }
        stored = read(session, &path).await?;
    }
    Err(error::ours(
        ErrorKind::Unavailable,
        format!("the note {path:?} changes as soon as it is read"),
    ))
}

/// Right before it the folder of the notes is made, unless that was there when it was last used.
/// What comes of that shows in the transaction.
async fn commit(
    client: &Client,
    pool: &Pool,
    folder: &str,
    mut writer: MultiWriter<'_>,
) -> Result<Vec<MultiWriteResult>, MultiWriteError> {
    if pool.folders().contains(folder) {
        return writer.commit().await;
    }
    let persistent = CreateMode::Persistent.with_acls(pool.config().acl.acls());
    let parent = folder.rsplit_once('/').map_or("/", |(parent, _)| parent);
    // All are queued before the first is awaited.
    let above = client.create(parent, b"", &persistent);
    let made = client.create(folder, b"", &persistent);
    let (_, _, committed) = join3(above, made, writer.commit()).await;
    if committed.is_ok() {
        pool.folders().insert(folder);
    }
    committed
}

/// The note as the leader knows it, and its version.
async fn read(session: &Session, path: &str) -> Result<Option<(Note, i32)>> {
    let client = session.client()?;
    let failed = |error| session.failed(error, Phase::Read, "reading the note", path);
    // The server that is asked may lag behind; both are queued before the first is awaited.
    let synced = client.sync(path);
    let read = client.get_data(path);
    synced.await.map_err(failed)?;
    match read.await {
        Ok((data, _)) if version::is_newer(&data) => Err(error::newer(path)),
        Ok((data, stat)) => Ok(Some((parse(data).ok_or_else(|| stranger(path))?, stat.version))),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn to_bytes(note: &Note) -> Vec<u8> {
    format!("{VERSION}{}\n{}", note.revision, note.text).into_bytes()
}

fn parse(data: Vec<u8>) -> Option<Note> {
    let text = String::from_utf8(data).ok()?;
    let (revision, text) = text.strip_prefix(VERSION)?.split_once('\n')?;
    let note = Note::new(revision.parse().ok()?, text.to_owned());
    // As it is written: without a sign or zeros before it.
    (note.revision.to_string() == revision).then_some(note)
}

fn stranger(path: &str) -> Error {
    let reason = format!(
        "{path:?} is no note of lockkit; use another prefix, or delete it if nobody uses it"
    );
    error::ours(ErrorKind::WrongType, reason)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c11_any_note_is_read_as_it_was_written(revision: u64, text in "(.|\n|\0){0,40}") {
            let note = Note::new(revision, text);
            prop_assert_eq!(parse(to_bytes(&note)), Some(note));
        }

        #[test]
        fn c13_whatever_is_read_was_written_so(
            data in prop_oneof![vec(any::<u8>(), 0..40), "(lockkit/1 )?[+0-9]{0,22}\n?.{0,6}".prop_map(String::into_bytes)],
        ) {
            if let Some(note) = parse(data.clone()) {
                prop_assert_eq!(to_bytes(&note), data);
            }
        }
    }
}
