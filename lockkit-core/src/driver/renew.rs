//! Renewal: by the keeper when it is due, or by the user.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tracing::Instrument as _;

use super::{
    agenda::{Agenda, Cleanup},
    hold::{Ending, Hold},
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

/// Works on a timer that came due: renews, notices a loss, or gives up what a shutdown found still
/// held.
pub(super) fn renew_due(agenda: Arc<Agenda>, held: Arc<Hold>) -> impl Future<Output = ()> {
    // Made before the first poll: a runtime may end before that, and the timer must be found by the
    // next keeper.
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
        // A renewal by hand, a note, or the release. Joined, and not for ever: a release that
        // nobody polls may be next in the slot's line.
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
    // Only a later end proves that what had the slot was a renewal, and was confirmed.
    let renewed = joined && held.lease_end() > before;
    if !next.woken && !is_regular(&held, draining.is_some(), renewed) {
        let due = if draining.is_some() { Tick::NEVER } else { held.next_renewal(clock.now()) };
        next.due = Some(due);
        return;
    }
    // A wake-up is a reason to look, but none to hold on for longer than the user wanted.
    let kind = match held.options.options.renewal() {
        Renewal::Auto => RenewKind::Keep,
        Renewal::Manual => RenewKind::Look,
    };
    match renew_once(&held, claim, kind).await {
        Ok(()) => next.due = Some(held.next_renewal(clock.now())),
        Err(error) if error.kind() == ErrorKind::Lost => free_lost(&agenda, &held),
        Err(_) => {
            // C10: it neither extends the lease nor ends it. Soon again, but gently to a store that
            // recovers.
            let streak = held.unknown_renewals.load(Relaxed);
            held.unknown_renewals.store(streak.saturating_add(1), Relaxed);
            let pause =
                pacing::renewal_retry(held.locker().renewal_pacing, held.limits().ttl, streak);
            next.due = Some(clock.now().after(pause));
        }
    }
}

/// Whether a timer asks the store that no wake-up has made due.
fn is_regular(held: &Hold, is_draining: bool, is_renewed: bool) -> bool {
    match held.options.options.renewal() {
        // A session has no deadline to end it: it must be looked after to the end.
        _ if is_draining && held.lease_end() != Tick::NEVER => false,
        Renewal::Auto => !is_renewed,
        // A wake-up asked for a look that did not succeed yet.
        Renewal::Manual => held.unknown_renewals.load(Relaxed) > 0,
    }
}

/// Renews at the user's wish, for another time than the ttl if that is given; the keeper's timer
/// follows.
///
/// # Errors
/// [`ErrorKind::Lost`] if the lock is lost; any other error means that the outcome is unknown.
pub(crate) async fn renew_now(
    agenda: Arc<Agenda>,
    held: Arc<Hold>,
    lease: Option<Duration>,
) -> Result<()> {
    let outcome = match within(held.limits().op_timeout, held.slot.lock()).await {
        None => {
            Err(Error::new(ErrorKind::Unavailable, "another renewal in flight did not end in time"))
        }
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

/// What a renewal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewKind {
    /// A lease of this length.
    Extend(Duration),
    /// A lease of the ttl, as it is due.
    Keep,
    /// To hear whether the lock is still held.
    Look,
    /// A lease of the ttl, as the user asks for it.
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

/// One request for renewal, and what follows from its answer.
async fn renew_once(held: &Hold, claim: &mut LiveClaim, kind: RenewKind) -> Result<()> {
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

/// How long the request took.
async fn ask(held: &Hold, claim: &mut LiveClaim, kind: RenewKind) -> Result<Duration> {
    let clock = held.locker().clock;
    let asked = clock.now();
    let budget = held.limits().op_timeout.min(asked.until(held.deadline()));
    // A shorter time than what is left would take from what was confirmed (C2): no store knows what
    // its holder was told.
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
            // An answer that comes after the deadline is too late: somebody may have seen the lock
            // as lost.
            if !held.is_held() {
                return Err(held.lost_error());
            }
            // A look takes what it hears of an earlier end, such as that of a quorum which has lost
            // a member.
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

/// The lock is lost; the keeper frees early what is left of it in the store. One that was given
/// back is its releaser's, who wants to hear the outcome.
pub(super) fn free_lost(agenda: &Agenda, held: &Arc<Hold>) {
    if held.ending() == Some(Ending::GivenBack) {
        return;
    }
    agenda.retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
}

/// Puts the timer back however the renewal ends, also when its runtime is shut down before it
/// begins, or midway.
struct NextTimer {
    agenda: Arc<Agenda>,
    held: Arc<Hold>,
    woken: bool,
    due: Option<Tick>,
}

impl Drop for NextTimer {
    fn drop(&mut self) {
        let due = self.due.unwrap_or_else(|| {
            // Nothing was asked of the store, or no answer came: the wake-up is still pending.
            self.held.woken.put_back(self.woken);
            let pause =
                pacing::renewal_retry(self.held.locker().renewal_pacing, self.held.limits().ttl, 0);
            self.held.locker().clock.now().after(pause)
        });
        self.agenda.schedule(&self.held, due.min(self.held.unclaimed_until()));
    }
}
