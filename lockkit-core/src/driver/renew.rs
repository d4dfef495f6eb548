//! Renews locks: in the background task when a renewal is due, or when the user asks.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tracing::Instrument as _;

use super::{
    agenda::{Agenda, Cleanup},
    held::{Ending, Held},
    line::give_back_unclaimed,
    live::LiveClaim,
    pacing,
};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind, Result},
    observe::What,
    options::Renewal,
    spi::{LossReason, RenewalOutcome},
    within::within,
};

/// Works on a timer that is due. It renews the hold, records a loss, or ends a hold that a shutdown
/// found still held.
pub(super) fn renew_due(agenda: Arc<Agenda>, held: Arc<Held>) -> impl Future<Output = ()> {
    // Made before the first poll. A runtime may end before that poll, and the next task must find
    // the timer.
    work_on(NextTimer { agenda, held, woken: false, due: None })
}

async fn work_on(mut next: NextTimer) {
    let held = Arc::clone(&next.held);
    let agenda = Arc::clone(&next.agenda);
    let clock = held.locker().clock;
    let now = clock.now();
    if now >= held.unclaimed_until() || !held.stands_at(now) || held.locker().is_draining() {
        give_back_unclaimed(&agenda, &held);
    }
    next.woken = held.woken.begin_renewal();
    let draining = held.locker().draining_since();
    if draining.is_some() && clock.now() >= held.closing_end() {
        held.lose(LossReason::Closed);
    }
    if !held.is_held() {
        return free_lost(&agenda, &held);
    }
    let before = held.lease_end();
    let (mut slot, joined) = match held.slot.try_lock() {
        Ok(slot) => (slot, false),
        // A renewal by hand, a note, or the release has the slot. Wait for it, but not for ever: a
        // release that is not polled may be next in the slot's line.
        Err(_) => {
            let patience = held.limits().op_timeout.min(clock.now().until(held.deadline()));
            match within(patience, held.slot.lock()).await {
                Some(slot) => (slot, true),
                None => return,
            }
        }
    };
    if joined && !held.is_held() {
        return free_lost(&agenda, &held);
    }
    let Some(claim) = slot.as_mut() else { return };
    // Only a later end proves that the other task renewed the lock and that the store confirmed it.
    let renewed = joined && held.lease_end() > before;
    if !next.woken && !is_regular(&held, draining.is_some(), renewed) {
        let due = if draining.is_some() { Tick::NEVER } else { held.next_renewal(clock.now()) };
        next.due = Some(due);
        return;
    }
    // A wake-up is a reason to look at the store. It must not hold the lock for longer than the
    // user wanted.
    let kind = match held.options.options.renewal() {
        Renewal::Auto => RenewKind::Keep,
        Renewal::Manual => RenewKind::Look,
    };
    match renew_once(&held, claim, kind).await {
        Ok(()) => next.due = Some(held.next_renewal(clock.now())),
        Err(error) if error.kind() == ErrorKind::Lost => free_lost(&agenda, &held),
        Err(_) => {
            // C10: a failed renewal neither extends the lease nor ends it. The next one is soon,
            // but later after each failure, to spare a store that recovers.
            let streak = held.unknown_renewals.load(Relaxed);
            held.unknown_renewals.store(streak.saturating_add(1), Relaxed);
            let pause =
                pacing::renewal_retry(held.locker().renewal_pacing, held.limits().ttl, streak);
            next.due = Some(clock.now().after(pause));
        }
    }
}

/// Whether a timer must ask the store although no wake-up made it due.
fn is_regular(held: &Held, is_draining: bool, is_renewed: bool) -> bool {
    match held.options.options.renewal() {
        // The deadline ends the hold. A session has no deadline, so it must be watched to the end.
        _ if is_draining && held.lease_end() != Tick::NEVER => false,
        Renewal::Auto => !is_renewed,
        // A wake-up asked for a look that has not succeeded yet.
        Renewal::Manual => held.unknown_renewals.load(Relaxed) > 0,
    }
}

/// Renews because the user asked, for `lease` instead of the ttl if that is given. Then the timer
/// of the hold is set again.
///
/// # Errors
/// [`ErrorKind::Lost`] if the lock is lost; any other error means that the outcome is unknown.
pub(crate) async fn renew_now(
    agenda: Arc<Agenda>,
    held: Arc<Held>,
    lease: Option<Duration>,
) -> Result<()> {
    let outcome = match within(held.limits().op_timeout, held.slot.lock()).await {
        None => Err(Error::new(
            ErrorKind::Unavailable,
            "an earlier renewal of this lock did not end in time; try again",
        )),
        Some(mut slot) => match slot.as_mut() {
            Some(claim) if held.is_held() => {
                renew_once(&held, claim, lease.map_or(RenewKind::Renew, RenewKind::Extend)).await
            }
            _ => Err(held.lost_error()),
        },
    };
    match outcome {
        Ok(()) => {
            agenda.reschedule(&held, held.next_renewal(held.locker().clock.now()));
            Ok(())
        }
        Err(error) => {
            if error.kind() == ErrorKind::Lost {
                free_lost(&agenda, &held);
            }
            Err(held.explain(error, if lease.is_none() { "renew" } else { "extend" }))
        }
    }
}

