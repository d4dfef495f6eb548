//! Takes a lock, or takes over a grant: makes attempts inline on the caller's task, and waits
//! between them. A call that is dropped midway moves to the background task.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::task::consume_budget;
use tracing::Span;

use super::{
    agenda::Agenda,
    competition::{Competition, Race},
    held::Held,
    line::{Called, InLine},
    live::{Life, LiveClaim},
    pending::PendingClaim,
    queue::{Entry, Waiter},
    request::{Bound, Request},
};
use crate::{
    clock::{Tick, sleep},
    error::{Error, ErrorKind, Result},
    observe::What,
    options::{CheckedOptions, Renewal},
    spi::{Caller, ClaimSpec, Wake},
};

/// Competes for the lock until it is granted, refused for good, or the bound has passed. A request
/// that resumes a grant is an error if the store refuses it.
///
/// # Cancel safety
/// Cancel safe: dropping it moves the claim, or its attempt in flight, to the background task,
/// which releases it.
pub(crate) async fn acquire(request: Request<'_>, bound: Bound) -> Result<Option<Arc<Held>>> {
    let Request { backend, keeper, name, resumes, .. } = request;
    let operation = if resumes.is_some() { "resume" } else { "lock" };
    let explain = |error: Error| {
        error.with_operation(operation).with_backend(backend.descriptor().name).with_name(name)
    };
    keeper.ensure().map_err(explain)?;
    // On a store that answers at once, the caller would never yield. Other tasks, such as the
    // background task, must get a turn.
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
            Ok(Outcome::Refused) if resumes.is_some() => break Err(explain(stale_ticket())),
            Ok(Outcome::Refused) => break Ok(None),
            Err(error) => break Err(explain(error)),
        }
    };
    call.end(&outcome);
    outcome.map(|granted| granted.map(|(held, _)| held))
}

/// A call for a lock, as observers and traces see it. It ends exactly once.
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

    fn end(mut self, outcome: &Result<Option<(Arc<Held>, u32)>>) {
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
        // Inside the closure, so that the clock is read only if an observer hears the event.
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
    /// The lock, and the number of attempts that it took.
    Granted(Arc<Held>, u32),
    /// The lock was transferred to this call and given back, because the caller did not look in
    /// time.
    Missed,
    Refused,
}

/// Enters by the gate, and competes.
async fn once(request: Request<'_>, mut race: Race) -> Result<Outcome> {
    let Request { backend, keeper, name, mode, options, .. } = request;
    let Race { bound, stop, .. } = race;
    let agenda = keeper.agenda();
    let locker = keeper.locker();
    let listener = Arc::clone(agenda);
    let held = Arc::new(Held::new(name.clone(), mode, Arc::clone(options), listener));
    let life = Life::new(Arc::clone(locker), options.limits.ttl);
    locker.check_open()?;
    let claim = backend.claim(spec_of(request, &held))?;
    let pending = PendingClaim::new(LiveClaim::new(claim, life), Arc::clone(&held), agenda);
    let entry = match bound {
        _ if !request.gated => Entry::Open,
        Bound::Try => agenda.gates.try_enter(&held),
        Bound::Forever | Bound::Within(_) => {
            let waiter = |place| Waiter::new(Arc::clone(&held), place, spec_of(request, &held));
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
    let mut competition = Competition::new(pending, request, race, turn);
    let attempts = competition.run().await?;
    Ok(attempts.map_or(Outcome::Refused, |attempts| Outcome::Granted(Arc::clone(&held), attempts)))
}

/// Boxed, because few calls wait in line, and the others need not carry its state.
fn wait_in_line(
    agenda: &Arc<Agenda>,
    waiter: Arc<Waiter>,
    ahead: usize,
    stop: Tick,
) -> BoxFuture<'_, Result<Called>> {
    let line = InLine::new(agenda, waiter, ahead);
    Box::pin(async move { line.wait(stop).await })
}

/// The error of a ticket whose grant is gone.
pub(crate) fn stale_ticket() -> Error {
    let text = "the ticket is stale: it was used before, its lease has ended, the lock was freed, \
                or the ticket is of another store; take the lock again";
    Error::new(ErrorKind::Lost, text)
}

fn spec_of(request: Request<'_>, held: &Arc<Held>) -> ClaimSpec {
    let Request { name, mode, options, resumes, .. } = request;
    let CheckedOptions { options, limits } = &**options;
    let mut spec = ClaimSpec::new(name.clone(), held.asks_as, mode, limits.ttl, limits.op_timeout);
    spec.label.clone_from(&options.label);
    spec.clock = held.locker().clock;
    spec.wake = Wake::to(held);
    spec.caller = Caller::of(held);
    spec.short_lease = options.renewal() == Renewal::Auto;
    spec.resumes = resumes.map(|grant| Box::new(*grant));
    spec
}
