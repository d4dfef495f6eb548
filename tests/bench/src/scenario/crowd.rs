//! All tasks want one name and wait in the store. This measures the cost of the store's queue.

use super::{
    Turn,
    closed::{Want, repeat},
    lock_error,
};
use crate::{error::Result, sample::Sample};

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let mutex = turn.target.ungated().mutex(turn.name).map_err(lock_error)?;
    repeat(turn, vec![Want::Mutex(mutex); turn.tasks()]).await
}
