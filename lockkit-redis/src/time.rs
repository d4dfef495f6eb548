//! Reads the servers' clock.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lockkit_core::Result;
use redis::{Pipeline, RedisResult, Value};

use crate::{
    error::Phase,
    role, script,
    servers::{Destination, Link},
    store::Store,
};

/// On a cluster, the clock of the node that has this slot counts.
const SLOT: u16 = 0;

/// The wall clock of the primary.
pub(crate) async fn time(store: &Store) -> Result<SystemTime> {
    let mut route = store.route(SLOT);
    route
        .lead(Phase::Read, |destination: Arc<Destination>| async move {
            time_of(&destination.link).await
        })
        .await
}

/// The time of one server. A server that is no longer the primary has another clock than the
/// primary, so its answer is an error.
async fn time_of(link: &Link) -> RedisResult<SystemTime> {
    let mut questions = Pipeline::with_capacity(2);
    questions.cmd("TIME").cmd("ROLE");
    let answers = link.send_all(&questions).await?;
    let [time, role] =
        <[Value; 2]>::try_from(answers).map_err(|all| script::strange(&Value::Array(all)))?;
    let time = time.extract_error()?;
    role::check(role.extract_error())?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time)?;
    let since = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    UNIX_EPOCH.checked_add(since).ok_or_else(|| script::strange(&Value::Nil))
}
