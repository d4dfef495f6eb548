//! A claim of a backend with a flaw.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, OwnerId, Result,
    spi::{
        Attachment, Attempt, Backend, Claim, ClaimSpec, Grant, Lease, Note, Noted, QueuePolicy,
        Released, RenewalOutcome, Transferred, Wait, Wake,
    },
};
use tokio::time::sleep;

use super::{Flaw, Mutation, lock};
use crate::harness::free_all;

/// A token larger than any that a store has given.
const MADE_UP: u64 = u64::MAX / 2;
/// How long an unreachable store blocks the caller's thread.
const SLOW: Duration = Duration::from_millis(1_500);

#[derive(Debug)]
pub(super) struct MutantClaim {
    inner: Box<dyn Claim>,
    backend: Arc<dyn Backend>,
    spec: ClaimSpec,
    mutation: Mutation,
    /// Attempts so far.
    attempts: u32,
    /// Renewals so far.
    renewals: u32,
    /// Whether a note was written since the last renewal.
    noted: bool,
    /// Whether an attempt got no answer.
    unanswered: bool,
    /// Whether a release got no answer.
    unreleased: bool,
    granted: Option<Grant>,
}

impl MutantClaim {
    pub(super) fn new(
        inner: Box<dyn Claim>,
        backend: Arc<dyn Backend>,
        spec: ClaimSpec,
        mutation: Mutation,
    ) -> Self {
        Self {
            inner,
            backend,
            spec,
            mutation,
            attempts: 0,
            renewals: 0,
            noted: false,
            unanswered: false,
            unreleased: false,
            granted: None,
        }
    }

    fn flaw(&self) -> Flaw {
        self.mutation.flaw
    }

