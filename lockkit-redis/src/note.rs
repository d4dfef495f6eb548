//! Reads the note beside a lock.

use lockkit_core::{ErrorKind, Result, spi::Note};
use redis::{RedisResult, Value};

use crate::{
    error::{self, Phase},
    keys::Keys,
    script::Call,
    store::Store,
};

/// The note; an empty one if none was written.
pub(crate) async fn note(store: &Store, keys: &Keys) -> Result<Note> {
    let Some(script) = &keys.family().scripts().read_note else {
        let reason = "the Redis backend has notes only for mutexes and elections";
        return Err(error::ours(ErrorKind::Unsupported, reason));
    };
    let key = keys.note();
    let reply =
        store.run(keys.slot, Phase::Read, &Call { script, keys: &[&key], args: &[] }).await?;
    let fields =
        fields(reply).map_err(|error| error::from_redis(error, Phase::Read, store.config()))?;
    if let (_, _, Some(_)) = fields {
        return Err(error::newer(&key));
    }
    read(fields).ok_or_else(|| {
        let reason = format!(
            "the key {key:?} does not contain a note of lockkit; if no other program uses that \
             key, delete it"
        );
        error::ours(ErrorKind::WrongType, reason)
    })
}

type Field = Option<Vec<u8>>;

/// Reads `{revision, text, format}`.
fn fields(reply: Value) -> RedisResult<(Field, Field, Field)> {
    redis::from_redis_value(reply).map_err(Into::into)
}

fn read((revision, text, _): (Field, Field, Field)) -> Option<Note> {
    match (revision, text) {
        (None, None) => Some(Note::default()),
        (Some(revision), Some(text)) => Some(Note::new(
            std::str::from_utf8(&revision).ok()?.parse().ok()?,
            String::from_utf8(text).ok()?,
        )),
        _ => None,
    }
}
