//! One Redis server as a store of locks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, LockName, OwnerId, Result,
    spi::{
        Backend, Capabilities, Claim, ClaimSpec, Descriptor, Exceptions, Holder, Inspection, Mode, Released,
    },
};

use crate::{
    claim::ExclusiveClaim,
    config::Config,
    connection::Connection,
    error::{self, Phase},
    keys::Keyspace,
    script::{self, Arg, Call, Seen},
};

/// Waiters are woken by messages; these polls are for those that get lost.
const SLOW_POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Where nothing wakes them.
const FAST_POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Redis compares whole milliseconds when it lets a key lapse.
const TAKEOVER_DELAY: Duration = Duration::from_millis(1);

/// A store of locks on one Redis server.
#[derive(Debug)]
pub struct Redis {
    connection: Arc<Connection>,
    keyspace: Keyspace,
    descriptor: Descriptor,
}

impl Redis {
    /// Connects, and checks that the server can be used.
    ///
    /// The connection belongs to the tokio runtime that this runs in. A lost one is opened anew by the next request.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing answers, [`ErrorKind::Authentication`], [`ErrorKind::ReadOnly`] for a
    /// replica, and [`ErrorKind::Unsupported`] if the server may evict keys and the configuration is strict.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: Config) -> Result<Self> {
        let keyspace = config.keyspace();
        let connection = Arc::new(Connection::new(config));
        let link = connection.link().await?;
        check_eviction(&connection).await?;
        let (push, (min, max)) = if link.pushes() { (true, SLOW_POLL) } else { (false, FAST_POLL) };
        let mut capabilities = Capabilities::none().with_exclusive().with_labels();
        capabilities.push = push;
        let exceptions = Exceptions::none().with_async_failover().with_server_clock_step();
        let descriptor = Descriptor::new(error::BACKEND)
            .with_capabilities(capabilities)
            .with_exceptions(exceptions)
            .with_poll(min, max)
            .with_takeover_delay(TAKEOVER_DELAY);
        Ok(Self { connection, keyspace, descriptor })
    }
}

#[async_trait]
impl Backend for Redis {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        if spec.mode != Mode::Exclusive {
            let reason = "the Redis backend has exclusive locks only, so far";
            return Err(Error::new(ErrorKind::Unsupported, reason).with_backend(error::BACKEND));
        }
        let keys = self.keyspace.keys(&spec.name)?;
        Ok(Box::new(ExclusiveClaim::new(Arc::clone(&self.connection), keys, spec)?))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let keys = self.keyspace.keys(name)?;
        let call = Call { script: &script::INSPECT, keys: &[&keys.lock, &keys.fence], args: &[] };
        let link = self.connection.link().await?;
        let seen = self.connection.patiently(link.run(&call)).await?.and_then(Seen::from_reply);
        let seen = self.connection.checked(&link, seen, Phase::Read)?;
        Ok(Inspection::new(seen.iter().map(holder).collect(), None))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let keys = self.keyspace.keys(name)?;
        let token = token.to_string();
        let args = [Arg::Text(&token), Arg::Text(&keys.channel)];
        let call = Call { script: &script::FORCE_RELEASE, keys: &[&keys.lock, &keys.fence], args: &args };
        let answer = self.connection.patiently(self.connection.run_for_number(&call)).await;
        let freed = answer.map_err(Error::with_outcome_unknown)?? == 1;
        Ok(if freed { Released::Freed } else { Released::NotHeld })
    }

    async fn close(&self) -> Result<()> {
        self.connection.close();
        Ok(())
    }
}

/// A holder is one of ours if the fence was given to it; then the value of its lock key is `id` or `id:label`.
fn holder(seen: &Seen) -> Holder {
    let text = String::from_utf8_lossy(&seen.owner);
    let remaining = u64::try_from(seen.ttl).ok().map(Duration::from_millis);
    let holder = Holder::new(Mode::Exclusive).with_remaining(remaining);
    let Some((owner, fence)) = owner_and_fence(seen, &text) else {
        return holder.with_label(text.into_owned());
    };
    // The fence is the server's time of the grant, unless the clock was set back before it.
    let age = u64::try_from(seen.now).unwrap_or(0).saturating_sub(fence);
    holder
        .with_grant(owner, FencingToken::new(fence))
        .with_age(Duration::from_micros(age))
        .with_label(text.split_once(':').map(|(_, label)| label.to_owned()))
}

fn owner_and_fence(seen: &Seen, text: &str) -> Option<(OwnerId, u64)> {
    let fence = std::str::from_utf8(seen.fence.as_deref()?).ok()?;
    let (fence, granted_to) = fence.split_once(':')?;
    let id = text.split(':').next()?;
    let is_ours = granted_to == text && id.len() == 32;
    Some((id.parse().ok()?, fence.parse().ok()?)).filter(|_| is_ours)
}

/// A lock that is evicted is a lock that is lost.
async fn check_eviction(connection: &Connection) -> Result<()> {
    let link = connection.link().await?;
    let policy = match connection.patiently(link.setting("maxmemory-policy")).await? {
        Ok(Some(policy)) => policy,
        Ok(None) => return Ok(()),
        Err(error) if error.code().is_some() => {
            tracing::debug!(target: "lockkit", %error, "the server does not tell its maxmemory-policy");
            return Ok(());
        }
        Err(error) => return connection.checked(&link, Err(error), Phase::Open),
    };
    if policy == "noeviction" {
        return Ok(());
    }
    let reason = format!(
        "the server's maxmemory-policy is {policy}: under memory pressure it may evict locks that are held; set it to \
         noeviction"
    );
    if connection.config().strict {
        return Err(Error::new(ErrorKind::Unsupported, reason).with_backend(error::BACKEND));
    }
    tracing::warn!(target: "lockkit", backend = error::BACKEND, "{reason}");
    Ok(())
}
