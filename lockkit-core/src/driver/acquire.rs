//! Taking a lock: attempts inline on the caller's task, waits between them. What is dropped midway moves to the
//! keeper.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{task::consume_budget, time};

use super::{
    agenda::Chore,
    backoff::Backoff,
    held::Held,
    keeper::Keeper,
    live::{Life, LiveClaim},
    release::{Handover, Unreleased, clean_up},
    renew::first_due,
    within::within,
};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind, ErrorStatus, Result},
    name::LockName,
    observe::Event,
    options::{Limits, LockOptions, Renewal},
    spi::{Attempt, Backend, Caller, ClaimSpec, Grant, Hint, LeaseScope, Mode, Poll, Wait},
    token::FencingToken,
};

/// How long the caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Forever,
    /// One attempt.
    Try,
    Within(Duration),
}

/// What a caller wants, and from whom.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) keeper: &'a Arc<Keeper>,
    pub(crate) token_base: u64,
    pub(crate) name: &'a LockName,
    pub(crate) mode: Mode,
    pub(crate) options: &'a LockOptions,
    pub(crate) limits: Limits,
}

/// An attempt that runs by itself: it owns the claim and gives it back.
pub(crate) type Attempting = BoxFuture<'static, (Option<LiveClaim>, Result<Attempt>)>;

/// Leaving a queue inline may take this long beyond the wait bound, or two round trips if that is more.
const LEAVING: Duration = Duration::from_millis(5);
/// How long before the bound the last attempt begins, on a store that answers at once. tokio's timers may be a
/// millisecond late.
const LEAST_RESERVE: Duration = Duration::from_millis(2);
const TROUBLED: Poll = Poll { min: Duration::from_millis(20), max: Duration::from_secs(1) };

/// A lease that is much shorter than its ttl is renewed so soon.
const MADE_WHOLE: Duration = Duration::from_millis(50);

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Competes for the lock until it is granted, refused for good, or the bound has passed.
///
/// # Cancel safety
/// Cancel safe: dropping it moves the claim, or its attempt in flight, to the keeper, which releases it.
pub(crate) async fn acquire(request: Request<'_>, bound: Bound) -> Result<Option<Arc<Held>>> {
    let Request { backend, keeper, name, mode, options, limits, .. } = request;
    let explain =
        |error: Error| error.with_operation("lock").with_backend(backend.descriptor().name).with_name(name);
    keeper.ensure().map_err(explain)?;
    // A store that answers at once never makes its caller wait: others, such as the keeper, must have a turn.
    consume_budget().await;
    let agenda = keeper.agenda();
    let started = agenda.clock.now();
    let held = Arc::new(Held::new(name.clone(), mode, limits, options.renewal, Arc::clone(agenda)));
    let mut spec = ClaimSpec::new(name.clone(), held.owner, mode, limits.ttl, limits.op_timeout);
    spec.label.clone_from(&options.label);
    spec.clock = agenda.clock;
    spec.hint = Hint::to(&held);
    spec.caller = Caller::of(&held);
    spec.short_lease = options.renewal == Renewal::Auto;
    let life = Life::new(Arc::clone(agenda), limits.ttl);
    if agenda.is_draining() {
        return Err(explain(closed()));
    }
    let claim = backend.claim(spec).map_err(explain)?;
    let bid = Bid::new(LiveClaim::new(claim, life), Arc::clone(&held), keeper);
    let outcome = compete(bid, request, bound, started).await;
    match &outcome {
        Ok(Some(attempts)) => {
            agenda.observe(|| {
                let (token, waited) = (held.token(), started.until(agenda.clock.now()));
                Event::Acquired { name, mode, token, waited, attempts: *attempts }
            });
        }
        Ok(None) => {
            agenda.observe(|| Event::TimedOut { name, waited: started.until(agenda.clock.now()) });
        }
        Err(_) => {}
    }
    outcome.map(|granted| granted.map(|_| held)).map_err(explain)
}

