//! Many tasks that want one of a few permits.

use super::{
    Turn,
    closed::{Want, repeat},
    lock_error,
};
use crate::{error::Result, sample::Sample};

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let permits = turn.case.permits.unwrap_or(1);
    let semaphore = turn.target.locker.semaphore(turn.name, permits).map_err(lock_error)?;
    repeat(turn, vec![Want::Permit(semaphore); turn.tasks()]).await
}
