//! Transfers a grant inside the process.

use std::sync::Arc;

use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Claim as _, ClaimSpec, QueuePolicy, Released, Transferred},
};
use redis::RedisResult;

use super::{RedisClaim, Waited, identity};
use crate::{
    error::{self, Phase},
    reply::TransferReply,
    script::{Arg, Call, Source},
    servers::{Destination, Route},
};

/// The next owner of the lock.
struct Successor<'a> {
    spec: &'a ClaimSpec,
    /// The same text as in a claim.
    owner: String,
    lease: i64,
    policy: QueuePolicy,
    script: &'static Source,
}

impl RedisClaim {
    /// Transfers our grant to another owner. This claim is then the claim of that owner.
    pub(super) async fn transfer_to(
        &mut self,
        to: &ClaimSpec,
        policy: QueuePolicy,
    ) -> Result<Transferred> {
        let Some(script) = &self.family.scripts().transfer else {
            let reason = "the Redis backend transfers mutexes and elections only";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        };
        let (owner, lease) = identity(to)?;
        if !self.can_transfer_to(to) {
            return self.yield_all().await;
        }
        let successor = Successor { spec: to, owner, lease, policy, script };
        let deadline = Clock::Boot.now().after(self.spec.op_timeout.min(to.op_timeout));
        let store = Arc::clone(&self.store);
        let mut route = store.route(self.keys.slot).alone();
        let mut late = 0;
        loop {
            let destination = route.next().await?;
            let asked = self.ask_for_transfer(&mut route, &destination, &successor, deadline).await;
            let Some((answer, waited)) = asked? else { continue };
            if let TransferReply::Late { .. } = answer {
                self.successor = None;
                late += 1;
                // This answer has corrected our idea of the server's time.
                if late == 1 {
                    continue;
                }
                return Err(self.late());
            }
            self.successor = None;
            return match answer {
                TransferReply::Granted { lease, token, .. } => {
                    self.finish_transfer(successor, token, lease, waited).await
                }
                TransferReply::Exhausted { .. } => Err(self.exhausted()),
                TransferReply::Newer { .. } => Err(error::newer(&self.keys.counter)),
                TransferReply::Yielded { .. } => Ok(self.gone(Transferred::Yielded)),
                TransferReply::NotHeld { .. } | TransferReply::Late { .. } => {
                    Ok(self.gone(Transferred::NotHeld))
                }
            };
        }
    }

    /// False if only a release is safe, or if the other owner wants another lock.
    fn can_transfer_to(&self, to: &ClaimSpec) -> bool {
        // An unanswered attempt of the previous owner may still arrive. After a transfer, it could
        // take the lock or a place in the queue again, and no task would clean that up. Only the
        // owner's own release can wait for such an attempt. After an unanswered transfer, two owners
        // may have the lock, and a release looks for both.
        let is_settled =
            !self.unanswered.is_any() && self.member.is_none() && self.successor.is_none();
        is_settled && (&to.name, to.mode) == (&self.spec.name, self.spec.mode)
    }

    /// Sends the transfer, and learns the server's time from the answer. Returns `None` if another
    /// server must be asked.
    async fn ask_for_transfer(
        &mut self,
        route: &mut Route<'_>,
        destination: &Destination,
        successor: &Successor<'_>,
        deadline: Tick,
    ) -> Result<Option<(TransferReply, Option<Waited>)>> {
        let sent = Clock::Boot.now();
        let reply = self.send_transfer(destination, successor, deadline).await;
        let (answer, waited) = match route.arrive(destination, reply, Phase::Write).await {
            Ok(Some(answers)) => answers,
            Ok(None) => {
                self.successor = None;
                return Ok(None);
            }
            // A script whose second write is refused has done the first one. The release then
            // gives the lock back, whichever of the two owners has it.
            Err(error) => return Err(error.with_outcome_unknown()),
        };
        destination.link.clock().observe(sent, answer.now(), Clock::Boot.now());
        Ok(Some((answer, waited)))
    }

    async fn send_transfer(
        &mut self,
        destination: &Destination,
        successor: &Successor<'_>,
        deadline: Tick,
    ) -> RedisResult<(TransferReply, Option<Waited>)> {
        let not_after = destination.link.clock().at(deadline);
        // A transfer that arrives after the release does nothing: this owner has no lock then. The
        // core never asks for another grant for an owner that has transferred or released. So a
        // release need not wait for the transfer, unlike for an attempt.
        self.successor = Some(successor.owner.clone());
        let (publish, channels) = self.store.channels(&destination.link, &self.keys);
        let args = [
            Arg::Text(&self.owner),
            Arg::Text(&successor.owner),
            Arg::Number(successor.lease),
            Arg::Number(not_after),
            Arg::Number(i64::from(successor.policy != QueuePolicy::TransferFirst)),
            Arg::Text(publish),
            Arg::Text(&channels),
            Arg::Number(self.token.unwrap_or(0)),
        ];
        let call = Call { script: successor.script, keys: &self.keys.exclusive(), args: &args };
        let (reply, waited) = destination.run_confirmed(&call, self.replicas()).await?;
        Ok((TransferReply::from_reply(&reply, successor.lease)?, waited))
    }

    fn gone(&mut self, answer: Transferred) -> Transferred {
        self.token = None;
        answer
    }

    /// Makes this the claim of the new owner.
    async fn finish_transfer(
        &mut self,
        successor: Successor<'_>,
        token: i64,
        lease: i64,
        waited: Option<Waited>,
    ) -> Result<Transferred> {
        self.spec.clone_from(successor.spec);
        (self.owner, self.lease) = (successor.owner, successor.lease);
        let grant = self.granted(token, self.lease_for(lease, self.spec.ttl)?)?;
        let confirmed = self.unless_unconfirmed(grant, waited).await;
        // If the grant was given back, that came after the transfer. Only the error can report
        // that.
        confirmed.map(Transferred::Granted).map_err(Error::with_outcome_unknown)
    }

    /// Frees the lock for the next claim.
    async fn yield_all(&mut self) -> Result<Transferred> {
        Ok(match self.release().await? {
            Released::Freed => Transferred::Yielded,
            Released::NotHeld => Transferred::NotHeld,
        })
    }
}
