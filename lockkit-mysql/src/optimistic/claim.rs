//! One owner that competes for one name, and holds it by a lease.
//!
//! 1. An attempt is one statement. It inserts the row of the name, or takes the row over if its
//!    lease has ended by the server's clock. It writes the owner and the end of the lease, and
//!    raises `fence`, which is the token. If the row is the owner's own, an earlier reply was lost:
//!    the answer is the same token again.
//! 2. If another owner has the lock, the claim gets a place in its process's line for the name. One
//!    task per process looks at all names with waiters, and calls the first waiter of each name
//!    whose lease has ended.
//! 3. A renewal moves the end of the lease, if owner and `fence` are the same. One statement renews
//!    all leases of the process that are due.
//! 4. A release sets the end of the lease to zero, if the owner is the same. It calls the next
//!    waiter of the process. While the client is busy, one statement releases several locks.
//! 5. A claim that resumes a grant has its own statement instead of an attempt. If the row has the
//!    former owner, the statement replaces that by the new owner, and leaves `fence` as it is.
//!
//! Readers, writers and permits have a row for each holder. In the place of step 1, a transaction
//! of two statements decides. An attempt and a transfer carry the server's time after which
//! they do nothing.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Result,
    spi::{
        Attempt, Claim, ClaimSpec, Grant, Lease, LossReason, Mode, Note, Noted, QueuePolicy,
        Released, RenewalOutcome, Transferred, Wait,
    },
};

use super::{
    hold::Hold,
    poller::poll,
    record::{Answer, Form, LockRequest, Predecessor, TokenRange, TransferAnswer},
    release::Outcome,
    renewal::Renewal,
    row::LONGEST,
    store::Store,
    unanswered::UnansweredRequests,
};
use crate::{
    channel::Checkout,
    error,
    note::{self, Proof},
    sql::{NOW, literal, this},
    waiting::Place,
};

/// A claim for a lock that is a row.
#[derive(Debug)]
pub(crate) struct LeaseClaim {
    store: Arc<Store>,
    spec: ClaimSpec,
    form: Form,
    owner: String,
    lease_us: u64,
    token: Option<u64>,
    /// The largest value that the token may have, after unanswered requests to raise it.
    raised: Option<u64>,
    /// The owner that may have the lock instead of this one, after an unanswered transfer.
    successor: Option<String>,
    unanswered: UnansweredRequests,
    /// Whether a release of this grant has joined a batch, which may still be under way. The next
    /// release is then sent alone, and finds out whether the batch has freed the lock.
    has_joined: bool,
    /// The place of this claim among the waiters of this process.
    place: Option<Place>,
}

impl LeaseClaim {
    pub(crate) fn new(store: Arc<Store>, form: Form, spec: ClaimSpec) -> Self {
        let lease_us = u64::try_from(spec.ttl.as_micros()).unwrap_or(u64::MAX);
        let owner = spec.owner.to_string();
        let unanswered = UnansweredRequests::default();
        Self {
            store,
            spec,
            form,
            owner,
            lease_us,
            token: None,
            raised: None,
            successor: None,
            unanswered,
            has_joined: false,
            place: None,
        }
    }

    async fn connection(&self) -> Result<Checkout> {
        // Less than the whole budget, so that the caller still receives the reason of a failure.
        self.store.pool.get(self.spec.op_timeout * 3 / 4).await
    }

    /// The values that the token may have; `None` if the claim holds nothing.
    fn tokens(&self) -> Option<TokenRange> {
        self.token.map(|token| (token, self.raised.unwrap_or(token)))
    }

    fn hold(&self, tokens: TokenRange) -> Hold {
        Hold { name: self.spec.name.clone(), owner: self.owner.clone(), tokens }
    }

