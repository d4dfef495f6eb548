//! The note beside a lock. It has a node of its own, `/<prefix>/note/<kind>/<name>`, so that no
//! folder of a lock is made for it.
//!
//! Its data is `lockkit/1 <revision>` and, on the next line, the text. The node is persistent, but
//! the servers delete the folder of an idle lock. And each node in that folder is part of the
//! queue. So the note has a folder of its own.

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

/// How often the note is read again after another client wrote it meanwhile. Only an operator does
/// that.
const MOST_LOOKS: u32 = 8;
const VERSION: &str = "lockkit/1 ";

/// The nodes that prove a grant, with the versions that they must have. -1 means any version.
pub(crate) type Proofs = [(String, i32)];

/// The outcome of writing a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Noted(Noted),
    /// All nodes of the proof exist, but one has another version. Nothing was written.
    OtherVersion,
}

/// Reads the note. Returns an empty note if none was written.
///
/// # Errors
/// The server does not answer, or another program made the node.
pub(crate) async fn note(session: &Session, config: &Config, name: &LockName) -> Result<Note> {
    Ok(read(session, &config.layout().note(name)).await?.map(|(note, _)| note).unwrap_or_default())
}

/// Writes the note in a transaction. The transaction does nothing unless the grant still holds and
/// the note is the one that was read. The first note of a lock is written without a read, in one
/// round trip.
///
/// # Errors
/// The server does not answer: the note may have been written.
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
        // If the note is outdated, the transaction only checks whether the grant holds: a revision
        // only rises, so the note that was read is enough.
        if noted == Noted::Written {
            add_change(&mut writer, stored.as_ref(), note, &path, pool).map_err(failed)?;
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
            // The note was written or deleted meanwhile, by an earlier request of this claim or by
            // an operator.
            (ZkError::BadVersion | ZkError::NodeExists | ZkError::NoNode, false) => {}
            (source, _) => return Err(failed(source)),
        }
        stored = read(session, &path).await?;
    }
    Err(error::ours(
        ErrorKind::Unavailable,
        format!(
            "could not read the note {path:?}, because another client changes it at each read; try \
             again"
        ),
    ))
}

/// Adds the change from the stored note, with the version of its node, to the new one.
fn add_change(
    writer: &mut MultiWriter<'_>,
    stored: Option<&(Note, i32)>,
    note: &Note,
    path: &str,
    pool: &Pool,
) -> Result<(), ZkError> {
    match stored {
        Some((stored, version)) if stored == note => writer.add_check_version(path, *version),
        Some((_, version)) => writer.add_set_data(path, &to_bytes(note), Some(*version)),
        None => {
            let persistent = CreateMode::Persistent.with_acls(pool.config().acl.acls());
            writer.add_create(path, &to_bytes(note), &persistent)
        }
    }
}

/// Commits the transaction. Right before it, makes the folder of the notes, unless the folder
/// existed at its last use. The transaction shows whether the folder could be made.
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
    // All requests are queued before the first is awaited.
    let above = client.create(parent, b"", &persistent);
    let made = client.create(folder, b"", &persistent);
    let (_, _, committed) = join3(above, made, writer.commit()).await;
    if committed.is_ok() {
        pool.folders().insert(folder);
    }
    committed
}

/// The note in the state that the leader knows, and the version of its node.
async fn read(session: &Session, path: &str) -> Result<Option<(Note, i32)>> {
    let client = session.client()?;
    let failed = |error| session.failed(error, Phase::Read, "reading the note", path);
    // The `sync` comes first because the asked server may lag behind. Both requests are queued
    // before the first is awaited.
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
    // A revision has no sign and no leading zeros.
    (note.revision.to_string() == revision).then_some(note)
}

fn stranger(path: &str) -> Error {
    let reason = format!(
        "{path:?} is no note of lockkit; use another prefix, or delete the node if no program uses \
         it"
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
