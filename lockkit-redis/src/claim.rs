//! One owner competing for one name, and holding it alone.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Result, Tick,
    spi::{Attempt, Claim, ClaimSpec, Grant, Lease, LossReason, Pulse, Released, Wait},
};
use redis::{RedisResult, Value};

use crate::{
    connection::Connection,
    error::{self, Phase},
    keys::Keys,
    link::Link,
    notify::Place,
    script::{self, Acquired, Arg, Call},
    strays::Strays,
};

/// A claim for an exclusive lock.
#[derive(Debug)]
pub(crate) struct ExclusiveClaim {
    connection: Arc<Connection>,
    spec: ClaimSpec,
    keys: Keys,
    /// The value of the lock key: the owner's id, and the label if there is one.
    owner: String,
    /// In ms.
    lease: i64,
    fence: Option<i64>,
    strays: Strays,
    /// Where we stand among this process's waiters.
    place: Option<Place>,
}

impl ExclusiveClaim {
    pub(crate) fn new(connection: Arc<Connection>, keys: Keys, spec: ClaimSpec) -> Result<Self> {
        let lease = i64::try_from(spec.ttl.as_millis()).unwrap_or(i64::MAX);
        if lease == 0 {
            let reason = format!("ttl is {:?}; Redis counts leases in whole milliseconds", spec.ttl);
            return Err(ours(ErrorKind::InvalidOption, reason));
        }
        let mut owner = spec.owner.to_string();
        if let Some(label) = &spec.label {
            // Writing to a String can't fail.
            let _ = write!(owner, ":{label}");
        }
        Ok(Self { connection, spec, keys, owner, lease, fence: None, strays: Strays::default(), place: None })
    }

    /// Asks once, or twice if our idea of the server's time was wrong.
    async fn ask(&mut self, link: &Arc<Link>, deadline: Tick) -> Result<Attempt> {
        for _ in 0..2 {
            let sent = Clock::Boot.now();
            let reply = self.send(link, deadline).await;
            let acquired = reply.and_then(|reply| Acquired::from_reply(&reply));
            let acquired = match self.connection.checked(link, acquired, Phase::Write) {
                Ok(acquired) => acquired,
                Err(error) => {
                    if !error.is_outcome_unknown() {
                        self.strays.refused();
                    }
                    return Err(error);
                }
            };
            link.clock().observe(sent, acquired.now(), Clock::Boot.now());
            match acquired {
                Acquired::Busy { now, ttl } => {
                    self.strays.settled(now);
                    return Ok(self.busy(ttl));
                }
                Acquired::Granted { now, lease, fence } => {
                    self.strays.settled(now);
                    return self.granted(lease, fence);
                }
                Acquired::Exhausted { .. } => {
                    self.strays.refused();
                    return Err(self.exhausted());
                }
                Acquired::Late { .. } => self.strays.refused(),
            }
        }
        let reason = format!(
            "the request took longer than op_timeout ({:?}) to reach the server, which therefore ignored it",
            self.spec.op_timeout
        );
        Err(ours(ErrorKind::Unavailable, reason))
    }

    async fn send(&mut self, link: &Arc<Link>, deadline: Tick) -> RedisResult<Value> {
        let not_after = link.clock().at(deadline);
        self.strays.attempt(link.number(), not_after);
        let keys = [self.keys.lock.as_str(), &self.keys.fence];
        let args = [Arg::Text(&self.owner), Arg::Number(self.lease), Arg::Number(not_after)];
        let call = Call { script: &script::ACQUIRE, keys: &keys, args: &args };
        let Some(place) = &mut self.place else { return link.run(&call).await };

        place.attempt();
        if !link.pushes() || !place.must_subscribe(link) {
            return link.run(&call).await;
        }
        let (subscribed, reply) = link.subscribe_and_run(&self.keys.channel, &call).await?;
        match subscribed {
            Ok(_) => place.subscribed(link),
            Err(error) => {
                let error = error::from_redis(error, Phase::Read, self.connection.config());
                // What is refused while a script blocks the server is not refused for good.
                if !error.is_temporary() && link.disable_pushes() {
                    tracing::warn!(target: "lockkit", %error, "the server refuses SUBSCRIBE: waiters only poll");
                }
            }
        }
        reply
    }

    fn busy(&mut self, ttl: i64) -> Attempt {
        if let Some(place) = &mut self.place {
            place.answered();
        }
        let retry_after = u64::try_from(ttl).ok().map(Duration::from_millis);
        Attempt::Busy { queued: self.place.is_some(), retry_after }
    }

    fn granted(&mut self, lease: i64, fence: i64) -> Result<Attempt> {
        if let Some(mut place) = self.place.take() {
            place.answered();
        }
        self.fence = Some(fence);
        let token = u64::try_from(fence).map_err(|_| nonsense())?;
        Ok(Attempt::Granted(Grant { token: FencingToken::new(token), lease: lease_for(lease)? }))
    }