    /// Applies the flaw before the attempt. Returns an answer if the store is not asked at all.
    async fn before_attempt(&mut self) -> Result<Option<Attempt>> {
        match (self.flaw(), self.granted) {
            (Flaw::AttemptByAnotherOwner, _) => {
                self.spec.owner = OwnerId::random();
                self.inner = self.backend.claim(self.spec.clone())?;
            }
            (Flaw::ExtendThatShortens, _) => self.end_what_is_over().await?,
            (Flaw::OneRuntime, _) => self.mutation.needs_its_home()?,
            (Flaw::ResumeKeepsTheOwner, _) => return self.resumed_without_a_change().await,
            (Flaw::RetryReportsWholeLease, Some(grant)) => {
                return Ok(Some(Attempt::Granted(Grant {
                    lease: Lease::For(self.spec.ttl),
                    ..grant
                })));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Finds the grant that the claim resumes, and leaves it to its owner.
    async fn resumed_without_a_change(&mut self) -> Result<Option<Attempt>> {
        let Some(from) = &self.spec.resumes else { return Ok(None) };
        let holders = self.backend.inspect(&self.spec.name).await?.holders;
        let is_held = holders.iter().any(|holder| holder.owner == Some(from.owner));
        let grant = Grant::new(from.token, Lease::For(self.spec.ttl));
        Ok(is_held.then_some(Attempt::Granted(grant)))
    }

    /// The grant as the flaw reports it.
    async fn distorted(&mut self, mut grant: Grant) -> Result<Grant> {
        match self.flaw() {
            Flaw::ConstantToken => grant.token = FencingToken::new(7),
            Flaw::ResumeRaisesTheToken if self.spec.resumes.is_some() => {
                grant.token = FencingToken::new(grant.token.get() + 1);
            }
            Flaw::TokenSharedByPermits => {
                let holders = self.backend.inspect(&self.spec.name).await?.holders;
                grant.token = holders.iter().find_map(|holder| holder.token).unwrap_or(grant.token);
            }
            Flaw::RetryReportsWholeLease if self.unanswered => {
                grant.lease = Lease::For(self.spec.ttl)
            }
            _ => grant.lease = self.counted(grant.lease),
        }
        self.granted = Some(grant);
        Ok(grant)
    }

    /// The lease that was answered now, as the flaw counts it.
    fn counted(&self, lease: Lease) -> Lease {
        match (self.flaw(), lease) {
            (Flaw::DeadlineFromReply, Lease::For(lasts) | Lease::Proven { lasts, .. }) => {
                Lease::Proven { at: self.spec.clock.now(), lasts }
            }
            (Flaw::RenewalTellsWhatIsLeft, Lease::For(left)) => {
                Lease::For(left + *lock(&self.mutation.shared.set_back))
            }
            (_, lease) => lease,
        }
    }

    /// Applies the flaw before the renewal. Returns true if the store is not asked at all.
    async fn does_nothing(&mut self) -> Result<bool> {
        self.renewals += 1;
        let noted = mem::take(&mut self.noted);
        match self.flaw() {
            Flaw::RenewalOfNothing => return Ok(true),
            Flaw::NoteIsRenewal if noted => return Ok(true),
            Flaw::FullRefusesRenewals if self.mutation.shared.full.load(SeqCst) => {
                return Err(Error::new(ErrorKind::StoreFull, "there is no room for the lease"));
            }
            Flaw::NeverRenewed => return Err(unknown("there is no answer")),
            Flaw::RenewsOnce if self.renewals > 1 => {
                return Err(unknown("the connection is used up"));
            }
            // This is too long for every lease, however fast all other calls are.
            Flaw::SlowRenewal => sleep(self.spec.ttl.mul_f64(1.5)).await,
            _ => {}
        }
        Ok(false)
    }

    /// Ends the grants whose leases renewals have shortened.
    async fn end_what_is_over(&mut self) -> Result<()> {
        let now = self.spec.clock.now();
        let is_over = |_: &_, end: &mut _| *end <= now;
        let over: BTreeMap<_, _> = lock(&self.mutation.shared.ends).extract_if(is_over).collect();
        for (name, token) in over.into_keys() {
            // The holder may have given it back in the meantime.
            let _ = self.backend.force_release(&name, token).await?;
        }
        Ok(())
    }

    fn set_end(&self, lease: Duration) {
        if let Some(grant) = self.granted {
            let end = self.spec.clock.now().after(lease);
            lock(&self.mutation.shared.ends).insert((self.spec.name.clone(), grant.token), end);
        }
    }

    fn told(&self, error: Error) -> Error {
        if self.flaw() == Flaw::ReplyLostIsFailed {
            return Error::new(error.kind(), error.context().to_owned());
        }
        error
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Claim for MutantClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.attempts += 1;
        if let Some(answer) = self.before_attempt().await? {
            return Ok(answer);
        }
        let wait = if self.flaw() == Flaw::NoQueue { Wait::No } else { wait };
        let unanswered = mem::replace(&mut self.unanswered, true);
        let answer = self.inner.attempt(wait).await;
        self.unanswered = unanswered || answer.as_ref().is_err_and(Error::is_outcome_unknown);
        if self.flaw() == Flaw::BlocksWhileAway && answer.is_err() {
            thread::sleep(SLOW);
        }
        match answer.map_err(|error| self.told(error))? {
            Attempt::Granted(grant) => Ok(Attempt::Granted(self.distorted(grant).await?)),
            Attempt::Busy { .. }
                if self.flaw() == Flaw::NoRecheckAfterWait && self.attempts > 1 =>
            {
                let token = FencingToken::new(MADE_UP);
                Ok(Attempt::Granted(Grant::new(token, Lease::For(self.spec.ttl))))
            }
            busy => Ok(busy),
        }
    }

    /// `None`, so that each renewal is a call, and a flaw of renewals shows.
    fn known_outcome(&mut self) -> Option<Result<RenewalOutcome>> {
        None
    }

    /// Renews for the ttl or for another lease: the core uses both forms.
    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        let length = lease.unwrap_or(self.spec.ttl);
        // This is the answer of a renewal that ignores the truth.
        let of_session = self.granted.is_some_and(|grant| grant.lease == Lease::Session);
        let alive =
            RenewalOutcome::Alive(if of_session { Lease::Session } else { Lease::For(length) });
        if self.does_nothing().await? {
            return Ok(alive);
        }
        let sent = self.spec.clock.now();
        let outcome = self.inner.renew(lease).await?;
        let took = sent.until(self.spec.clock.now());
        match (self.flaw(), outcome) {
            (Flaw::SlowRenewalIgnored, RenewalOutcome::Alive(_)) if took >= self.spec.ttl / 12 => {
                Err(unknown("it took too long"))
            }
            (Flaw::ExtendThatShortens, RenewalOutcome::Alive(_)) => {
                self.set_end(length);
                Ok(outcome)
            }
            (Flaw::LostRenewalIgnored, RenewalOutcome::Lost(_)) => Ok(alive),
            (Flaw::RenewalRecreates, RenewalOutcome::Lost(_)) => {
                let again = self.inner.attempt(Wait::No).await?;
                Ok(if let Attempt::Granted(_) = again { alive } else { outcome })
            }
            (_, RenewalOutcome::Alive(lease)) => Ok(RenewalOutcome::Alive(self.counted(lease))),
            (_, RenewalOutcome::Lost(_)) => Ok(outcome),
        }
    }

    async fn release(&mut self) -> Result<Released> {
        match self.flaw() {
            Flaw::BroadcastOnRelease => {
                let released = self.inner.release().await;
                lock(&self.mutation.shared.wakes).iter().for_each(Wake::wake);
                released
            }
            Flaw::DeleteWithoutCompare => {
                free_all(&*self.backend, &self.spec.name).await?;
                self.inner.release().await.map(|_| Released::Freed)
            }
            Flaw::OneRuntime => {
                self.mutation.needs_its_home()?;
                self.inner.release().await
            }
            // After this release, an attempt is no retry.
            Flaw::RetryReportsWholeLease => {
                self.granted = None;
                self.inner.release().await
            }
            Flaw::QueueEntryStays if self.granted.is_none() => Ok(Released::NotHeld),
            Flaw::ReleaseAlwaysFreed => self.inner.release().await.map(|_| Released::Freed),
            Flaw::ReleasedIsNotHeld => self.inner.release().await.map(|_| Released::NotHeld),
            Flaw::ReplyLostIsFailed => self.inner.release().await.map_err(|error| self.told(error)),
            // The first request had no answer, so this flaw does not send a second one.
            Flaw::UnreleasedOnTrouble if mem::replace(&mut self.unreleased, true) => {
                Ok(Released::NotHeld)
            }
            _ => self.inner.release().await,
        }
    }

    fn leave_grant(&mut self) {
        self.inner.leave_grant();
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        if self.flaw() == Flaw::NeverRaised {
            return Ok(Some(floor));
        }
        self.inner.raise_token(floor).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let noted = self.inner.write_note(note).await?;
        self.noted = true;
        let written = match self.flaw() {
            Flaw::NoteIsReplaced => noted != Noted::NotHeld,
            Flaw::NoteOfAnybody => true,
            _ => return Ok(noted),
        };
        if !written {
            return Ok(noted);
        }
        lock(&self.mutation.shared.notes).insert(self.spec.name.clone(), note.clone());
        Ok(Noted::Written)
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let answer = self.inner.transfer(to, policy).await.map_err(|error| self.told(error))?;
        let Transferred::Granted(grant) = answer else { return Ok(answer) };
        self.spec = to.clone();
        (self.unanswered, self.unreleased) = (false, false);
        Ok(Transferred::Granted(self.distorted(grant).await?))
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        self.inner.attachment()
    }

    async fn changed(&mut self) {
        self.inner.changed().await;
    }
}

fn unknown(text: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, text).with_outcome_unknown()
}
