//! Attempts for a lock and the pauses between them. They end when the lock is granted or refused,
//! or when the bound has passed.

use std::{
    ops::ControlFlow,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use tokio::sync::futures::Notified;

use super::{
    pacing::{self, Backoff},
    pending::PendingClaim,
    queue::Turn,
    request::{Bound, Request},
    trouble::Trouble,
};
use crate::{
    clock::{Tick, sleep},
    error::{Error, ErrorKind, Result},
    observe::What,
    spi::{Attempt, Grant, Wait},
    within::within,
};

/// The bounds of a competition.
#[derive(Clone, Copy)]
pub(super) struct Race {
    pub(super) bound: Bound,
    pub(super) stop: Tick,
    /// Whether it may begin later than its call.
    pub(super) queued: bool,
}

/// One claim that competes in the store.
pub(super) struct Competition<'a> {
    /// Dropped first, because the next in line need not wait for the cleanup of this claim.
    turn: Option<Turn<'a>>,
    pending: PendingClaim<'a>,
    request: Request<'a>,
    race: Race,
    backoff: Backoff,
    trouble: Trouble,
    /// How long before the bound the last attempt begins.
    reserve: Duration,
    attempts: u32,
}

/// The outcome: the number of attempts that a grant took.
type Outcome = Result<Option<u32>>;

/// One attempt with its answer. The answer is `None` if it did not come within the bound.
struct Tried {
    asked: Tick,
    now: Tick,
    /// How long the attempt was to wait in the store.
    patience: Duration,
    answer: Option<Result<Attempt>>,
}

impl Tried {
    /// How long the attempt took, without its wait in the store.
    fn round_trip(&self) -> Duration {
        self.asked.until(self.now).saturating_sub(self.patience)
    }
}

impl<'a> Competition<'a> {
    pub(super) fn new(
        pending: PendingClaim<'a>,
        request: Request<'a>,
        race: Race,
        turn: Option<Turn<'a>>,
    ) -> Self {
        Self {
            turn,
            pending,
            request,
            race,
            backoff: Backoff::new(request.backend.descriptor().poll),
            trouble: Trouble::default(),
            reserve: pacing::LEAVING,
            attempts: 0,
        }
    }

    /// Returns the number of attempts that a grant took, and `None` if the bound has passed.
    pub(super) async fn run(&mut self) -> Outcome {
        let locker = self.request.keeper.locker();
        loop {
            // Hears a shutdown that begins after this line, even before its first poll. tokio
            // promises that for `notify_waiters`.
            let mut closing = pin!(locker.closing.notified());
            locker.check_open().map_err(|error| self.unknown(error))?;
            let tried = self.attempt(closing.as_mut()).await?;
            let now = tried.now;
            let round_trip = tried.round_trip();
            let retry_after = match self.judge(tried) {
                ControlFlow::Break(outcome) => return outcome,
                ControlFlow::Continue(retry_after) => retry_after,
            };
            if let Bound::Forever = self.race.bound
                && let Some(error) = self.trouble.outlasts(now, self.request.options.limits)
            {
                return Err(self.unknown(error));
            }
            let is_well = self.trouble.is_none();
            self.reserve = pacing::last_reserve(round_trip);
            self.pause(closing, now.until(self.race.stop), retry_after).await;
            // The background task may have ended with its runtime, and this call may wait for its
            // work.
            self.request.keeper.ensure().map_err(|error| self.unknown(error))?;
            if locker.clock.now() >= self.race.stop {
                let grace = if is_well { pacing::leaving(round_trip) } else { Duration::ZERO };
                return self.leave(grace).await;
            }
        }
    }

    /// # Errors
    /// The locker is shut down.
    async fn attempt(&mut self, closing: Pin<&mut Notified<'_>>) -> Result<Tried> {
        let locker = self.request.keeper.locker();
        let asked = locker.clock.now();
        let left = asked.until(self.race.stop);
        let most = self.request.backend.descriptor().max_patience;
        let patience = most.min(left.saturating_sub(self.reserve));
        let wait = match self.race.bound {
            Bound::Try => Wait::No,
            _ if self.request.resumes.is_some() => Wait::No,
            _ if most.is_zero() => Wait::Queue,
            _ => Wait::Block(patience),
        };
        // A try is bounded by the budget of its request. A wait is also bounded by its own bound.
        let cut = if matches!(self.race.bound, Bound::Try) { Duration::MAX } else { left };
        self.attempts += 1;
        self.pending.held.woken.begin_attempt();
        let answer = tokio::select! {
            biased;
            answer = within(cut, self.pending.attempt(wait)) => Some(answer),
            () = closing => None,
        };
        let Some(answer) = answer else { return Err(self.unknown(locker.closed())) };
        let patience = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
        Ok(Tried { asked, now: locker.clock.now(), patience, answer })
    }