/// The purpose of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewKind {
    /// To get a lease of this length, because the user asks for it.
    Extend(Duration),
    /// To get a lease of the ttl, because the renewal is due.
    Keep,
    /// To learn whether the lock is still held.
    Look,
    /// To get a lease of the ttl, because the user asks for it.
    Renew,
}

impl RenewKind {
    fn operation(self) -> &'static str {
        match self {
            Self::Extend(_) => "extend",
            Self::Keep | Self::Look | Self::Renew => "renew",
        }
    }
}

/// Makes one request for renewal, and acts on its answer.
async fn renew_once(held: &Held, claim: &mut LiveClaim, kind: RenewKind) -> Result<()> {
    let span = held.renew_span();
    let margin = held.remaining();
    let outcome = ask(held, claim, kind).instrument(span).await;
    match outcome {
        Ok(round_trip) => {
            let margin = margin.saturating_sub(round_trip);
            held.observe(|| What::Renewed { token: held.token(), margin });
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Lost => Err(error),
        Err(error) => {
            let error = held.explain(error, kind.operation());
            tracing::debug!(name = %held.name, "{error}");
            held.observe(|| What::RenewalFailed { error: &error });
            Err(error)
        }
    }
}

/// Sends the request, and returns how long it took.
async fn ask(held: &Held, claim: &mut LiveClaim, kind: RenewKind) -> Result<Duration> {
    let clock = held.locker().clock;
    let asked = clock.now();
    let budget = held.limits().op_timeout.min(asked.until(held.deadline()));
    // A shorter time than the rest of the lease would shorten a lease that was confirmed (C2). No
    // store prevents that, because no store knows which lease its holder saw confirmed.
    let kept = held.lease_left(asked);
    let lease = match kind {
        RenewKind::Extend(lease) => Some(lease.max(kept)),
        RenewKind::Keep | RenewKind::Look | RenewKind::Renew
            if held.locker().extends && kept > held.limits().ttl =>
        {
            Some(kept)
        }
        RenewKind::Keep | RenewKind::Look | RenewKind::Renew => None,
    };
    let known = if matches!(kind, RenewKind::Keep | RenewKind::Look) {
        claim.known_outcome()
    } else {
        None
    };
    let outcome = match known {
        Some(known) => known?,
        None => claim.renew(lease, budget).await?,
    };
    match outcome {
        RenewalOutcome::Alive(lease) => {
            // An answer after the deadline is too late, because another task may have seen the lock
            // as lost.
            if !held.is_held() {
                return Err(held.lost_error());
            }
            // A look uses only an end that is earlier than the known one. A quorum that has lost a
            // member reports such an end.
            if kind != RenewKind::Look || lease.deadline(asked) < held.lease_end() {
                held.extend(asked, lease);
            }
            held.unknown_renewals.store(0, Relaxed);
            Ok(asked.until(clock.now()))
        }
        RenewalOutcome::Lost(reason) => {
            held.lose(reason);
            Err(held.lost_error())
        }
    }
}

/// The lock is lost, so the background task frees its rest in the store early. It does not free a
/// lock that was given back: the call that released it wants to hear the outcome.
pub(super) fn free_lost(agenda: &Agenda, held: &Arc<Held>) {
    if held.ending() == Some(Ending::GivenBack) {
        return;
    }
    agenda.retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
}

/// Puts the timer back, however the renewal ends. It does so even if the runtime is shut down
/// before the renewal begins, or midway.
struct NextTimer {
    agenda: Arc<Agenda>,
    held: Arc<Held>,
    woken: bool,
    due: Option<Tick>,
}

impl Drop for NextTimer {
    fn drop(&mut self) {
        let due = self.due.unwrap_or_else(|| {
            // The store got no request, or it did not answer, so the wake-up is still pending.
            self.held.woken.put_back(self.woken);
            let pause =
                pacing::renewal_retry(self.held.locker().renewal_pacing, self.held.limits().ttl, 0);
            self.held.locker().clock.now().after(pause)
        });
        self.agenda.schedule(&self.held, due.min(self.held.unclaimed_until()));
    }
}
