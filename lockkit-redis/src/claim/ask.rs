//! Asks the server that keeps the lock for a grant.

use std::sync::Arc;

use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Attempt, Claim as _, Grant, GrantId, Wait},
};
use redis::{RedisResult, Value};

use super::{RedisClaim, Waited, millis};
use crate::{
    error::Phase,
    family::{Family, Permits},
    reply::Acquired,
    script::{self, Arg, Call},
    servers::{
        Destination, Link, Route,
        batch::{self, Done, Request},
    },
    waiting::{self, ClockReading},
};

/// The answer of a server that ran an attempt.
struct Answer {
    acquired: Acquired,
    waited: Option<Waited>,
    /// When the attempt was sent.
    sent: Tick,
}

impl RedisClaim {
    /// Asks the store, on whichever server it is. Asks once more if our idea of the server's time
    /// was wrong.
    pub(super) async fn ask(&mut self, wait: Wait) -> Result<Attempt> {
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let store = Arc::clone(&self.store);
        let mut route = store.route(self.keys.slot).alone();
        let mut late = 0;
        loop {
            let destination = route.next().await?;
            if let Some(grant) = self.ask_in_batch(&mut route, &destination, deadline).await? {
                return Ok(Attempt::Granted(grant));
            }
            self.prepare(&destination.link, wait).await?;
            if self.registration.is_some()
                && let Err(error) = destination.enter(store.waiters(), &self.keys.base).await
            {
                // The attempt was not sent.
                route.arrive::<()>(&destination, Err(error), Phase::Read).await?;
                continue;
            }
            let Some(answer) = self.send_on(&mut route, &destination, deadline).await? else {
                continue;
            };
            match answer.acquired {
                Acquired::Busy { now, ttl } => {
                    self.unanswered.settled(now);
                    let seen = ClockReading {
                        link: destination.sender().number(),
                        sent: answer.sent,
                        server_time: now,
                    };
                    if self.must_ask_again(&destination.link, wait).await? {
                        continue;
                    }
                    return Ok(self.busy(seen, script::ttl(ttl)));
                }
                Acquired::Granted { now, lease, token } => {
                    self.unanswered.settled(now);
                    let grant = self.granted(token, self.lease_for(lease, self.spec.ttl)?)?;
                    let confirmed = self.unless_unconfirmed(grant, answer.waited).await;
                    return confirmed.map(Attempt::Granted);
                }
                Acquired::Late { .. } if late == 0 => {
                    self.unanswered.refused();
                    late += 1;
                }
                refusal => {
                    self.unanswered.refused();
                    return Err(self.refused(refusal));
                }
            }
        }
    }

    /// Asks together with other claims, which gets nothing but a free lock. Returns `None` if the
    /// claim must ask alone.
    async fn ask_in_batch(
        &mut self,
        route: &mut Route<'_>,
        destination: &Destination,
        deadline: Tick,
    ) -> Result<Option<Grant>> {
        let resumes = self.spec.resumes.is_some();
        if resumes || self.unanswered.is_any() || !self.may_join_batch(destination) {
            return Ok(None);
        }
        let sent = Clock::Boot.now();
        let not_after = destination.link.clock().at(deadline);
        self.unanswered.attempt(destination.link.number(), not_after);
        let request = Request::Acquire {
            owner: self.owner.clone(),
            lease: self.lease,
            not_after,
            permits: self.permits,
        };
        let answer = batch::join(&destination.link, &self.keys, request, deadline).await;
        let answer = self.arrived(route, destination, answer).await?.flatten();
        let Some(Done { now, number: token @ 1.. }) = answer else {
            // The server may have done a part of what it refused. So that attempt is not settled.
            if answer.is_none() {
                self.unanswered.refused();
            }
            return Ok(None);
        };
        destination.link.clock().observe(sent, now, Clock::Boot.now());
        self.unanswered.settled(now);
        let lease = self.lease_for(self.lease, self.spec.ttl)?;
        self.granted(token, lease).map(Some)
    }

    /// Leaves a place in the queue that the server can't serve, and registers a waiter that needs a
    /// message from this server.
    ///
    /// # Errors
    /// The outcome is unknown if the claim may still have that place.
    async fn prepare(&mut self, link: &Link, wait: Wait) -> Result<()> {
        self.leave_if_passed_over(link).await?;
        // A subscription costs a request, and an attempt at a free lock does not need it.
        if wait == Wait::Queue && (!link.is_sharded() || !link.pushes()) {
            self.register(link);
        }
        Ok(())
    }