    /// Decides what follows from an answer: the end, or when the next attempt is worthwhile at the
    /// latest.
    fn judge(&mut self, tried: Tried) -> ControlFlow<Outcome, Duration> {
        let Tried { asked, now, patience, answer } = tried;
        let mut retry_after = Duration::MAX;
        match answer {
            None if self.attempts == 1 && patience.is_zero() && !self.race.queued => {
                return ControlFlow::Break(Err(no_answer(asked.until(self.race.stop))));
            }
            None => return ControlFlow::Break(self.at_the_bound()),
            Some(Ok(Attempt::Granted(grant))) => self.granted(grant, asked, now)?,
            // The grant to continue is gone, and does not come back.
            Some(Ok(Attempt::Busy { .. })) if self.request.resumes.is_some() => {
                return ControlFlow::Break(Ok(None));
            }
            Some(Ok(Attempt::Busy { retry_after: lapse, .. })) => {
                self.trouble.is_over();
                // A lease that ends now must not lead to attempts without a pause.
                retry_after = lapse.unwrap_or(Duration::MAX).max(pacing::SHORTEST_PAUSE);
            }
            Some(Err(error)) => {
                self.pending.held.observe(|| What::Failed { error: &error });
                if !error.is_temporary() {
                    if let Some(turn) = &self.turn {
                        turn.meets_trouble();
                    }
                    return ControlFlow::Break(Err(self.unknown(error)));
                }
                self.trouble.goes_on(asked, error);
            }
        }
        if let Some(turn) = &self.turn {
            if self.trouble.is_none() { turn.goes_on() } else { turn.meets_trouble() }
        }
        ControlFlow::Continue(retry_after)
    }

    /// Makes a hold from a grant, unless its lease ended before the answer came.
    fn granted(&mut self, grant: Grant, asked: Tick, now: Tick) -> ControlFlow<Outcome> {
        let locker = self.request.keeper.locker();
        if locker.is_draining() {
            // The shutdown has begun, so the lock would be lost at once.
            return ControlFlow::Break(Err(self.unknown(locker.closed())));
        }
        if self.pending.held.extend(asked, grant.lease) <= now {
            self.pending.misses();
            self.trouble.store_is_too_slow(asked, self.request.options.limits);
            return ControlFlow::Continue(());
        }
        if let Err(error) = self.pending.win(grant, self.request, now) {
            return ControlFlow::Break(Err(self.unknown(error)));
        }
        if let Some(turn) = self.turn.take() {
            turn.wins(&self.pending.held);
        }
        ControlFlow::Break(Ok(Some(self.attempts)))
    }

    /// Waits for the next attempt. After the last attempt it waits for a wake-up only, until the
    /// bound.
    async fn pause(
        &mut self,
        closing: Pin<&mut Notified<'_>>,
        left: Duration,
        retry_after: Duration,
    ) {
        if left.is_zero() {
            return;
        }
        let is_well = self.trouble.is_none();
        let pause =
            if is_well { self.backoff.jittered().min(retry_after) } else { self.trouble.pause() };
        let pause = if left > self.reserve { pause.min(left - self.reserve) } else { left };
        let Self { pending, backoff, .. } = self;
        let held = Arc::clone(&pending.held);
        tokio::select! {
            biased; // each of them leads to the next attempt
            // Only while the store is well: the watch of a broken connection may end at once, each
            // time.
            () = pending.changed(), if is_well => {}
            () = held.signal.notified() => {}
            () = closing => {}
            _ = sleep(pause) => backoff.grow(),
        }
    }

    /// Leaves the queue before the call returns.
    async fn leave(&mut self, grace: Duration) -> Outcome {
        let refused = self.at_the_bound();
        self.pending.leave(grace.min(self.request.options.limits.op_timeout)).await;
        refused
    }

    fn at_the_bound(&mut self) -> Outcome {
        let trouble = std::mem::take(&mut self.trouble);
        trouble.at_the_bound().map_err(|error| self.unknown(error))
    }

    fn unknown(&self, error: Error) -> Error {
        self.pending.mark_unknown(error)
    }
}

fn no_answer(bound: Duration) -> Error {
    let text = format!(
        "the store did not answer before the wait of {bound:?} ended; check the store, or wait \
         longer"
    );
    Error::new(ErrorKind::Unavailable, text).with_outcome_unknown()
}
