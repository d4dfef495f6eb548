//! Implements a claim: one owner competes for one name, and holds it.
//!
//! 1. An attempt is one script, which the server runs alone. If the lock's key is there, it is
//!    busy: an owner that waits gets a place in the queue of the name. If the key is not there and
//!    no waiter comes first, the script raises the server's token counter and sets the key. The
//!    value is the token and the owner, and the expiry is the lease. If the key is the owner's own,
//!    an earlier reply was lost: the answer is the same token again.
//! 2. A waiter refreshes its place, and sleeps until a message on its channel says that it has the
//!    lock.
//! 3. A renewal sets the expiry anew, if the key is still the owner's.
//! 4. A release deletes the key, if it is still the owner's, and gives the lock to the first waiter
//!    in the queue.
//! 5. A claim that resumes a grant has its own script instead of an attempt. If the key has the
//!    former owner, the script replaces that by the new owner, and keeps the token.
//!
//! Readers, writers and permits do the same with a set of holders in the place of the key. An
//! attempt, a transfer and a note carry the server's time after which they do nothing.

mod ask;
mod note;
mod renew;
#[cfg(test)]
mod tests;
mod transfer;

use std::{fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Result, Tick,
    spi::{
        Attempt, Claim, ClaimSpec, Grant, Lease, Mode, Note, Noted, QueuePolicy, Released,
        RenewalOutcome, Transferred, Wait,
    },
};
use redis::{RedisResult, Value};

use crate::{
    error::{self, Phase},
    family::{self, ALL, Family, Permits},
    keys::Keys,
    reply::Acquired,
    script::{self, Arg, Call},
    servers::{
        Destination, Link,
        batch::{self, Done, Request},
        replicas,
    },
    store::Store,
    unanswered::UnansweredRequests,
    waiting::{self, ClockReading, News, Registration, Waiter},
};

/// A claim for a lock of any mode.
#[derive(Debug)]
pub(crate) struct RedisClaim {
    store: Arc<Store>,
    spec: ClaimSpec,
    keys: Arc<Keys>,
    family: Family,
    /// Only in the counted family.
    permits: Option<Permits>,
    /// The owner's identity in the store: its id, and the label if there is one.
    owner: String,
    /// In ms.
    lease: i64,
    token: Option<i64>,
    /// Another owner that may have the lock now, because the outcome of a transfer is unknown.
    successor: Option<String>,
    /// The end of the longest lease that a renewal has asked for.
    reach: Option<Tick>,
    unanswered: UnansweredRequests,
    /// Our entry in the registry of waiters, once we wait.
    registration: Option<Registration>,
    /// Our entry in the store's queue, if it may be there.
    member: Option<Arc<str>>,
    /// The last attempt was not answered, so only the store knows whether we wait or hold.
    in_doubt: bool,
}

impl RedisClaim {
    pub(crate) fn new(store: Arc<Store>, keys: Keys, spec: ClaimSpec) -> Result<Self> {
        let (family, permits) = shape(&keys, spec.mode)?;
        let (owner, lease) = identity(&spec)?;
        Ok(Self {
            store,
            spec,
            keys: Arc::new(keys),
            family,
            permits,
            owner,
            lease,
            token: None,
            successor: None,
            reach: None,
            unanswered: UnansweredRequests::default(),
            registration: None,
            member: None,
            in_doubt: false,
        })
    }

    /// Looks into the registry of waiters, without an attempt. `None` if the store must be asked.
    async fn look(&mut self) -> Result<Option<Attempt>> {
        let Some(registration) = self.registration.as_ref().filter(|_| !self.in_doubt) else {
            return Ok(None);
        };
        let mut news = registration.news(self.takes_short_leases());
        if news == News::Refresh {
            self.store.refresh_for(registration).await?;
            news = registration.news(self.takes_short_leases());
        }
        let pause = match news {
            News::Ask => return Ok(None),
            News::Granted { token, lease } => {
                let grant = self.granted(token, lease)?;
                return Ok(Some(Attempt::Granted(grant)));
            }
            News::Waits(pause) => pause,
            News::Refresh => Duration::ZERO,
        };
        Ok(Some(Attempt::Busy { queued: true, retry_after: Some(pause) }))
    }

