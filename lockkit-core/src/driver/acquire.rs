//! Taking a lock: attempts inline on the caller's task, waits between them. What is dropped midway
//! moves to the keeper.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::task::consume_budget;
use tracing::Span;

use super::{
    agenda::Agenda,
    hold::Hold,
    line::{Called, InLine},
    live::{Life, LiveClaim},
    pacing::Backoff,
    pending::PendingClaim,
    queue::{Entry, Turn, Waiter},
    request::{Bound, Request},
    trouble::Trouble,
    within::within,
};
use crate::{
    clock::{Tick, sleep},
    error::{Error, ErrorKind, Result},
    observe::What,
    options::{CheckedOptions, Renewal},
    spi::{Attempt, Caller, ClaimSpec, Hint, Wait},
};

/// Leaving a queue inline may take this long beyond the wait bound, or two round trips if that is
/// more.
const LEAVING: Duration = Duration::from_millis(5);
/// How long before the bound the last attempt begins, on a store that answers at once. tokio's
/// timers may be a millisecond late.
const LEAST_RESERVE: Duration = Duration::from_millis(2);

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Competes for the lock until it is granted, refused for good, or the bound has passed.
///
/// # Cancel safety
/// Cancel safe: dropping it moves the claim, or its attempt in flight, to the keeper, which
/// releases it.
pub(crate) async fn acquire(request: Request<'_>, bound: Bound) -> Result<Option<Arc<Hold>>> {
    let Request { backend, keeper, name, .. } = request;
    let explain = |error: Error| {
        error.with_operation("lock").with_backend(backend.descriptor().name).with_name(name)
    };
    keeper.ensure().map_err(explain)?;
    // A store that answers at once never makes its caller wait: others, such as the keeper, must
    // have a turn.
    consume_budget().await;
    let started = keeper.locker().clock.now();
    let stop = match bound {
        Bound::Forever => Tick::NEVER,
        Bound::Try => started,
        Bound::Within(wait) => started.after(wait),
    };
    let call = Call::begin(request, started);
    let mut again = false;
    let outcome = loop {
        match once(request, Race { bound, stop, queued: again }).await {
            Ok(Outcome::Missed) if keeper.locker().clock.now() >= stop => break Ok(None),
            Ok(Outcome::Missed) => again = true,
            Ok(Outcome::Granted(held, attempts)) => break Ok(Some((held, attempts))),
            Ok(Outcome::Refused) => break Ok(None),
            Err(error) => break Err(explain(error)),
        }
    };
    call.end(&outcome);
    outcome.map(|granted| granted.map(|(held, _)| held))
}

/// A call for a lock, as observers and traces see it: it ends once, however it ends.
struct Call<'a> {
    request: Request<'a>,
    started: Tick,
    ended: bool,
}

impl<'a> Call<'a> {
    fn begin(request: Request<'a>, started: Tick) -> Self {
        let call = Self { request, started, ended: false };
        call.observe(|| What::Asked);
        call
    }

    fn observe(&self, what: impl FnOnce() -> What<'a>) {
        let Request { keeper, name, options, .. } = self.request;
        keeper.locker().observe(name, options.options.group.as_ref(), what);
    }

    fn waited(&self) -> Duration {
        self.started.until(self.request.keeper.locker().clock.now())
    }

    fn end(mut self, outcome: &Result<Option<(Arc<Hold>, u32)>>) {
        self.ended = true;
        let span = Span::current();
        match outcome {
            Ok(Some((held, attempts))) => {
                let token = held.token().get();
                span.record("token", token)
                    .record("attempts", attempts)
                    .record("outcome", "granted");
            }
            Ok(None) => _ = span.record("outcome", "timed out"),
            Err(_) => _ = span.record("outcome", "refused"),
        }
        let Request { keeper, name, mode, options, .. } = self.request;
        // The clock is read for those who hear it only.
        keeper.locker().observe(name, options.options.group.as_ref(), || {
            let waited = self.waited();
            match outcome {
                Ok(Some((held, attempts))) => {
                    What::Acquired { mode, token: held.token(), waited, attempts: *attempts }
                }
                Ok(None) => What::TimedOut { waited },
                Err(error) => What::Refused { error, waited },
            }
        });
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.observe(|| What::Abandoned { waited: self.waited() });
        }
    }
}

