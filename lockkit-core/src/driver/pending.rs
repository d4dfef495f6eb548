//! A claim that competes. What is dropped midway moves to the keeper.

use std::{future::poll_fn, sync::Arc, time::Duration};

use super::{
    agenda::{Agenda, Attempting, Cleanup},
    finishing::Finishing,
    hold::Hold,
    live::LiveClaim,
    pacing,
    release::{Unreleased, clean_up},
    request::Request,
};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind, Result},
    options::Renewal,
    spi::{Attempt, Grant, LeaseScope, Wait},
    token::FencingToken,
    within::within,
};

/// A claim that is not a guard yet. Its `Drop` is the whole story of cancellation.
pub(super) struct PendingClaim<'a> {
    state: State,
    /// Something of it may be in the store.
    dirty: bool,
    /// The outcome of an attempt is unknown: it may still be applied, whatever a later one was
    /// answered.
    unknown: bool,
    pub(super) held: Arc<Hold>,
    agenda: &'a Arc<Agenda>,
}

enum State {
    Idle(LiveClaim),
    Trying(Attempting),
    Gone,
}

impl<'a> PendingClaim<'a> {
    pub(super) fn new(claim: LiveClaim, held: Arc<Hold>, agenda: &'a Arc<Agenda>) -> Self {
        Self { state: State::Idle(claim), dirty: false, unknown: false, held, agenda }
    }

    pub(super) async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let dirty_before = self.dirty;
        if let State::Idle(claim) = self.take() {
            self.state = State::Trying(self.start(claim, wait));
            self.dirty = true;
        }
        let (claim, answer) = poll_fn(|cx| match &mut self.state {
            State::Trying(attempting) => attempting.as_mut().poll(cx),
            State::Idle(_) | State::Gone => std::task::Poll::Pending,
        })
        .await;
        self.state = claim.map_or(State::Gone, State::Idle);
        match &answer {
            Ok(Attempt::Busy { queued, .. }) => self.dirty = *queued || self.unknown,
            Ok(Attempt::Granted(_)) => {}
            Err(error) if error.is_outcome_unknown() => self.unknown = true,
            Err(_) => self.dirty = dirty_before,
        }
        answer
    }

    /// The store granted it, too late for a hold.
    pub(super) fn misses(&mut self) {
        self.unknown = true;
    }

    /// C5: an error says nothing for certain while an earlier attempt may be applied, or one is in
    /// flight, or a place in the queue is left that the store may grant.
    pub(super) fn mark_unknown(&self, error: Error) -> Error {
        if self.dirty || matches!(self.state, State::Trying(_)) {
            return error.with_outcome_unknown();
        }
        error
    }

    /// The attempt owns the claim, so that it can move to the keeper midway; the budget sits
    /// inside, so that the claim survives it.
    fn start(&self, claim: LiveClaim, wait: Wait) -> Attempting {
        let patience = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
        let budget = self.held.limits().op_timeout.saturating_add(patience);
        let mut claim =
            Unreleased::new(Arc::clone(self.agenda), Some(claim), Arc::clone(&self.held));
        Box::pin(async move {
            let answer = claim.attempt(wait, budget).await;
            (claim.settle(), answer)
        })
    }

    /// Borrows the claim: the compiler forces this wait to end before the claim moves anywhere.
    pub(super) async fn changed(&mut self) {
        match &mut self.state {
            State::Idle(claim) => claim.changed().await,
            State::Trying(_) | State::Gone => std::future::pending().await,
        }
    }

    /// Makes a hold of it. There is no await from the grant to here, and none from here to the
    /// guard.
    pub(super) fn win(&mut self, grant: Grant, request: Request<'_>, now: Tick) -> Result<()> {
        let held = &self.held;
        let token_base = request.token_base;
        let Some(token) = grant.token.get().checked_add(token_base) else {
            let text =
                format!("token_base {token_base} is too large: token {} overflows", grant.token);
            return Err(Error::new(ErrorKind::InvalidOption, text));
        };
        let Ok(mut slot) = held.slot.try_lock() else {
            return Err(Error::new(ErrorKind::Unexpected, "a lock that was never held is in use"));
        };
        if let State::Idle(claim) = std::mem::replace(&mut self.state, State::Gone) {
            held.record(claim.attachment(), grant.owner);
            *slot = Some(claim);
        }
        drop(slot);
        held.grant(FencingToken::new(token));
        let mut due = held.next_renewal(now);
        if request.options.options.renewal() == Renewal::Auto
            && request.backend.descriptor().lease_scope == LeaseScope::Claim
        {
            due = due.min(pacing::made_whole(held.limits().ttl, held.lease_end(), now));
        }
        self.agenda.schedule(held, due);
        Ok(())
    }

    /// Leaves the queue before the caller is told, so that its next try does not meet its own
    /// shadow. What takes longer than `grace`, the keeper does.
    pub(super) async fn leave(&mut self, grace: Duration) {
        if !self.dirty || grace.is_zero() {
            return;
        }
        if let State::Idle(claim) = self.take() {
            let leaving = Finishing::new(
                self.agenda,
                clean_up(Arc::clone(self.agenda), claim, Arc::clone(&self.held)),
            );
            within(grace, leaving).await;
        }
    }

    fn take(&mut self) -> State {
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Trying(attempting) => {
                self.state = State::Trying(attempting);
                State::Gone
            }
            state => state,
        }
    }
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        let held = Arc::clone(&self.held);
        held.abandon();
        let cleanup = match std::mem::replace(&mut self.state, State::Gone) {
            State::Idle(claim) if self.dirty => Cleanup::Claim(claim, held),
            State::Idle(_) | State::Gone => return,
            State::Trying(attempting) => Cleanup::Attempt(attempting, held),
        };
        self.agenda.push(cleanup);
    }
}
