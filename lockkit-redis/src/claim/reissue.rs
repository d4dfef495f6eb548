//! Hand-over inside the process.

use std::sync::Arc;

use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Claim as _, ClaimSpec, Outsiders, Reissued, Released},
};
use redis::RedisResult;

use super::{RedisClaim, Waited, identity};
use crate::{
    error::{self, Phase},
    reply::HandedOver,
    script::{Arg, Call, Source},
    servers::Stop,
};

/// Who is to have the lock.
struct Heir<'a> {
    spec: &'a ClaimSpec,
    /// As in a claim.
    owner: String,
    lease: i64,
    outsiders: Outsiders,
    script: &'static Source,
}

impl RedisClaim {
    /// Gives our grant to another owner, whose claim this is then.
    pub(super) async fn hand_to(
        &mut self,
        to: &ClaimSpec,
        outsiders: Outsiders,
    ) -> Result<Reissued> {
        let Some(script) = &self.family.scripts().reissue else {
            let reason = "the Redis backend hands over mutexes and elections only";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        };
        let (owner, lease) = identity(to)?;
        // What still arrives of the former owner could take the lock again, or a place in the
        // queue, when nobody is left to look after it: only its own release can wait for that.
        let is_settled = !self.strays.is_any() && self.member.is_none();
        if !is_settled || (&to.name, to.mode) != (&self.spec.name, self.spec.mode) {
            return self.yield_all().await;
        }
        let heir = Heir { spec: to, owner, lease, outsiders, script };
        let deadline = Clock::Boot.now().after(self.spec.op_timeout.min(to.op_timeout));
        let store = Arc::clone(&self.store);
        let mut route = store.route(self.keys.slot).alone();
        let mut late = 0;
        loop {
            let stop = route.next().await?;
            let sent = Clock::Boot.now();
            let reply = self.send_over(&stop, &heir, deadline).await;
            let (answer, waited) = match route.arrive(&stop, reply, Phase::Write).await {
                Ok(Some(answers)) => answers,
                Ok(None) => {
                    self.not_sent_over();
                    continue;
                }
                // A script that is refused its second write has done the first: whoever has the
                // lock gives it back.
                Err(error) => {
                    if !error.is_outcome_unknown() {
                        self.strays.refused();
                    }
                    return Err(error.with_outcome_unknown());
                }
            };
            stop.link.clock().observe(sent, answer.now(), Clock::Boot.now());
            if let HandedOver::Late { .. } = answer {
                self.not_sent_over();
                late += 1;
                // Our idea of the server's time was wrong, and is right now.
                if late == 1 {
                    continue;
                }
                return Err(self.late());
            }
            self.strays.settled(answer.now());
            self.successor = None;
            return match answer {
                HandedOver::Granted { lease, fence, .. } => {
                    self.inherit(heir, fence, lease, waited).await
                }
                HandedOver::Exhausted { .. } => Err(self.exhausted()),
                HandedOver::Newer { .. } => Err(error::newer(&self.keys.fence)),
                HandedOver::Yielded { .. } => Ok(self.gone(Reissued::Yielded)),
                HandedOver::NotHeld { .. } | HandedOver::Late { .. } => {
                    Ok(self.gone(Reissued::NotHeld))
                }
            };
        }
    }

    async fn send_over(
        &mut self,
        stop: &Stop,
        heir: &Heir<'_>,
        deadline: Tick,
    ) -> RedisResult<(HandedOver, Option<Waited>)> {
        let not_after = stop.link.clock().at(deadline);
        self.strays.attempt(stop.sender().number(), not_after);
        self.successor = Some(heir.owner.clone());
        let (publish, channels) = self.store.channels(&stop.link, &self.keys);
        let args = [
            Arg::Text(&self.owner),
            Arg::Text(&heir.owner),
            Arg::Number(heir.lease),
            Arg::Number(not_after),
            Arg::Number(i64::from(heir.outsiders != Outsiders::Wait)),
            Arg::Text(publish),
            Arg::Text(&channels),
            Arg::Number(self.fence.unwrap_or(0)),
        ];
        let call = Call { script: heir.script, keys: &self.keys.exclusive(), args: &args };
        let (reply, waited) = stop.run_confirmed(&call, self.replicas()).await?;
        Ok((HandedOver::from_reply(&reply)?, waited))
    }

    /// It did nothing.
    fn not_sent_over(&mut self) {
        self.strays.refused();
        self.successor = None;
    }

    fn gone(&mut self, answer: Reissued) -> Reissued {
        self.fence = None;
        answer
    }

    /// From now on this is the claim of the new owner.
    async fn inherit(
        &mut self,
        heir: Heir<'_>,
        fence: i64,
        lease: i64,
        waited: Option<Waited>,
    ) -> Result<Reissued> {
        self.spec.clone_from(heir.spec);
        (self.owner, self.lease) = (heir.owner, heir.lease);
        let grant = self.granted(fence, self.lease_for(lease, self.spec.ttl)?)?;
        let confirmed = self.unless_unconfirmed(grant, waited).await;
        // If it was given back, then after the hand-over: nobody is told of that but by the error.
        confirmed.map(Reissued::Granted).map_err(Error::with_outcome_unknown)
    }

    /// Frees the lock for whoever is next.
    async fn yield_all(&mut self) -> Result<Reissued> {
        Ok(match self.release().await? {
            Released::Freed => Reissued::Yielded,
            Released::NotHeld => Reissued::NotHeld,
        })
    }
}
