//! One task, and a name that no other task wants.

use super::{
    Turn,
    closed::{Want, repeat},
    lock_error,
};
use crate::{error::Result, sample::Sample};

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let mutex = turn.target.locker.mutex(turn.name).map_err(lock_error)?;
    repeat(turn, vec![Want::Mutex(mutex)]).await
}