enum Outcome {
    /// With the number of attempts that it took.
    Granted(Arc<Hold>, u32),
    /// It was handed over, and taken back as nobody looked at it.
    Missed,
    Refused,
}

/// Enters by the gate and competes.
async fn once(request: Request<'_>, mut race: Race) -> Result<Outcome> {
    let Request { backend, keeper, token_base, name, mode, options, .. } = request;
    let Race { bound, stop, .. } = race;
    let agenda = keeper.agenda();
    let locker = keeper.locker();
    let listener = Arc::clone(agenda);
    let held = Arc::new(Hold::new(name.clone(), mode, Arc::clone(options), listener));
    let life = Life::new(Arc::clone(locker), options.limits.ttl);
    locker.check_open()?;
    let claim = backend.claim(spec_of(request, &held))?;
    let pending = PendingClaim::new(LiveClaim::new(claim, life), Arc::clone(&held), agenda);
    let entry = match bound {
        _ if !request.gated => Entry::Open,
        Bound::Try => agenda.gates.try_enter(&held),
        Bound::Forever | Bound::Within(_) => {
            let waiter =
                |place| Waiter::new(Arc::clone(&held), place, spec_of(request, &held), token_base);
            agenda.gates.enter(&held, waiter)
        }
    };
    race.queued |= matches!(entry, Entry::Queued(..));
    let turn = match entry {
        Entry::Open => None,
        Entry::Taken => return Ok(Outcome::Refused),
        Entry::Turn(turn) => Some(turn),
        Entry::Queued(waiter, ahead) => match wait_in_line(agenda, waiter, ahead, stop).await? {
            Called::Open => None,
            Called::Late => return Ok(Outcome::Refused),
            Called::Missed => return Ok(Outcome::Missed),
            Called::Handed => {
                agenda.schedule(&held, held.next_renewal(locker.clock.now()));
                return Ok(Outcome::Granted(Arc::clone(&held), 0));
            }
            Called::Turn(ticket, rest) => {
                let turn = agenda.gates.turn_of(&held, ticket);
                if !rest.is_zero() {
                    sleep(rest.min(locker.clock.now().until(stop))).await;
                }
                if locker.clock.now() >= stop {
                    return Ok(Outcome::Refused);
                }
                Some(turn)
            }
        },
    };
    let attempts = compete(pending, request, race, turn).await?;
    Ok(attempts.map_or(Outcome::Refused, |attempts| Outcome::Granted(Arc::clone(&held), attempts)))
}

/// Boxed: few calls wait in line, and the others need not carry its state.
fn wait_in_line(
    agenda: &Arc<Agenda>,
    waiter: Arc<Waiter>,
    ahead: usize,
    stop: Tick,
) -> BoxFuture<'_, Result<Called>> {
    let line = InLine::new(agenda, waiter, ahead);
    Box::pin(async move { line.wait(stop).await })
}

fn spec_of(Request { name, mode, options, .. }: Request<'_>, held: &Arc<Hold>) -> ClaimSpec {
    let CheckedOptions { options, limits } = &**options;
    let mut spec = ClaimSpec::new(name.clone(), held.asks_as, mode, limits.ttl, limits.op_timeout);
    spec.label.clone_from(&options.label);
    spec.clock = held.locker().clock;
    spec.hint = Hint::to(held);
    spec.caller = Caller::of(held);
    spec.short_lease = options.renewal() == Renewal::Auto;
    spec
}

/// What bounds a competition.
#[derive(Clone, Copy)]
struct Race {
    bound: Bound,
    stop: Tick,
    /// It may begin later than its call.
    queued: bool,
}

