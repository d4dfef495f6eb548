//! Readers and writers of one name.

use super::{
    Turn,
    closed::{Want, repeat},
    lock_error,
};
use crate::{error::Result, sample::Sample};

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let lock = turn.target.locker.rw_lock(turn.name).map_err(lock_error)?;
    let readers_percent = turn.case.readers_percent.unwrap_or(0);
    repeat(turn, vec![Want::ReadWrite(lock, readers_percent); turn.tasks()]).await
}
