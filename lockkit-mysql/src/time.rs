//! Reads the server's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkit_core::Result;

use crate::{error, handshake::value, pool::Pool, sql::NOW};

/// The wall clock of the primary, whatever its time zone.
///
/// # Errors
/// Returns the server's error, or an error if the server is no primary any more.
pub(crate) async fn time(pool: &Pool) -> Result<SystemTime> {
    let what = "asking for the time";
    let row = pool.ask_primary(&format!("SELECT {NOW}"), what).await?;
    let now_us = row.and_then(|row| value::<u64>(&row, 0));
    let time = now_us.and_then(|now_us| UNIX_EPOCH.checked_add(Duration::from_micros(now_us)));
    time.ok_or_else(|| error::nonsense(what))
}