/// Returns the number of attempts that a grant took.
async fn compete(
    mut pending: PendingClaim<'_>,
    request: Request<'_>,
    race: Race,
    turn: Option<Turn<'_>>,
) -> Result<Option<u32>> {
    let limits = request.options.limits;
    let Race { bound, stop, queued } = race;
    let held = Arc::clone(&pending.held);
    let locker = &held.locker();
    let descriptor = request.backend.descriptor();
    let clock = locker.clock;
    let mut backoff = Backoff::new(descriptor.poll);
    let mut trouble = Trouble::default();
    let mut reserve = LEAVING;
    let mut attempts = 0;
    loop {
        // Hears what comes from here on, also before it is polled: tokio promises that for
        // `notify_waiters`.
        let mut closing = pin!(locker.closing.notified());
        locker.check_open().map_err(|error| pending.mark_unknown(error))?;
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
        held.rung.begin_attempt();
        let answer = tokio::select! {
            biased;
            answer = within(cut, pending.attempt(wait)) => answer,
            () = closing.as_mut() => return Err(pending.mark_unknown(locker.closed())),
        };
        let now = clock.now();
        let waited = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
        let round_trip = asked.until(now).saturating_sub(waited);
        let mut retry_after = Duration::MAX;
        match answer {
            None if attempts == 1 && waited.is_zero() && !queued => return Err(no_answer(left)),
            None => return trouble.at_the_bound().map_err(|error| pending.mark_unknown(error)),
            // The shutdown has begun: it would be lost at once.
            Some(Ok(Attempt::Granted(_))) if locker.is_draining() => {
                return Err(pending.mark_unknown(locker.closed()));
            }
            Some(Ok(Attempt::Granted(grant))) => {
                if held.extend(asked, grant.lease) > now {
                    pending
                        .win(grant, request, now)
                        .map_err(|error| pending.mark_unknown(error))?;
                    if let Some(turn) = turn {
                        turn.wins(&held);
                    }
                    return Ok(Some(attempts));
                }
                pending.misses();
                trouble.store_is_too_slow(asked, limits);
            }
            Some(Ok(Attempt::Busy { retry_after: lapse, .. })) => {
                trouble.is_over();
                // A lease that ends now is no reason to ask without a pause.
                retry_after = lapse.unwrap_or(Duration::MAX).max(SHORTEST_PAUSE);
            }
            Some(Err(error)) => {
                held.observe(|| What::Failed { error: &error });
                if !error.is_temporary() {
                    if let Some(turn) = &turn {
                        turn.meets_trouble();
                    }
                    return Err(pending.mark_unknown(error));
                }
                trouble.goes_on(asked, error);
            }
        }
        if let Some(turn) = &turn {
            if trouble.is_none() { turn.goes_on() } else { turn.meets_trouble() }
        }
        if let Bound::Forever = bound
            && let Some(error) = trouble.outlasts(now, limits)
        {
            return Err(pending.mark_unknown(error));
        }
        let left = now.until(stop);
        // The last attempt shall end before the bound; what comes after it, waits for a wake-up
        // only.
        reserve = LEAST_RESERVE.max(round_trip * 2);
        let until_last = if left > reserve { left - reserve } else { left };
        let well = trouble.is_none();
        let pause = if well { backoff.jittered().min(retry_after) } else { trouble.pause() };
        if !left.is_zero() {
            tokio::select! {
                biased; // each of them leads to the next attempt
                // The watch of a broken connection may end at once, each time.
                () = pending.changed(), if well => {}
                () = held.bell.notified() => {}
                () = closing => {}
                _ = sleep(if left > reserve { pause.min(until_last) } else { left }) => backoff.grow(),
            }
        }
        // Its runtime may have gone meanwhile, and what it left to do may be what this call waits
        // for.
        request.keeper.ensure().map_err(|error| pending.mark_unknown(error))?;
        if clock.now() >= stop {
            let grace = if well { LEAVING.max(round_trip * 2) } else { Duration::ZERO };
            let refused = trouble.at_the_bound().map_err(|error| pending.mark_unknown(error));
            pending.leave(grace.min(limits.op_timeout)).await;
            return refused;
        }
    }
}

fn no_answer(bound: Duration) -> Error {
    let text = format!("the store did not answer within the bound on waiting, {bound:?}");
    Error::new(ErrorKind::Unavailable, text).with_outcome_unknown()
}
