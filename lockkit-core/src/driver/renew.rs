//! Renewal: by the keeper when it is due, or by the user.

use std::sync::{
    Arc,
    atomic::Ordering::{AcqRel, Relaxed},
};

use super::{
    agenda::Chore,
    backoff::between,
    held::{Ending, Held},
    live::LiveClaim,
    within::within,
};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind, Result},
    observe::Event,
    options::Renewal,
    spi::{Cadence, LossReason, Pulse},
};

/// Holds that are renewed together are due at multiples of this share of their ttl: up to a quarter early.
const SLOTS: u32 = 12;

/// When a hold that was granted or renewed just now is due: after a third of what is left, spread by jitter.
pub(crate) fn first_due(held: &Held, now: Tick) -> Tick {
    match held.renewal {
        Renewal::Auto => {
            let Cadence { longest, together } = held.agenda.cadence;
            let lease = held.limits.ttl.min(now.until(held.deadline()));
            let due = now.after(between(lease, 0.3, 1.0 / 3.0).min(longest));
            if together { due.rounded_down(held.limits.ttl / SLOTS).max(now) } else { due }
        }
        Renewal::Manual => held.deadline(),
    }
}

/// Works on a timer that came due: renews, notices a loss, or gives up what a shutdown found still held.
pub(crate) async fn renew_due(held: Arc<Held>) {
    let rung = held.rung.swap(false, AcqRel);
    let mut next = NextTimer { held: &held, rung, due: None }; // dropped after `slot`
    let clock = held.agenda.clock;
    let draining = held.agenda.draining_since();
    if draining.is_some_and(|since| clock.now() >= since.after(held.limits.ttl)) {
        held.lose(LossReason::Closed);
    }
    if !held.is_held() {
        return left_over(&held);
    }
    let (mut slot, joined) = match held.slot.try_lock() {
        Ok(slot) => (slot, false),
        // A renewal by hand, or the release. Joined, not waited for: a future that nobody polls may have it.
        Err(_) => {
            let patience = held.limits.op_timeout.min(clock.now().until(held.deadline()));
            match within(patience, held.slot.lock()).await {
                Some(slot) => (slot, true),
                None => return,
            }
        }
    };
    let Some(claim) = slot.as_mut() else { return };
    let unknown = held.unknown_renewals.load(Relaxed) > 0;
    let regular = match (held.renewal, draining) {
        // A session has no deadline to end it: it must be looked after to the end.
        (_, Some(_)) if held.deadline() != Tick::NEVER => false,
        (Renewal::Auto, _) => !joined,
        (Renewal::Manual, _) => unknown, // a hint asked for a look that did not succeed yet
    };
    if !rung && !regular {
        let due = if draining.is_some() { Tick::NEVER } else { first_due(&held, clock.now()) };
        next.due = Some(due);
        return;
    }
    match beat(&held, claim).await {
        Ok(()) => next.due = Some(first_due(&held, clock.now())),
        Err(error) if error.kind() == ErrorKind::Lost => left_over(&held),
        Err(error) => {
            // C10: it neither extends the lease nor ends it. Soon again, but gently to a store that recovers.
            let streak = held.unknown_renewals.load(Relaxed);
            held.unknown_renewals.store(streak.saturating_add(1), Relaxed);
            let pause = held.limits.ttl / 24 * (1 << streak.min(2));
            next.due = Some(clock.now().after(pause));
            let error = held.explain(error, "renew");
            tracing::debug!(name = %held.name, "{error}");
            held.agenda.observe(|| Event::Failed { name: &held.name, error: &error });
        }
    }
}

/// Renews at the user's wish; the keeper's timer follows.
///
/// # Errors
/// [`ErrorKind::Lost`] if the lock is lost; any other error means that the outcome is unknown.
pub(crate) async fn renew_now(held: Arc<Held>) -> Result<()> {
    let outcome = match within(held.limits.op_timeout, held.slot.lock()).await {
        None => Err(Error::new(ErrorKind::Unavailable, "another renewal in flight did not end in time")),
        Some(mut slot) => match slot.as_mut() {
            Some(claim) if held.is_held() => beat(&held, claim).await,
            _ => Err(held.lost_error()),
        },
    };
    match outcome {
        Ok(()) => {
            held.agenda.reschedule(&held, first_due(&held, held.agenda.clock.now()));
            Ok(())
        }
        Err(error) => {
            if error.kind() == ErrorKind::Lost {
                left_over(&held);
            }
            Err(held.explain(error, "renew"))
        }
    }
}

/// One request for renewal, and what follows from its answer.
async fn beat(held: &Held, claim: &mut LiveClaim) -> Result<()> {
    let asked = held.agenda.clock.now();
    let budget = held.limits.op_timeout.min(asked.until(held.deadline()));
    match claim.keep_alive(budget).await? {
        Pulse::Alive(lease) => {
            // An answer that comes after the deadline is too late: somebody may have seen the lock as lost.
            if !held.is_held() {
                return Err(held.lost_error());
            }
            held.extend(asked, lease);
            held.unknown_renewals.store(0, Relaxed);
            let (name, token) = (&held.name, held.token());
            held.agenda.observe(|| Event::Renewed { name, token });
            Ok(())
        }
        Pulse::Lost(reason) => {
            held.lose(reason);
            Err(held.lost_error())
        }
    }
}

/// The lock is lost; the keeper frees early what is left of it in the store. One that was given back is its
/// releaser's, who wants to hear the outcome.
fn left_over(held: &Arc<Held>) {
    if held.ending() == Some(Ending::GivenBack) {
        return;
    }
    held.agenda.retire(held, Some(Chore::Release(Arc::clone(held), None)));
}

/// Puts the timer back however the renewal ends, also when its runtime is shut down midway.
struct NextTimer<'a> {
    held: &'a Arc<Held>,
    rung: bool,
    due: Option<Tick>,
}

impl Drop for NextTimer<'_> {
    fn drop(&mut self) {
        let due = self.due.unwrap_or_else(|| {
            // Nothing was asked of the store, or no answer came: the hint still stands.
            self.held.rung.fetch_or(self.rung, AcqRel);
            self.held.agenda.clock.now().after(self.held.limits.ttl / 24)
        });
        self.held.agenda.schedule(self.held, due);
    }
}
