//! Connects to the store, which a fault may have hit when the process starts.

use std::time::{Duration, Instant};

use lockkit::{ErrorStatus, Locker};
use tokio::time::sleep;

use super::parent::Parent;
use crate::{
    child::Answer,
    error::{Error, Result},
};

/// No fault lasts this long.
const PATIENCE: Duration = Duration::from_secs(90);
const BETWEEN: Duration = Duration::from_millis(200);

/// Connects. Reports to the parent as soon as it is connected, or when only a fault prevents this.
/// Returns `None` if the parent left meanwhile.
pub(super) async fn connect<F>(parent: &Parent, url: &str, connect: F) -> Result<Option<Locker>>
where
    F: AsyncFn(&str) -> lockkit::Result<Locker>,
{
    let start = Instant::now();
    let mut told = false;
    loop {
        let tried = tokio::select! {
            () = parent.leaves() => return Ok(None),
            tried = connect(url) => tried,
        };
        if let Err(error) = &tried
            && (error.status() == ErrorStatus::Permanent || start.elapsed() > PATIENCE)
        {
            return Err(Error::new(error.to_string()));
        }
        if !told {
            parent.say(&Answer::Ready { address: None });
            told = true;
        }
        match tried {
            Ok(locker) => return Ok(Some(locker)),
            Err(_) => sleep(BETWEEN).await,
        }
    }
}