    /// True if a batch can answer an attempt or a release. It keeps no place in the queue.
    fn may_join_batch(&self, destination: &Destination) -> bool {
        self.member.is_none()
            && self.successor.is_none()
            && !self.store.config().is_cluster()
            && destination.is_busy()
    }

    /// Gives the grant back if too few replicas have confirmed it. A grant that the claim resumes
    /// stays, because it could not be had again. The next attempt asks for the confirmation again.
    async fn unless_unconfirmed(&mut self, grant: Grant, waited: Option<Waited>) -> Result<Grant> {
        let config = self.store.config();
        let Err(error) = replicas::check(config, self.replicas(), waited, "a grant") else {
            return Ok(grant);
        };
        if self.spec.resumes.is_some() {
            self.store.mark_suspect(self.keys.slot);
            return Err(error.with_outcome_unknown());
        }
        let released = self.release().await;
        // Not before the release, because it is this server that has the lock.
        self.store.mark_suspect(self.keys.slot);
        match released {
            Ok(Released::Freed) => Err(error),
            // If it was not freed, another server may have answered that took over meanwhile.
            _ => Err(error.with_outcome_unknown()),
        }
    }

    fn replicas(&self) -> Option<(u32, Duration)> {
        replicas::wanted(self.store.config(), self.spec.op_timeout)
    }

    /// Enters the registry of waiters. This comes before any request that can queue us, because a
    /// message can be faster than the reply.
    fn register(&mut self, link: &Link) {
        if self.registration.is_some() {
            return;
        }
        let client =
            if link.pushes() { self.store.waiters().client() } else { waiting::NO_CHANNEL };
        let window = self.window();
        let member: Arc<str> =
            family::waiter(client, millis(window), self.permits, &self.owner).into();
        let waiter = Waiter::new(Arc::clone(&member), window, self.spec.wake.clone());
        self.registration = Some(Registration::enter(
            self.store.waiters(),
            &self.keys,
            self.family,
            self.spec.owner,
            waiter,
        ));
        self.member = Some(member);
    }

    /// True if the store believes that its messages reach us, and they do not any more. Then the
    /// store always serves others before us.
    fn is_passed_over(&self, link: &Link) -> bool {
        !link.pushes() && self.member.as_deref().is_some_and(waiting::hears)
    }

    fn busy(&mut self, seen: ClockReading, ttl: Option<Duration>) -> Attempt {
        let Some(registration) = &mut self.registration else {
            return Attempt::Busy { queued: false, retry_after: ttl };
        };
        registration.waits(seen, ttl);
        // Returns early to keep the waiters of this process alive, if no other waiter does.
        let soon = waiting::period(self.window());
        Attempt::Busy { queued: true, retry_after: Some(ttl.map_or(soon, |ttl| ttl.min(soon))) }
    }

    fn granted(&mut self, token: i64, lease: Lease) -> Result<Grant> {
        // A claim that was granted is in no queue, unless an earlier attempt still arrives.
        self.registration = None;
        if !self.unanswered.is_any() {
            self.member = None;
        }
        if self.token.replace(token) != Some(token) {
            self.reach = None;
        }
        let token = u64::try_from(token).map_err(|_| nonsense())?;
        Ok(Grant::new(FencingToken::new(token), lease))
    }

    fn refused(&self, refusal: Acquired) -> Error {
        match refusal {
            Acquired::Exhausted { .. } => self.exhausted(),
            Acquired::Mismatch { limit, .. } => {
                let wanted = self.permits.map_or(0, |permits| permits.limit);
                let reason = format!(
                    "the name is in use with {limit} permits, and this claim says that there are {wanted}; all must agree"
                );
                error::ours(ErrorKind::InvalidOption, reason)
            }
            Acquired::Newer { .. } => error::newer(&self.keys.counter),
            _ => self.late(),
        }
    }

