//! Inspects and frees locks for an operator.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use lockkit_core::{
    FencingToken, Kind, OwnerId, Result,
    spi::{Holder, Inspection, Mode, Released},
};
use redis::{RedisResult, Value};

use crate::{
    error::{self, Phase},
    family::Family,
    keys::Keys,
    script::{self, Arg, Call},
    servers::Destination,
    store::Store,
};

/// Reports the holders of a lock.
pub(crate) async fn inspect(store: &Store, keys: &Keys, kind: Kind) -> Result<Inspection> {
    let family = keys.family();
    let names = match family {
        Family::Exclusive => vec![&*keys.lock, &keys.counter, &keys.live],
        Family::Counted => keys.of(family),
    };
    let call = Call { script: &family.scripts().inspect, keys: &names, args: &[] };
    let reply = store.run(keys.slot, Phase::Read, &call).await?;
    if is_newer(&reply, family) {
        return Err(error::newer(&keys.counter));
    }
    seen(reply, kind, family).map_err(|error| error::from_redis(error, Phase::Read, store.config()))
}

/// Frees the grant with this token.
pub(crate) async fn force_release(
    store: &Store,
    keys: &Keys,
    token: FencingToken,
) -> Result<Released> {
    let token = &token.to_string();
    let free = |destination: Arc<Destination>| async move {
        let (publish, channels) = store.channels(&destination.link, keys);
        let args = [Arg::Text(token), Arg::Text(publish), Arg::Text(&channels)];
        let call = Call {
            script: &keys.family().scripts().force_release,
            keys: &keys.of(keys.family()),
            args: &args,
        };
        script::number(&destination.run(&call).await?)
    };
    match store.route(keys.slot).lead(Phase::Write, free).await? {
        -1 => Err(error::newer(&keys.counter)),
        1 => Ok(Released::Freed),
        _ => Ok(Released::NotHeld),
    }
}

/// True if the counter in the answer of a family's script is a newer lockkit's.
fn is_newer(reply: &Value, family: Family) -> bool {
    let at = match family {
        Family::Exclusive => 3,
        Family::Counted => 1,
    };
    let Value::Array(fields) = reply else { return false };
    matches!(fields.get(at), Some(Value::BulkString(last)) if error::is_newer(last))
}

/// Reads the answer of a family's script.
///
/// # Errors
/// No script of ours gives this answer.
pub(crate) fn seen(reply: Value, kind: Kind, family: Family) -> RedisResult<Inspection> {
    match family {
        Family::Exclusive => exclusive(reply),
        Family::Counted => counted(reply, kind),
    }
}

/// Reads `{now, ttl, lock, counter, waiters}`.
fn exclusive(reply: Value) -> RedisResult<Inspection> {
    let (now, ttl, lock, _, waiters): (i64, i64, Option<Vec<u8>>, Value, i64) =
        redis::from_redis_value(reply)?;
    let holder = lock.map(|lock| {
        let text = String::from_utf8_lossy(&lock);
        let holder = Holder::new(Mode::Exclusive).with_remaining(script::ttl(ttl));
        let grant = text.split_once(':');
        match grant.and_then(|(token, owner)| ours(owner, token.parse().ok()?)) {
            Some(grant) => grant.complete(holder, now),
            None => holder.with_label(text.into_owned()),
        }
    });
    // The number is not read as a `u64` at once, because -1 would be the largest.
    Ok(Inspection::new(holder.into_iter().collect(), u64::try_from(waiters).ok()))
}

/// Reads `{now, limit, used, waiters, owner, end of its lease in µs, count, token, …}`.
fn counted(reply: Value, kind: Kind) -> RedisResult<Inspection> {
    let strange =
        || (redis::ErrorKind::UnexpectedReturnType, "an answer that lockkit's scripts never give");
    let Value::Array(fields) = reply else { return Err(strange().into()) };
    let [Value::Int(now), limit, _, Value::Int(waiters), holders @ ..] = &*fields else {
        return Err(strange().into());
    };
    let limit = if let Value::Int(limit) = limit { *limit } else { 0 };
    let mut inspection = Inspection::new(Vec::new(), u64::try_from(*waiters).ok());
    for holder in holders.chunks(4) {
        let [Value::BulkString(owner), Value::Int(deadline), Value::Int(count), Value::Int(token)] =
            holder
        else {
            return Err(strange().into());
        };
        let text = String::from_utf8_lossy(owner);
        let left = u64::try_from(deadline.saturating_sub(*now)).unwrap_or(0);
        let seen =
            Holder::new(mode(kind, *count, limit)).with_remaining(Duration::from_micros(left));
        let Some(grant) = u64::try_from(*token).ok().and_then(|token| ours(&text, token)) else {
            return Err(strange().into());
        };
        inspection.holders.push(grant.complete(seen, *now));
    }
    Ok(inspection)
}

fn mode(kind: Kind, count: i64, limit: i64) -> Mode {
    let positive = |number| u32::try_from(number).ok().and_then(NonZeroU32::new);
    match (kind, positive(count), positive(limit)) {
        (Kind::Semaphore, Some(count), Some(limit)) => Mode::Permits { count, limit },
        (Kind::RwLock, Some(NonZeroU32::MIN), _) => Mode::Shared,
        _ => Mode::Exclusive,
    }
}

/// A grant of lockkit's own in the store: `id` or `id:label`, and the token.
struct Ours {
    owner: OwnerId,
    label: Option<String>,
    token: u64,
}

fn ours(text: &str, token: u64) -> Option<Ours> {
    let (id, label) =
        text.split_once(':').map_or((text, None), |(id, label)| (id, Some(label.to_owned())));
    let is_ours = id.len() == 32;
    Some(Ours { owner: id.parse().ok().filter(|_| is_ours)?, label, token })
}

impl Ours {
    fn complete(self, holder: Holder, now: i64) -> Holder {
        let holder =
            holder.with_grant(self.owner, FencingToken::new(self.token)).with_label(self.label);
        // The token is the server's time of the grant. The exceptions are a raised token, and a
        // clock that was set back before.
        let age = u64::try_from(now).ok().and_then(|now| now.checked_sub(self.token));
        age.map(Duration::from_micros).into_iter().fold(holder, Holder::with_age)
    }
}
