//! A claim of a backend with a flaw.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit::{
    Error, ErrorKind, FencingToken, OwnerId, Released, Result,
    spi::{
        Attachment, Attempt, Backend, Claim, ClaimSpec, Grant, Lease, Note, Noted, Outsiders, Pulse,
        Reissued, Wait,
    },
};

use super::{Flaw, Shared};

/// Larger than what any store has given.
const MADE_UP: u64 = u64::MAX / 2;

#[derive(Debug)]
pub(super) struct MutantClaim {
    inner: Box<dyn Claim>,
    backend: Arc<dyn Backend>,
    spec: ClaimSpec,
    flaw: Flaw,
    shared: Arc<Shared>,
    /// Attempts so far.
    attempts: u32,
    /// An attempt got no answer.
    unanswered: bool,
    /// A release got no answer.
    unreleased: bool,
    granted: Option<FencingToken>,
    /// The store has no leases of its own.
    session: bool,
}

impl MutantClaim {
    pub(super) fn new(
        inner: Box<dyn Claim>,
        backend: Arc<dyn Backend>,
        spec: ClaimSpec,
        flaw: Flaw,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            inner,
            backend,
            spec,
            flaw,
            shared,
            attempts: 0,
            unanswered: false,
            unreleased: false,
            granted: None,
            session: false,
        }
    }

    /// As the flaw has it tell a grant.
    async fn distorted(&mut self, mut grant: Grant) -> Result<Grant> {
        match self.flaw {
            Flaw::ConstantToken => grant.token = FencingToken::new(7),
            Flaw::TokenSharedByPermits => {
                let holders = self.backend.inspect(&self.spec.name).await?.holders;
                grant.token = holders.iter().find_map(|holder| holder.token).unwrap_or(grant.token);
            }
            Flaw::RetryReportsWholeLease if self.unanswered => grant.lease = Lease::For(self.spec.ttl),
            _ => grant.lease = self.counted(grant.lease),
        }
        (self.granted, self.session) = (Some(grant.token), grant.lease == Lease::Session);
        Ok(grant)
    }

    /// As the flaw has it count a lease that was answered now.
    fn counted(&self, lease: Lease) -> Lease {
        match (self.flaw, lease) {
            (Flaw::DeadlineFromReply, Lease::For(lasts) | Lease::Proven { lasts, .. }) => {
                Lease::Proven { at: self.spec.clock.now(), lasts }
            }
            (_, lease) => lease,
        }
    }

    /// Ends what this process's renewals have shortened.
    async fn end_what_is_over(&mut self) -> Result<()> {
        let now = self.spec.clock.now();
        let mut over = Vec::new();
        self.shared.ends().retain(|key, end| {
            let lasts = *end > now;
            if !lasts {
                over.push(key.clone());
            }
            lasts
        });
        for (name, token) in over {
            self.backend.force_release(&name, token).await?;
        }
        Ok(())
    }

    fn set_end(&self, lease: Duration) {
        if let Some(token) = self.granted {
            let end = self.spec.clock.now().after(lease);
            self.shared.ends().insert((self.spec.name.clone(), token), end);
        }
    }

    fn told(&self, error: Error) -> Error {
        if self.flaw == Flaw::ReplyLostIsFailed {
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
        if self.flaw == Flaw::ExtendThatShortens {
            self.end_what_is_over().await?;
        }
        let unanswered = std::mem::replace(&mut self.unanswered, true);
        let answer = self.inner.attempt(wait).await;
        self.unanswered = unanswered || answer.as_ref().is_err_and(Error::is_outcome_unknown);
        match answer.map_err(|error| self.told(error))? {
            Attempt::Granted(grant) => Ok(Attempt::Granted(self.distorted(grant).await?)),
            Attempt::Busy { .. } if self.flaw == Flaw::NoRecheckAfterWait && self.attempts > 1 => {
                let (token, lease) = (FencingToken::new(MADE_UP), Lease::For(self.spec.ttl));
                Ok(Attempt::Granted(Grant { token, lease }))
            }
            busy => Ok(busy),
        }
    }

    /// Each renewal is a call, so that a flaw of renewals shows.
    fn known_pulse(&mut self) -> Option<Result<Pulse>> {
        None
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        let alive = Pulse::Alive(if self.session { Lease::Session } else { Lease::For(self.spec.ttl) });
        if self.flaw == Flaw::NeverRenewed {
            return Err(Error::new(ErrorKind::Unavailable, "no renewal").with_outcome_unknown());
        }
        let sent = self.spec.clock.now();
        let pulse = self.inner.keep_alive().await?;
        match (self.flaw, pulse) {
            (Flaw::SlowRenewalIgnored, Pulse::Alive(_))
                if sent.until(self.spec.clock.now()) >= self.spec.ttl / 6 =>
            {
                return Err(Error::new(ErrorKind::Unavailable, "too slow").with_outcome_unknown());
            }
            (Flaw::ExtendThatShortens, Pulse::Alive(_)) => self.set_end(self.spec.ttl),
            (Flaw::LostRenewalIgnored, Pulse::Lost(_)) => return Ok(alive),
            (Flaw::RenewalRecreates, Pulse::Lost(_)) => {
                if let Attempt::Granted(_) = self.inner.attempt(Wait::No).await? {
                    return Ok(alive);
                }
            }
            (_, Pulse::Alive(lease)) => return Ok(Pulse::Alive(self.counted(lease))),
            _ => {}
        }
        Ok(pulse)
    }

    async fn release(&mut self) -> Result<Released> {
        match self.flaw {
            Flaw::DeleteWithoutCompare => {
                for token in
                    self.backend.inspect(&self.spec.name).await?.holders.iter().filter_map(|h| h.token)
                {
                    self.backend.force_release(&self.spec.name, token).await?;
                }
                self.inner.release().await
            }
            Flaw::QueueEntryStays if self.granted.is_none() => Ok(Released::NotHeld),
            Flaw::ReleasedIsNotHeld => self.inner.release().await.map(|_| Released::NotHeld),
            Flaw::ReplyLostIsFailed => self.inner.release().await.map_err(|error| self.told(error)),
            // A second request is one too many.
            Flaw::UnreleasedOnTrouble if self.unreleased => Ok(Released::NotHeld),
            Flaw::UnreleasedOnTrouble => {
                self.unreleased = true;
                self.inner.release().await
            }
            _ => self.inner.release().await,
        }
    }

    async fn extend(&mut self, lease: Duration) -> Result<Pulse> {
        let pulse = self.inner.extend(lease).await?;
        if let (Flaw::ExtendThatShortens, Pulse::Alive(_)) = (self.flaw, pulse) {
            self.set_end(lease);
        }
        Ok(pulse)
    }

    async fn raise_fence(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        self.inner.raise_fence(floor).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        self.inner.write_note(note).await
    }

    async fn reissue(&mut self, to: &ClaimSpec, outsiders: Outsiders) -> Result<Reissued> {
        let answer = self.inner.reissue(to, outsiders).await.map_err(|error| self.told(error))?;
        let Reissued::Granted(grant) = answer else { return Ok(answer) };
        self.spec = to.clone();
        (self.unanswered, self.unreleased) = (false, false);
        Ok(Reissued::Granted(self.distorted(grant).await?))
    }

    fn recorded_owner(&self) -> Option<OwnerId> {
        self.inner.recorded_owner()
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        self.inner.attachment()
    }

    async fn changed(&mut self) {
        self.inner.changed().await;
    }
}