    fn exhausted(&self) -> Error {
        let reason = format!(
            "the token in the key {:?} has reached 2^53 and can't rise any more; if nothing has stored such a token, \
             delete the key",
            self.keys.counter
        );
        error::ours(ErrorKind::Unexpected, reason)
    }

    fn late(&self) -> Error {
        let reason = format!(
            "the request took longer than op_timeout ({:?}) to reach the server, which therefore ignored it",
            self.spec.op_timeout
        );
        error::ours(ErrorKind::Unavailable, reason)
    }

    /// The lease that remains. After the server's clock was set back, more may be left by it than
    /// was `asked` for, now or before. The surplus does not count, because that clock may be set
    /// right again.
    fn lease_for(&self, ms: i64, asked: Duration) -> Result<Lease> {
        let left = u64::try_from(ms).map_err(|_| nonsense())?;
        let before = self.reach.map_or(Duration::ZERO, |reach| Clock::Boot.now().until(reach));
        Ok(Lease::For(Duration::from_millis(left).min(asked.max(before))))
    }

    /// True if the claim can use the short lease of a hand-over, which is only the claim window. It
    /// must be renewed soon, and depends on the clock of the connections. While an unanswered
    /// attempt may still arrive, the release needs the time of a whole lease to be final.
    fn takes_short_leases(&self) -> bool {
        !self.unanswered.is_any()
            && self.spec.short_lease
            && self.spec.clock == Clock::Boot
            && self.store.config().replicas.is_none()
    }

    /// How a release names our grant: the value of an exclusive lock, whose token may be missing,
    /// or the owner of permits.
    fn grant(&self) -> String {
        if self.family == Family::Counted {
            return self.owner.clone();
        }
        let mut value = String::with_capacity(self.owner.len() + 17);
        if let Some(token) = self.token {
            // Writing to a String can't fail.
            let _ = write!(value, "{token}");
        }
        value.push(':');
        value.push_str(&self.owner);
        value
    }

    fn window(&self) -> Duration {
        waiting::window(self.spec.op_timeout, self.spec.ttl)
    }

    /// Frees the grant, and leaves the queue. Returns the number of release.lua, or -2 if only a part
    /// was done.
    async fn send_release(
        &self,
        destination: &Destination,
        grant: &str,
        deadline: Tick,
    ) -> RedisResult<i64> {
        let may_apply_until = self.unanswered.may_outlast_release(destination.link.number());
        // A batch frees a mutex only by the very text `token:owner`.
        let is_settled = self.token.is_some() && may_apply_until == 0;
        let mut is_half_done = false;
        if is_settled && self.may_join_batch(destination) {
            let request = Request::Release { grant: grant.to_owned() };
            match batch::join(&destination.link, &self.keys, request, deadline).await? {
                Some(Done { number: 1.., .. }) => return Ok(1),
                Some(_) => is_half_done = true,
                None => {}
            }
        }
        let (publish, channels) = self.store.channels(&destination.link, &self.keys);
        let args = [
            Arg::Text(grant),
            Arg::Text(self.member.as_deref().unwrap_or_default()),
            Arg::Number(may_apply_until),
            Arg::Text(publish),
            Arg::Text(&channels),
            Arg::Text(self.successor.as_deref().unwrap_or_default()),
        ];
        let call = Call {
            script: &self.family.scripts().release,
            keys: &self.keys.of(self.family),
            args: if self.successor.is_some() { &args } else { &args[..5] },
        };
        let answer = script::number(&destination.run(&call).await?)?;
        Ok(if is_half_done && answer == 0 { -2 } else { answer })
    }
}