/// Returns the number of attempts that a grant took.
async fn compete(mut bid: Bid<'_>, request: Request<'_>, bound: Bound, started: Tick) -> Result<Option<u32>> {
    let Request { limits, .. } = request;
    let held = Arc::clone(&bid.held);
    let (agenda, descriptor) = (&held.agenda, request.backend.descriptor());
    let clock = agenda.clock;
    let stop = match bound {
        Bound::Forever => Tick::NEVER,
        Bound::Try => started,
        Bound::Within(wait) => started.after(wait),
    };
    let mut backoff = Backoff::new(descriptor.poll);
    let mut trouble = Trouble::default();
    let mut reserve = LEAVING;
    let mut attempts = 0;
    loop {
        // Hears what comes from here on, also before it is polled: tokio promises that for `notify_waiters`.
        let mut closing = pin!(agenda.closing.notified());
        if agenda.is_draining() {
            return Err(closed());
        }
        let asked = clock.now();
        let left = asked.until(stop);
        let patience = descriptor.max_patience.min(left.saturating_sub(reserve));
        let wait = match bound {
            Bound::Try => Wait::No,
            _ if descriptor.max_patience.is_zero() => Wait::Queue,
            _ => Wait::Block(patience),
        };
        // Try is bounded by the request's own budget, a wait also by its bound.
        let cut = if matches!(bound, Bound::Try) { Duration::MAX } else { left };
        attempts += 1;
        held.rung.store(false, Relaxed); // this attempt looks after what was rung before
        let answer = tokio::select! {
            biased;
            answer = within(cut, bid.attempt(wait)) => answer,
            () = closing.as_mut() => return Err(closed()),
        };
        let now = clock.now();
        let waited = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
        let round_trip = asked.until(now).saturating_sub(waited);
        let mut retry_after = Duration::MAX;
        match answer {
            None if attempts == 1 && waited.is_zero() => return Err(no_answer(left)),
            None => return trouble.at_the_bound(),
            // The shutdown has begun: it would be lost at once.
            Some(Ok(Attempt::Granted(_))) if agenda.is_draining() => return Err(closed()),
            Some(Ok(Attempt::Granted(grant))) => {
                if held.extend(asked, grant.lease) > now {
                    bid.win(grant, request, now)?;
                    return Ok(Some(attempts));
                }
                trouble.store_is_too_slow(asked, limits);
            }
            Some(Ok(Attempt::Busy { retry_after: lapse, .. })) => {
                trouble.is_over();
                // A lease that ends now is no reason to ask without a pause.
                retry_after = lapse.unwrap_or(Duration::MAX).max(SHORTEST_PAUSE);
            }
            Some(Err(error)) => {
                agenda.observe(|| Event::Failed { name: &held.name, error: &error });
                if !error.is_temporary() {
                    return Err(error);
                }
                trouble.goes_on(asked, error);
            }
        }
        if let Bound::Forever = bound
            && let Some(error) = trouble.outlasts(now, limits)
        {
            return Err(error);
        }
        let left = now.until(stop);
        // The last attempt shall end before the bound; what comes after it, waits for a wake-up only.
        reserve = LEAST_RESERVE.max(round_trip * 2);
        let until_last = if left > reserve { left - reserve } else { left };
        let well = trouble.error.is_none();
        let pause = if well { backoff.jittered().min(retry_after) } else { trouble.pause() };
        if !left.is_zero() {
            tokio::select! {
                // The watch of a broken connection may end at once, each time.
                () = bid.changed(), if well => {}
                () = held.bell.notified() => {}
                () = closing => {}
                () = time::sleep(if left > reserve { pause.min(until_last) } else { left }) => backoff.grow(),
            }
        }
        // Its runtime may have gone meanwhile, and what it left to do may be what this call waits for.
        request.keeper.ensure()?;
        if clock.now() >= stop {
            let grace = if well { LEAVING.max(round_trip * 2) } else { Duration::ZERO };
            bid.leave(grace.min(limits.op_timeout)).await;
            return trouble.at_the_bound();
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the locker was shut down")
}

fn no_answer(bound: Duration) -> Error {
    let text = format!("the store did not answer within the bound on waiting, {bound:?}");
    Error::new(ErrorKind::Unavailable, text).with_outcome_unknown()
}

/// What is wrong with the store, and since when.
#[derive(Debug, Default)]
struct Trouble {
    since: Option<Tick>,
    error: Option<Error>,
    backoff: Option<Backoff>,
}

impl Trouble {
    fn goes_on(&mut self, asked: Tick, error: Error) {
        self.since.get_or_insert(asked);
        self.error = Some(error);
    }

    fn store_is_too_slow(&mut self, asked: Tick, limits: Limits) {
        let text = format!(
            "the store granted the lock, but its answer took longer than the lease of {:?}; use a longer ttl",
            limits.ttl
        );
        self.goes_on(asked, Error::new(ErrorKind::Unavailable, text));
    }

    /// A store that wakes its waiters is polled slowly; one in trouble is asked again soon.
    fn pause(&mut self) -> Duration {
        let backoff = self.backoff.get_or_insert_with(|| Backoff::new(TROUBLED));
        let pause = backoff.jittered();
        backoff.grow();
        pause
    }

    fn is_over(&mut self) {
        *self = Self::default();
    }

    /// A wait without a bound outlives a restart of the store, but does not hide for ever that it is gone.
    fn outlasts(&mut self, now: Tick, limits: Limits) -> Option<Error> {
        let patience = limits.ttl.max(limits.op_timeout * 3);
        if self.since?.until(now) < patience {
            return None;
        }
        self.error.take().map(|error| error.with_status(ErrorStatus::Persistent))
    }

    fn at_the_bound<T>(self) -> Result<Option<T>> {
        self.error.map_or(Ok(None), Err)
    }
}

/// A claim that is not a guard yet. Its `Drop` is the whole story of cancellation.
struct Bid<'a> {
    state: State,
    /// Something of it may be in the store.
    dirty: bool,
    /// The outcome of an attempt is unknown: it may still be applied, whatever a later one was answered.
    unknown: bool,
    held: Arc<Held>,
    keeper: &'a Keeper,
}

enum State {
    Idle(LiveClaim),
    Trying(Attempting),
    Gone,
}

impl<'a> Bid<'a> {
    fn new(claim: LiveClaim, held: Arc<Held>, keeper: &'a Keeper) -> Self {
        Self { state: State::Idle(claim), dirty: false, unknown: false, held, keeper }
    }

    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
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

    /// The attempt owns the claim, so that it can move to the keeper midway; the budget sits inside, so that the
    /// claim survives it.
    fn start(&self, claim: LiveClaim, wait: Wait) -> Attempting {
        let patience = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
        let budget = self.held.limits.op_timeout.saturating_add(patience);
        let mut claim = Unreleased::new(Some(claim), Arc::clone(&self.held));
        Box::pin(async move {
            let answer = claim.attempt(wait, budget).await;
            (claim.settle(), answer)
        })
    }

    /// Borrows the claim: the compiler forces this wait to end before the claim moves anywhere.
    async fn changed(&mut self) {
        match &mut self.state {
            State::Idle(claim) => claim.changed().await,
            State::Trying(_) | State::Gone => std::future::pending().await,
        }
    }

    /// Makes a hold of it. There is no await from the grant to here, and none from here to the guard.
    fn win(&mut self, grant: Grant, request: Request<'_>, now: Tick) -> Result<()> {
        let (held, token_base) = (&self.held, request.token_base);
        let Some(token) = grant.token.get().checked_add(token_base) else {
            let text = format!("token_base {token_base} is too large: token {} overflows", grant.token);
            return Err(Error::new(ErrorKind::InvalidOption, text));
        };
        let Ok(mut slot) = held.slot.try_lock() else {
            return Err(Error::new(ErrorKind::Unexpected, "a lock that was never held is in use"));
        };
        if let State::Idle(claim) = std::mem::replace(&mut self.state, State::Gone) {
            if let Some(attachment) = claim.attachment() {
                held.attach(attachment);
            }
            if let Some(owner) = claim.recorded_owner() {
                held.record_owner(owner);
            }
            *slot = Some(claim);
        }
        drop(slot);
        held.grant(FencingToken::new(token));
        let mut due = first_due(held, now);
        // A hand-over gave less than was asked for. A hold that is over by then need not ask for the rest.
        let short = held.remaining() < request.limits.ttl / 2;
        if short
            && request.options.renewal == Renewal::Auto
            && request.backend.descriptor().lease_scope == LeaseScope::Claim
        {
            due = due.min(now.after(MADE_WHOLE));
        }
        held.agenda.schedule(held, due);
        Ok(())
    }

    /// Leaves the queue before the caller is told, so that its next try does not meet its own shadow. What takes
    /// longer than `grace`, the keeper does.
    async fn leave(mut self, grace: Duration) {
        if !self.dirty || grace.is_zero() {
            return;
        }
        if let State::Idle(claim) = self.take() {
            let leaving = Handover::new(self.keeper, clean_up(claim, Arc::clone(&self.held)));
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

impl Drop for Bid<'_> {
    fn drop(&mut self) {
        let held = Arc::clone(&self.held);
        held.abandon();
        let chore = match std::mem::replace(&mut self.state, State::Gone) {
            State::Idle(claim) if self.dirty => Chore::Claim(claim, held),
            State::Idle(_) | State::Gone => return,
            State::Trying(attempting) => Chore::Attempt(attempting, held),
        };
        self.keeper.agenda().push(chore);
        self.held.agenda.observe(|| Event::Abandoned { name: &self.held.name });
    }
}
