//! A claim that competes. If its call is dropped midway, it moves to the background task.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::{
    agenda::{Agenda, Attempting, Cleanup},
    finishing::Finishing,
    held::Held,
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

/// A claim that is not a guard yet. All cancellation of an acquire happens in its `Drop`.
pub(super) struct PendingClaim<'a> {
    state: State,
    /// The claim may have left something in the store.
    dirty: bool,
    /// The outcome of an attempt is unknown: the store may still apply it, whatever it answered to
    /// a later attempt.
    unknown: bool,
    pub(super) held: Arc<Held>,
    agenda: &'a Arc<Agenda>,
}

enum State {
    Idle(LiveClaim),
    Trying(Attempting),
    Gone,
}

impl<'a> PendingClaim<'a> {
    pub(super) fn new(claim: LiveClaim, held: Arc<Held>, agenda: &'a Arc<Agenda>) -> Self {
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

    /// The store granted the lock, but too late for a hold.
    pub(super) fn misses(&mut self) {
        self.unknown = true;
    }

    /// Marks an error as unknown where the call may still get the lock (C5). That is so while an
    /// earlier attempt may be applied, or an attempt is in flight. It is also so while the store
    /// may grant a place in the queue that this claim has left there. The last case is a transfer
    /// to this claim, unless the store has surely not done it.
    pub(super) fn mark_unknown(&self, error: Error) -> Error {
        let may_have_left = self.dirty || self.held.in_transfer.load(Relaxed);
        if may_have_left || matches!(self.state, State::Trying(_)) {
            return error.with_outcome_unknown();
        }
        error
    }

    /// The attempt owns the claim, so that both can move to the background task midway. The budget
    /// is inside the attempt, so that the claim survives the timeout.
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

    /// Borrows the claim, so the compiler forces this wait to end before the claim moves.
    pub(super) async fn changed(&mut self) {
        match &mut self.state {
            State::Idle(claim) => claim.changed().await,
            State::Trying(_) | State::Gone => std::future::pending().await,
        }
    }

    /// Makes a hold from the grant. There is no await between the grant and this call, and none
    /// between this call and the guard.
    pub(super) fn win(&mut self, grant: Grant, request: Request<'_>, now: Tick) -> Result<()> {
        let held = &self.held;
        let token_base = held.locker().token_base;
        let Some(token) = grant.token.get().checked_add(token_base) else {
            let text = format!(
                "token_base {token_base} plus the token {} exceeds 64 bits; choose a smaller \
                 token_base",
                grant.token
            );
            return Err(Error::new(ErrorKind::InvalidOption, text));
        };
        let Ok(mut slot) = held.slot.try_lock() else {
            return Err(Error::new(
                ErrorKind::Unexpected,
                "the backend says that the lock is in use, but the claim never held it; report \
                 this as a bug of the backend",
            ));
        };
        if let State::Idle(claim) = std::mem::replace(&mut self.state, State::Gone) {
            held.record(claim.attachment(), grant.owner, self.unknown);
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

    /// Leaves the queue before the call returns, so that the caller's next attempt does not queue
    /// behind its own abandoned entry. If that takes longer than `grace`, the background task
    /// finishes it.
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