#[async_trait]
impl Claim for RedisClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        if let Some(answer) = self.look().await? {
            return Ok(answer);
        }
        self.in_doubt = true;
        let was_settled = !self.unanswered.is_any();
        let answer = match self.ask(wait).await {
            // The server may have done a part of a batch that it refused.
            Err(error) if was_settled && self.unanswered.is_any() => {
                return Err(error.with_outcome_unknown());
            }
            answer => answer?,
        };
        self.in_doubt = false;
        Ok(answer)
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        self.renew_for(lease.unwrap_or(self.spec.ttl)).await
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        self.raise(floor).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        self.write(note).await
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        self.transfer_to(to, policy).await
    }

    async fn release(&mut self) -> Result<Released> {
        self.registration = None;
        if self.token.is_none() && !self.unanswered.is_any() && self.member.is_none() {
            return Ok(Released::NotHeld);
        }
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let grant = self.grant();
        let grant = grant.as_str();
        let claim = &*self;
        let free = |destination: Arc<Destination>| async move {
            claim.send_release(&destination, grant, deadline).await
        };
        let answer = claim.store.route(claim.keys.slot).lead(Phase::Write, free).await?;
        let released = match answer {
            0 | 2 => Released::NotHeld,
            1 => Released::Freed,
            -1 => return Err(not_final()),
            -2 => return Err(half_done()),
            _ => return Err(nonsense().with_outcome_unknown()),
        };
        (self.token, self.reach) = (None, None);
        self.successor = None;
        self.member = None;
        self.unanswered = UnansweredRequests::default();
        Ok(released)
    }
}

/// The owner's identity in the store, and its lease in ms.
fn identity(spec: &ClaimSpec) -> Result<(String, i64)> {
    let lease = millis(spec.ttl);
    if lease == 0 {
        let reason = format!("ttl is {:?}; Redis counts leases in whole milliseconds", spec.ttl);
        return Err(error::ours(ErrorKind::InvalidOption, reason));
    }
    let mut owner = spec.owner.to_string();
    if let Some(label) = &spec.label {
        // Writing to a String can't fail.
        let _ = write!(owner, ":{label}");
    }
    Ok((owner, lease))
}

/// The answer of WAIT.
type Waited = RedisResult<Value>;

/// The family of scripts that a mode uses, and its permits.
fn shape(keys: &Keys, mode: Mode) -> Result<(Family, Option<Permits>)> {
    let permits = |count, limit| Ok((Family::Counted, Some(Permits { count, limit })));
    match mode {
        // Only the counted kinds have this key.
        Mode::Exclusive if keys.holders.is_empty() => Ok((Family::Exclusive, None)),
        Mode::Exclusive => permits(ALL, ALL),
        Mode::Shared if !keys.holders.is_empty() => permits(1, ALL),
        Mode::Permits { count, limit } if count > limit => {
            let reason =
                format!("the claim wants {count} permits of {limit}, and would wait for ever");
            Err(error::ours(ErrorKind::InvalidOption, reason))
        }
        Mode::Permits { count, limit } if !keys.holders.is_empty() => {
            permits(count.get(), limit.get())
        }
        mode => {
            let reason = format!("the Redis backend has no lock of this kind in mode {mode:?}");
            Err(error::ours(ErrorKind::Unsupported, reason))
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn not_final() -> Error {
    let reason = "it is released, but an earlier request of this owner, sent on a connection that fell silent, may \
                  still reach the server; asking again will tell";
    error::ours(ErrorKind::Unavailable, reason).with_outcome_unknown()
}

fn half_done() -> Error {
    let reason = "the server refused a part of the release, so some permits may stay in use until their lease would \
                  have ended; give the user the rights that docs/stores/redis.md lists";
    error::ours(ErrorKind::PermissionDenied, reason).with_outcome_unknown()
}

fn nonsense() -> Error {
    error::ours(
        ErrorKind::Unexpected,
        "the server answered with a number that lockkit's scripts never give",
    )
}