    fn asked(&self, not_after_us: u64) -> LockRequest<'_> {
        let name = &self.spec.name;
        let label = self.spec.label.as_deref().unwrap_or("");
        let owner = &self.owner;
        let lease_us = self.lease_us;
        let client = self.store.client;
        LockRequest { name, owner, label, lease_us, not_after_us, client }
    }

    /// Asks once, or twice if our estimate of the server's time was wrong. It does not ask if the
    /// caller is gone before there is a connection, because the releases of others wait for one,
    /// too.
    async fn ask(&mut self) -> Result<Option<Answer>> {
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let mut connection = tokio::select! {
            biased;
            connection = self.connection() => connection?,
            () = self.spec.caller.gone() => return Ok(None),
        };
        let former = self.spec.resumes.as_deref().copied();
        for _ in 0..2 {
            let not_after = self.store.pool.server_time(deadline);
            let sent = Clock::Boot.now();
            self.unanswered.attempt(connection.server(), deadline);
            let asked = self.asked(not_after);
            let store = &self.store;
            let answer = match &former {
                Some(former) => store.resume(&mut connection, self.form, &asked, former).await,
                None => store.acquire(&mut connection, self.form, &asked).await,
            };
            match &answer {
                Ok(answer) if answer.is_known() => self.unanswered.answered(sent),
                Err(error) if error.is_outcome_unknown() => {}
                Ok(_) | Err(_) => self.unanswered.refused(),
            }
            match answer? {
                Answer::Late => self.store.pool.ask_time(&mut connection).await.map(drop)?,
                answer => return Ok(Some(answer)),
            }
        }
        Err(error::late(self.spec.op_timeout))
    }

    fn answered(&mut self, answer: Answer, wait: Wait) -> Result<Attempt> {
        match answer {
            Answer::Granted { token } => {
                if let Some(place) = self.place.take() {
                    // The next waiter would ask in vain, unless there is room for more holders.
                    if self.spec.mode == Mode::Exclusive {
                        place.put_back();
                    }
                }
                (self.token, self.raised) = (Some(token), None);
                let token = FencingToken::new(token);
                let lease = Lease::For(self.spec.ttl);
                Ok(Attempt::Granted(Grant::new(token, lease)))
            }
            Answer::Busy { .. } | Answer::Locked => {
                match &self.place {
                    Some(place) => place.put_back(),
                    None if wait == Wait::No => {
                        let left = if let Answer::Busy { left } = answer { left } else { None };
                        return Ok(Attempt::Busy { queued: false, retry_after: left });
                    }
                    None => self.stand_in_line(),
                }
                poll(&self.store, &self.spec.name);
                Ok(WAITING)
            }
            Answer::Mismatch { limit } => {
                let reason = format!(
                    "other clients use this semaphore with a limit of {limit} permits; use the \
                     same limit everywhere"
                );
                Err(error::ours(ErrorKind::InvalidOption, reason))
            }
            Answer::Late => Err(error::nonsense("acquiring")),
        }
    }

    /// Asks once, or twice if our estimate of the server's time was wrong.
    async fn transfer_to(
        &mut self,
        to: &ClaimSpec,
        tokens: TokenRange,
        policy: QueuePolicy,
    ) -> Result<Transferred> {
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let mut connection = self.connection().await?;
        let mut successor = Self::new(Arc::clone(&self.store), self.form, to.clone());
        for _ in 0..2 {
            let not_after = self.store.pool.server_time(deadline);
            self.successor = Some(successor.owner.clone());
            let previous = Predecessor { owner: &self.owner, tokens };
            let asked = successor.asked(not_after);
            let answer = self.store.transfer(&mut connection, &previous, &asked, policy).await;
            // An unanswered transfer may still be applied, until a release.
            if answer.as_ref().is_ok_and(Option::is_none)
                || answer.as_ref().is_err_and(|error| !error.is_outcome_unknown())
            {
                self.successor = None;
            }
            match answer? {
                Some(TransferAnswer::Granted(token)) => {
                    successor.token = Some(token);
                    *self = successor;
                    let token = FencingToken::new(token);
                    let lease = Lease::For(self.spec.ttl);
                    return Ok(Transferred::Granted(Grant::new(token, lease)));
                }
                Some(TransferAnswer::Freed) => {
                    self.place = None;
                    self.forget();
                    self.store.waiters.call_first(&self.spec.name);
                    return Ok(Transferred::Yielded);
                }
                None => {}
            }
            if self.store.pool.ask_time(&mut connection).await? <= not_after {
                return Ok(Transferred::NotHeld);
            }
        }
        Err(error::late(self.spec.op_timeout))
    }

    /// Releases the lock together with other claims, if the client is busy. A batch frees only what
    /// certainly has no successor, and no request under way. After a raise, a range of tokens would
    /// match, which may have the token of a later grant. `NotFreed` if there is no batch.
    async fn release_together(&mut self) -> Result<Outcome> {
        let is_plain = self.form == Form::Row
            && self.successor.is_none()
            && self.raised.is_none()
            && !self.unanswered.is_any();
        match self.tokens() {
            Some(tokens) if is_plain && !self.has_joined && self.store.is_busy() => {
                self.has_joined = true;
                let hold = self.hold(tokens);
                let outcome = self.store.release_together(hold, self.spec.op_timeout).await;
                // The batch has ended without an effect on this lock, so the next release may join.
                self.has_joined = !matches!(outcome, Ok(Outcome::NotFreed));
                outcome
            }
            _ => Ok(Outcome::NotFreed),
        }
    }

    /// Releases the lock, or what unanswered requests have left of it. The call has `spent` a part
    /// of its time already. Returns the answer of [`Store::release`].
    async fn release_alone(&mut self, spent: Duration) -> Result<Option<bool>> {
        let op_timeout = self.spec.op_timeout;
        let is_final = self.unanswered.end(&self.store.pool, op_timeout / 2).await;
        // A batch may have taken three quarters of the time.
        let patience = (op_timeout * 3 / 4).saturating_sub(spent).max(op_timeout / 8);
        let mut connection = self.store.pool.get(patience).await?;
        let asked = self.asked(0);
        let successor = self.successor.as_deref();
        let answer =
            self.store.release(&mut connection, self.form, &asked, successor, self.has_joined);
        let found = answer.await?;
        self.store.waiters.call_first(&self.spec.name);
        if is_final { Ok(found) } else { Err(not_final()) }
    }

    /// Call when a release was answered: nothing of this claim is in the store.
    fn forget(&mut self) {
        self.has_joined = false;
        (self.token, self.raised, self.successor) = (None, None, None);
        self.unanswered.taken_back();
    }

    fn stand_in_line(&mut self) {
        self.place = Some(self.store.waiters.join(&self.spec));
    }
}