    fn exhausted(&self) -> Error {
        let reason = format!(
            "the fence in the key {:?} has reached 2^53 and can't rise any more; if nothing has stored such a \
             token, delete the key",
            self.keys.fence
        );
        ours(ErrorKind::Unexpected, reason)
    }
}

#[async_trait]
impl Claim for ExclusiveClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let link = self.connection.link().await?;
        let answer = self.ask(&link, deadline).await?;
        let Attempt::Busy { retry_after, .. } = answer else { return Ok(answer) };
        if wait == Wait::No || self.place.is_some() || !link.pushes() {
            return Ok(answer);
        }
        let place = self.connection.waiters().join(&self.keys.channel, self.spec.hint.clone());
        let deaf = place.must_subscribe(&link);
        self.place = Some(place);
        if deaf {
            // The lock may have been freed since: subscribe, and look again behind that.
            return self.ask(&link, deadline).await;
        }
        Ok(Attempt::Busy { queued: true, retry_after })
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        let keys = [self.keys.lock.as_str(), &self.keys.fence];
        let fence = self.fence.unwrap_or(0);
        let args = [Arg::Text(&self.owner), Arg::Number(self.lease), Arg::Number(fence)];
        let call = Call { script: &script::EXTEND, keys: &keys, args: &args };
        match self.connection.run_for_number(&call).await? {
            -1 | -2 => Ok(Pulse::Lost(LossReason::Evicted)),
            lease => Ok(Pulse::Alive(lease_for(lease)?)),
        }
    }

    async fn release(&mut self) -> Result<Released> {
        self.place = None;
        if self.fence.is_none() && !self.strays.is_any() {
            return Ok(Released::NotHeld);
        }
        let link = self.connection.link().await?;
        let strays_until = self.strays.release(link.number());
        let args = [Arg::Text(&self.owner), Arg::Text(&self.keys.channel), Arg::Number(strays_until)];
        let call = Call { script: &script::RELEASE, keys: &[&self.keys.lock], args: &args };
        let answer = link.run(&call).await.and_then(|reply| script::number(&reply));
        let released = match self.connection.checked(&link, answer, Phase::Write)? {
            0 | 2 => Released::NotHeld,
            1 => Released::Freed,
            -1 => return Err(not_final()),
            _ => return Err(nonsense().with_outcome_unknown()),
        };
        self.fence = None;
        self.strays = Strays::default();
        Ok(released)
    }
}

fn lease_for(ms: i64) -> Result<Lease> {
    u64::try_from(ms).map(|ms| Lease::For(Duration::from_millis(ms))).map_err(|_| nonsense())
}

fn not_final() -> Error {
    let reason = "it is released, but an earlier request of this owner, sent on a connection that fell silent, may \
                  still reach the server; asking again will tell";
    ours(ErrorKind::Unavailable, reason).with_outcome_unknown()
}

fn nonsense() -> Error {
    ours(ErrorKind::Unexpected, "the server answered with a number that lockkit's scripts never give")
}

fn ours(kind: ErrorKind, reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, reason).with_backend(error::BACKEND)
}

#[cfg(test)]
mod tests {
    use lockkit_core::{Kind, LockName, OwnerId, spi::Mode};
    use lockkit_fixture::RedisServer;

    use super::*;
    use crate::config::Config;

    /// A claim, and its server, which has seen the scripts.
    async fn claim() -> (ExclusiveClaim, RedisServer) {
        let server = RedisServer::start().unwrap();
        let config = Config::new("127.0.0.1", server.port());
        let name = LockName::new(Kind::Mutex, "a").unwrap();
        let keys = config.keyspace().keys(&name).unwrap();
        let (ttl, op_timeout) = (Duration::from_secs(30), Duration::from_secs(3));
        let spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, ttl, op_timeout);
        let mut claim = ExclusiveClaim::new(Arc::new(Connection::new(config)), keys, spec).unwrap();
        assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        (claim, server)
    }

    /// As if the server's clock had been set forward by an hour since we last heard of it.
    async fn believe_it_is_earlier(claim: &ExclusiveClaim) {
        let link = claim.connection.link().await.unwrap();
        let now = Clock::Boot.now();
        link.clock().observe(now, link.clock().at(now) - 3_600_000_000, now);
    }

    #[tokio::test]
    async fn c5_a_wrong_idea_of_the_servers_time_costs_one_request_and_no_error() {
        let (mut claim, _server) = claim().await;
        believe_it_is_earlier(&claim).await;
        assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }

    #[tokio::test]
    async fn c5_a_late_attempt_does_not_hide_an_earlier_one_that_was_applied() {
        let (mut claim, server) = claim().await;
        server.pause().unwrap();
        let lost = tokio::time::timeout(Duration::from_millis(20), claim.attempt(Wait::No)).await;
        assert!(lost.is_err());
        server.resume().unwrap();
        believe_it_is_earlier(&claim).await;
        claim.spec.op_timeout = Duration::ZERO;
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, false));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}
