//! What an operator sees and does.

use std::time::Duration;

use lockkit_core::{
    FencingToken, OwnerId, Result,
    spi::{Holder, Inspection, Mode, Released},
};
use redis::{RedisResult, Value};

use crate::{
    error::{self, Phase},
    family::Family,
    keys::Keys,
    script::{self, Arg, Call},
    store::Store,
};

/// Who holds the lock.
pub(crate) async fn inspect(store: &Store, keys: &Keys) -> Result<Inspection> {
    // The counted family follows.
    let call = Call { script: &Family::Exclusive.scripts().inspect, keys: &[&keys.lock, &keys.fence, &keys.live], args: &[] };
    let reply = store.run(keys.slot, Phase::Read, &call).await?;
    let seen = Seen::from_reply(reply).map_err(|error| error::from_redis(error, Phase::Read, store.config()))?;
    Ok(Inspection::new(seen.holder().into_iter().collect(), Some(seen.waiters)))
}

/// Frees the grant with this token.
pub(crate) async fn force_release(store: &Store, keys: &Keys, token: FencingToken) -> Result<Released> {
    let token = token.to_string();
    let mut route = store.route(keys.slot);
    loop {
        let stop = route.next().await?;
        let (publish, channels) = store.channels(&stop.link, keys);
        let args = [Arg::Text(&token), Arg::Text(publish), Arg::Text(&channels)];
        let call = Call { script: &keys.family().scripts().force_release, keys: &keys.of(keys.family()), args: &args };
        let answer = stop.run(&call).await.and_then(|reply| script::number(&reply));
        if let Some(freed) = route.arrive(&stop, answer, Phase::Write).await? {
            return Ok(if freed == 1 { Released::Freed } else { Released::NotHeld });
        }
    }
}

/// What a look at a lock found.
struct Seen {
    now: i64,
    /// In ms; negative if the key never expires.
    ttl: i64,
    owner: Option<Vec<u8>>,
    fence: Option<Vec<u8>>,
    waiters: u64,
}

impl Seen {
    fn from_reply(reply: Value) -> RedisResult<Self> {
        let (now, ttl, owner, fence, waiters) = redis::from_redis_value(reply)?;
        Ok(Self { now, ttl, owner, fence, waiters })
    }

    /// A holder is one of ours if the fence was given to it; then the value of its lock key is `id` or `id:label`.
    fn holder(&self) -> Option<Holder> {
        let text = String::from_utf8_lossy(self.owner.as_deref()?);
        let holder = Holder::new(Mode::Exclusive).with_remaining(script::ttl(self.ttl));
        let Some((owner, fence)) = self.owner_and_fence(&text) else {
            return Some(holder.with_label(text.into_owned()));
        };
        // The fence is the server's time of the grant, unless the clock was set back before it.
        let age = u64::try_from(self.now).unwrap_or(0).saturating_sub(fence);
        let label = text.split_once(':').map(|(_, label)| label.to_owned());
        let holder = holder.with_grant(owner, FencingToken::new(fence)).with_label(label);
        Some(holder.with_age(Duration::from_micros(age)))
    }

    fn owner_and_fence(&self, text: &str) -> Option<(OwnerId, u64)> {
        let fence = std::str::from_utf8(self.fence.as_deref()?).ok()?;
        let (fence, granted_to) = fence.split_once(':')?;
        let id = text.split(':').next()?;
        let is_ours = granted_to == text && id.len() == 32;
        Some((id.parse().ok()?, fence.parse().ok()?)).filter(|_| is_ours)
    }
}
