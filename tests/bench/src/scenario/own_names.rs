//! Many tasks, each with a name of its own.

use super::{
    Turn,
    closed::{Want, repeat},
    lock_error,
};
use crate::{error::Result, sample::Sample};

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let wants = (0..turn.tasks()).map(|number| {
        let mutex = turn.target.locker.mutex(&format!("{}/{number}", turn.name));
        mutex.map(Want::Mutex).map_err(lock_error)
    });
    repeat(turn, wants.collect::<Result<_>>()?).await
}
