//! Checks how many replicas have confirmed a request.

use std::time::Duration;

use lockkit_core::{ErrorKind, Result};
use redis::{RedisResult, Value};

use crate::{
    config::Config,
    error::{self, Phase},
    script,
};

/// How many replicas must confirm a write, and how long a request may wait for that. The rest of
/// its time is for giving back a grant that they did not confirm.
pub(crate) fn wanted(config: &Config, op_timeout: Duration) -> Option<(u32, Duration)> {
    config.replicas.map(|(replicas, timeout)| (replicas, timeout.min(op_timeout / 2)))
}

/// Returns an error unless enough replicas have confirmed the request. `waited` is the answer of
/// WAIT, if there was one.
///
/// # Errors
/// The error says how many replicas have confirmed, and how many should.
pub(crate) fn check(
    config: &Config,
    wanted: Option<(u32, Duration)>,
    waited: Option<RedisResult<Value>>,
    what: &str,
) -> Result<()> {
    let (Some((wanted, timeout)), Some(waited)) = (wanted, waited) else { return Ok(()) };
    let confirmed = waited
        .and_then(|reply| script::number(&reply))
        .map_err(|error| error::from_redis(error, Phase::Read, config))?;
    if confirmed >= i64::from(wanted) {
        return Ok(());
    }
    let reason = format!(
        "{what} needs replicas to confirm it (wait_replicas), and {confirmed} of {wanted} did within {timeout:?}; check that \
         the replicas run and keep up, or ask for fewer"
    );
    Err(error::ours(ErrorKind::Unavailable, reason))
}
