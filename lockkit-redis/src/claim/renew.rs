//! Renews the lease of a grant, and raises its token.

use std::{sync::Arc, time::Duration};

use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Result,
    spi::{LossReason, RenewalOutcome},
};
use redis::Value;

use super::{RedisClaim, Waited, millis, nonsense};
use crate::{
    error::{self, Phase},
    family::Family,
    script::{Arg, Call, Source},
    servers::{Destination, replicas},
};

/// A script counts exactly up to this number.
const END: u64 = 1 << 53;

impl RedisClaim {
    /// Renews the lease for `ttl`.
    pub(super) async fn renew_for(&mut self, ttl: Duration) -> Result<RenewalOutcome> {
        let asked = Clock::Boot.now();
        let args = [Arg::Text(&self.owner), Arg::Number(millis(ttl))];
        let keys = self.keys.of(self.family);
        // While a slot moves, a renewal of a mutex needs no key but the lock itself.
        let keys = if self.family == Family::Exclusive { &keys[..1] } else { &keys[..] };
        let (reply, waited) = self.run_on_grant(&self.family.scripts().extend, keys, &args).await?;
        match reply {
            Value::Int(-1 | -2) => Ok(RenewalOutcome::Lost(LossReason::Evicted)),
            Value::Int(lease) => {
                self.confirm(waited, "a renewal")?;
                let lease = self.lease_for(lease, ttl)?;
                self.reach = self.reach.max(Some(asked.after(ttl)));
                Ok(RenewalOutcome::Alive(lease))
            }
            _ => Err(nonsense()),
        }
    }

    /// Raises the token of our grant to `floor`, unless it is that large already.
    pub(super) async fn raise(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let floor = match i64::try_from(floor.get()) {
            Ok(floor) if floor.unsigned_abs() < END => floor,
            _ => {
                let reason =
                    format!("the token can't be raised to {floor}: tokens on Redis are below 2^53");
                return Err(error::ours(ErrorKind::InvalidOption, reason));
            }
        };
        // Never below the token that we already know, although the store may have lost it.
        let wanted = floor.max(self.token.unwrap_or(0));
        let args = [Arg::Text(&self.owner), Arg::Number(wanted)];
        let keys = self.keys.of(self.family);
        let (reply, waited) =
            self.run_on_grant(&self.family.scripts().raise_token, &keys, &args).await?;
        match reply {
            Value::Int(-1) => Ok(None),
            Value::Int(-2) => Err(self.exhausted()),
            Value::Int(-3) => Err(error::newer(&self.keys.counter)),
            Value::Int(token) => {
                self.confirm(waited, "a raised token")?;
                self.token = Some(token);
                u64::try_from(token)
                    .map(|token| Some(FencingToken::new(token)))
                    .map_err(|_| nonsense())
            }
            _ => Err(nonsense()),
        }
    }

    /// Runs a script about our grant.
    async fn run_on_grant(
        &self,
        script: &'static Source,
        keys: &[&str],
        args: &[Arg<'_>],
    ) -> Result<(Value, Option<Waited>)> {
        let call = &Call { script, keys, args };
        let run = |destination: Arc<Destination>| async move {
            destination.run_confirmed(call, self.replicas()).await
        };
        self.store.route(self.keys.slot).alone().lead(Phase::Write, run).await
    }

    /// Returns an error with an unknown outcome, unless enough replicas have confirmed the request.
    pub(super) fn confirm(&self, waited: Option<Waited>, what: &str) -> Result<()> {
        let confirmed = replicas::check(self.store.config(), self.replicas(), waited, what);
        confirmed
            .inspect_err(|_| self.store.mark_suspect(self.keys.slot))
            .map_err(Error::with_outcome_unknown)
    }
}
