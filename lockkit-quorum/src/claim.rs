//! The claim of one owner at the members.

use std::{future::poll_fn, ops::ControlFlow, pin::Pin, sync::Arc, task::Poll, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Clock, OwnerId, Result, Tick,
    spi::{Attempt, Claim, ClaimSpec, Grant, LossReason, Released, RenewalOutcome, Wait},
};
use tokio::time::{self, Sleep};

use crate::{
    ballot::{Ballot, Budget},
    failure,
    member::Member,
    members::Members,
    vote::Vote,
};

/// A claim on the members, ballot after ballot.
///
/// Each ballot has an owner of its own. If the release of an old ballot reaches a member late, it
/// finds nothing of a new ballot. When a call is dropped, its requests and answers stay in the
/// claim, and the next call continues with them.
#[derive(Debug)]
pub(crate) struct QuorumClaim {
    members: Arc<Members>,
    spec: ClaimSpec,
    budget: Budget,
    ballot: Option<Ballot>,
    /// A ballot has used the owner of the spec.
    used: bool,
}

impl QuorumClaim {
    /// # Errors
    /// The error of a member that refuses the spec.
    pub(crate) fn new(members: Arc<Members>, spec: ClaimSpec) -> Result<Self> {
        let budget = Budget::of(&spec);
        let mut claim = Self { members, spec, budget, ballot: None, used: false };
        claim.ballot = Some(claim.open_ballot()?);
        Ok(claim)
    }

    fn open_ballot(&mut self) -> Result<Ballot> {
        let owner = if self.used { OwnerId::random() } else { self.spec.owner };
        self.used = true;
        let mut spec = self.spec.clone();
        (spec.owner, spec.op_timeout, spec.short_lease) = (owner, self.budget.request(), false);
        let vote = |(place, member): (usize, &Member)| match member.backend.claim(spec.clone()) {
            Ok(claim) => Ok(Vote::new(place, member, claim, spec.clock)),
            Err(error) => Err(failure::of_member(member, error)),
        };
        let votes: Result<_> = self.members.all.iter().enumerate().map(vote).collect();
        let resumed = self.spec.resumes.as_ref().map(|grant| grant.token);
        Ok(Ballot::new(owner, votes?, self.members.need, self.budget, resumed))
    }

    /// Renews the grant of a won ballot, and returns the outcome. Returns `None` if no ballot was
    /// won.
    async fn beat(&mut self, lease: Option<Duration>) -> Result<Option<RenewalOutcome>> {
        let Some(ballot) = self.ballot.as_mut().filter(|ballot| ballot.is_won()) else {
            return Ok(None);
        };
        ballot.begin_call();
        match drive(ballot, self.budget.clock, |ballot, now| ballot.beat(lease, now)).await {
            Some(outcome) => Ok(Some(outcome)),
            None => Err(failure::of_renewal(&self.members, ballot)),
        }
    }

    /// Confirms an earlier grant at its members. Returns it with the same token, or `None` if it is
    /// gone.
    async fn confirm(&mut self) -> Result<Option<Grant>> {
        match self.beat(None).await? {
            Some(RenewalOutcome::Alive(_)) => {
                Ok(self.ballot.as_ref().and_then(|ballot| ballot.grant(self.spec.owner)))
            }
            Some(RenewalOutcome::Lost(_)) | None => Ok(None),
        }
    }

    /// Ends the ballot. Returns how many members may still have a part of it; the sweeper takes
    /// these parts back.
    async fn give_back(&mut self) -> usize {
        let Some(ballot) = &mut self.ballot else { return 0 };
        ballot.end();
        ballot.begin_call();
        drive(ballot, self.budget.clock, Ballot::give_back).await;
        self.sweep()
    }

    fn sweep(&mut self) -> usize {
        let Some(ballot) = self.ballot.take() else { return 0 };
        let left = ballot.votes.into_iter().filter(|vote| vote.dirty || vote.is_in_flight());
        self.members.sweeper.take(left, &self.spec)
    }
}

#[async_trait]
impl Claim for QuorumClaim {
    async fn attempt(&mut self, _: Wait) -> Result<Attempt> {
        if let Some(grant) = self.confirm().await? {
            return Ok(Attempt::Granted(grant));
        }
        if self.ballot.as_ref().is_some_and(|ballot| ballot.is_won() || ballot.is_over()) {
            self.give_back().await;
        }
        let mut ballot = match self.ballot.take() {
            Some(ballot) => ballot,
            None => self.open_ballot()?,
        };
        ballot.reopen();
        ballot.begin_call();
        let asked_as = self.spec.owner;
        let ballot = self.ballot.insert(ballot);
        let won = drive(ballot, self.budget.clock, Ballot::elect).await;
        if won && let Some(grant) = ballot.grant(asked_as) {
            return Ok(Attempt::Granted(grant));
        }
        let now = self.budget.clock.now();
        if ballot.is_contended() {
            let retry_after = ballot.retry_after(now);
            self.give_back().await;
            return Ok(Attempt::Busy { queued: false, retry_after });
        }
        let need = ballot.need();
        let error = failure::of_attempt(&self.members, ballot, now);
        if ballot.resumes() {
            // A part that is given back is gone. The next attempt asks only the others.
            return Err(error.with_outcome_unknown());
        }
        let left = self.give_back().await;
        Err(if left >= need { error.with_outcome_unknown() } else { error })
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        Ok(self.beat(lease).await?.unwrap_or(RenewalOutcome::Lost(LossReason::Evicted)))
    }

    fn leave_grant(&mut self) {
        if let Some(ballot) = &mut self.ballot {
            ballot.leave_grant();
        }
    }

    async fn release(&mut self) -> Result<Released> {
        let Some(ballot) = &mut self.ballot else { return Ok(Released::NotHeld) };
        let was_won = ballot.is_won();
        ballot.begin_call();
        match drive(ballot, self.budget.clock, |ballot, now| ballot.release(was_won, now)).await {
            Some(released) => {
                self.sweep();
                Ok(released)
            }
            None => Err(failure::of_release(&self.members, ballot)),
        }
    }
}

impl Drop for QuorumClaim {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// Polls the requests that are under way. Asks `step` after each answer, and again at the instant
/// that it names, until it breaks with the outcome.
async fn drive<T>(
    ballot: &mut Ballot,
    clock: Clock,
    mut step: impl FnMut(&mut Ballot, Tick) -> ControlFlow<T, Tick>,
) -> T {
    let mut timer: Option<(Tick, Pin<Box<Sleep>>)> = None;
    poll_fn(|cx| {
        loop {
            while ballot.poll(cx) {}
            let now = clock.now();
            let until = match step(ballot, now) {
                ControlFlow::Break(outcome) => {
                    // New requests are sent here, because no task polls them until the next call.
                    if ballot.has_fresh() {
                        ballot.poll(cx);
                    }
                    return Poll::Ready(outcome);
                }
                ControlFlow::Continue(until) => until,
            };
            if ballot.has_fresh() {
                continue;
            }
            if timer.as_ref().is_none_or(|(at, _)| *at != until) {
                timer = Some((until, Box::pin(time::sleep(now.until(until)))));
            }
            if let Some((_, sleep)) = &mut timer
                && sleep.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            timer = None;
        }
    })
    .await
}