/// The claim has left nothing in the store. It is called when there is something to ask.
const WAITING: Attempt = Attempt::Busy { queued: false, retry_after: None };

#[async_trait]
impl Claim for LeaseClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        // A batch may still be under way. It would free the present grant, but frees no later one.
        if self.has_joined {
            // The former grant may still be there, whatever the error says about this request.
            let released = self.release_alone(Duration::ZERO).await;
            released.map_err(Error::with_outcome_unknown)?;
            self.forget();
        }
        match &self.place {
            Some(place) if !place.is_called() && !self.unanswered.is_any() => {
                poll(&self.store, &self.spec.name);
                return match place.trouble() {
                    Some(trouble) => Err(error::ours(ErrorKind::Unavailable, trouble)),
                    None => Ok(WAITING),
                };
            }
            None if wait != Wait::No
                && !self.unanswered.is_any()
                && self.store.waiters.is_any(&self.spec.name) =>
            {
                self.stand_in_line();
                poll(&self.store, &self.spec.name);
                return Ok(WAITING);
            }
            _ => {}
        }
        match self.ask().await? {
            Some(answer) => self.answered(answer, wait),
            None => Ok(WAITING),
        }
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        let lease = lease.unwrap_or(self.spec.ttl);
        let Some(tokens) = self.tokens() else {
            return Ok(RenewalOutcome::Lost(LossReason::Evicted));
        };
        if lease > LONGEST {
            let reason =
                format!("the lease is {lease:?}, but this store records at most {LONGEST:?}");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        let hold = self.hold(tokens);
        let has_holders = self.form != Form::Row;
        let op_timeout = self.spec.op_timeout;
        self.store.renewals.renew(Renewal { hold, has_holders, lease, op_timeout }).await
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let (floor, Some((_, highest))) = (error::floor(floor)?, self.tokens()) else {
            return Ok(None);
        };
        let mut connection = self.connection().await?;
        self.raised = Some(highest.max(floor));
        let raised = self.store.raise(&mut connection, self.form, &self.asked(0), floor).await?;
        match raised {
            Some(_) => (self.token, self.raised) = (raised, None),
            None => _ = self.store.pool.ask_time(&mut connection).await?,
        }
        Ok(raised.map(FencingToken::new))
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        if self.form != Form::Row {
            return Err(error::ours(
                ErrorKind::Unsupported,
                "only mutexes and elections have notes",
            ));
        }
        let Some((least, highest)) = self.tokens() else { return Ok(Noted::NotHeld) };
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let name = &self.spec.name;
        let table = self.store.pool.config().tables().table("lock");
        let owner = literal(self.owner.as_bytes());
        let ours = format!("owner={owner} AND fence BETWEEN {least} AND {highest}");
        let held = format!("{ours} AND expires_us>{NOW}");
        let touch = format!(
            ";UPDATE {table} SET touched_us=GREATEST(touched_us+1,{NOW}) WHERE {} AND {ours}",
            this(name)
        );
        let mut connection = self.connection().await?;
        let proof = Proof { name, table, held, touch };
        let noted = note::write(&self.store.pool, &mut connection, &proof, note, deadline).await?;
        noted.ok_or_else(|| error::late(self.spec.op_timeout))
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        if self.form != Form::Row || to.name != self.spec.name || to.mode != self.spec.mode {
            let reason = "this strategy transfers only mutexes and elections inside the process, \
                          and only to the same name";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        // A request that is still under way could become a lock of the previous owner after the new
        // owner's lock has ended. Only a release prevents that.
        if self.successor.is_some() || self.unanswered.is_any() {
            return Ok(match self.release().await? {
                Released::Freed => Transferred::Yielded,
                Released::NotHeld => Transferred::NotHeld,
            });
        }
        match self.tokens() {
            Some(tokens) => self.transfer_to(to, tokens, policy).await,
            None => Ok(Transferred::NotHeld),
        }
    }

    async fn release(&mut self) -> Result<Released> {
        self.place = None;
        if self.token.is_none() && !self.unanswered.is_any() {
            return Ok(Released::NotHeld);
        }
        let begun = Clock::Boot.now();
        let outcome = self.release_together().await?;
        let spent = begun.until(Clock::Boot.now());
        let found = match outcome {
            Outcome::Answered(found) => {
                self.store.waiters.call_first(&self.spec.name);
                found
            }
            Outcome::NotFreed => self.release_alone(spent).await?,
            Outcome::InDoubt => {
                let found = self.release_alone(spent).await;
                let found = found.map_err(Error::with_outcome_unknown)?;
                // The row has another owner, or is gone. The batch may have freed the lock before.
                Some(found.ok_or_else(in_doubt)?)
            }
        };
        self.forget();
        Ok(if found == Some(true) { Released::Freed } else { Released::NotHeld })
    }
}

fn in_doubt() -> Error {
    let reason = "the request that freed several locks was not answered in time, and this claim no \
                  longer has the lock; it may have lost the lock before, so check the work that \
                  the lock guarded";
    error::ours(ErrorKind::Unavailable, reason).with_outcome_unknown()
}

fn not_final() -> Error {
    let reason = "the lock is released, but an earlier request of this owner may still reach the \
                  server, because its connection fell silent; release again to find out";
    error::ours(ErrorKind::Unavailable, reason).with_outcome_unknown()
}