    /// True if a busy answer does not count. The claim registers first, or leaves its place.
    async fn must_ask_again(&mut self, link: &Link, wait: Wait) -> Result<bool> {
        if wait == Wait::Queue && self.registration.is_none() {
            self.register(link);
            return Ok(true);
        }
        self.leave_if_passed_over(link).await
    }

    /// True if the claim had a place that the server can't serve, and has left it. It held nothing.
    async fn leave_if_passed_over(&mut self, link: &Link) -> Result<bool> {
        let is_passed_over = self.is_passed_over(link);
        if is_passed_over {
            let _ = self.release().await.map_err(Error::with_outcome_unknown)?;
        }
        Ok(is_passed_over)
    }

    /// Sends the attempt, and learns the server's time from the answer. Returns `None` if another
    /// server must be asked.
    async fn send_on(
        &mut self,
        route: &mut Route<'_>,
        destination: &Destination,
        deadline: Tick,
    ) -> Result<Option<Answer>> {
        let sent = Clock::Boot.now();
        let reply = self.send(destination, deadline).await;
        let lease = self.lease;
        let reply =
            reply.and_then(|(reply, waited)| Ok((Acquired::from_reply(&reply, lease)?, waited)));
        let Some((acquired, waited)) = self.arrived(route, destination, reply).await? else {
            return Ok(None);
        };
        destination.link.clock().observe(sent, acquired.now(), Clock::Boot.now());
        Ok(Some(Answer { acquired, waited, sent }))
    }

    /// The answer to an attempt; `None` if another server must be asked.
    async fn arrived<T>(
        &mut self,
        route: &mut Route<'_>,
        destination: &Destination,
        reply: RedisResult<T>,
    ) -> Result<Option<T>> {
        let answer = route.arrive(destination, reply, Phase::Write).await;
        // A script for permits or for a place in the queue writes with several commands. The user may
        // have the right to the first one only.
        let writes_more = self.family == Family::Counted || self.registration.is_some();
        let is_halfway = |error: &Error| writes_more && error.kind() == ErrorKind::PermissionDenied;
        let answer = answer
            .map_err(|error| if is_halfway(&error) { error.with_outcome_unknown() } else { error });
        let did_nothing = match &answer {
            Ok(answer) => answer.is_none(),
            Err(error) => !error.is_outcome_unknown(),
        };
        if did_nothing {
            self.unanswered.refused();
        }
        answer
    }

    async fn send(
        &mut self,
        destination: &Destination,
        deadline: Tick,
    ) -> RedisResult<(Value, Option<Waited>)> {
        let not_after = destination.link.clock().at(deadline);
        self.unanswered.attempt(destination.sender().number(), not_after);
        if let Some(former) = self.spec.resumes.as_deref() {
            return Box::pin(self.send_resume(destination, former, not_after)).await;
        }
        let (publish, channels) = self.store.channels(&destination.link, &self.keys);
        let liveness = millis(waiting::liveness(self.window()));
        let permits = self.permits.unwrap_or(Permits { count: 0, limit: 0 });
        let args = [
            Arg::Text(&self.owner),
            Arg::Number(self.lease),
            Arg::Number(not_after),
            Arg::Text(self.member.as_deref().unwrap_or_default()),
            Arg::Number(self.registration.is_some().into()),
            Arg::Number(liveness),
            Arg::Text(publish),
            Arg::Text(&channels),
            Arg::Number(permits.count.into()),
            Arg::Number(permits.limit.into()),
        ];
        let args = if self.permits.is_some() { &args[..] } else { &args[..8] };
        let call =
            Call { script: &self.family.scripts().acquire, keys: &self.keys.of(self.family), args };
        destination.run_confirmed(&call, self.replicas()).await
    }

    /// Asks for the grant of a former owner, and for no other.
    async fn send_resume(
        &self,
        destination: &Destination,
        former: &GrantId,
        not_after: i64,
    ) -> RedisResult<(Value, Option<Waited>)> {
        let owner = former.owner.to_string();
        let token = former.token.get().to_string();
        let permits = self.permits.unwrap_or(Permits { count: 0, limit: 0 });
        let args = [
            Arg::Text(&self.owner),
            Arg::Number(self.lease),
            Arg::Number(not_after),
            Arg::Text(&owner),
            Arg::Text(&token),
            Arg::Number(permits.count.into()),
            Arg::Number(permits.limit.into()),
        ];
        let args = if self.permits.is_some() { &args[..] } else { &args[..5] };
        let call =
            Call { script: &self.family.scripts().resume, keys: &self.keys.of(self.family), args };
        destination.run_confirmed(&call, self.replicas()).await
    }
}
