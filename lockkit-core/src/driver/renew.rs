//! Renewal: by the keeper when it is due, or by the user.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tracing::Instrument as _;

use super::{
    agenda::Chore,
    held::{Ending, Held, deadline_of},
    line::give_back_unclaimed,
    live::LiveClaim,
    within::within,
};
use crate::{
    chance::between,
    clock::Tick,
    error::{Error, ErrorKind, Result},
    observe::What,
    options::Renewal,
    spi::{Cadence, LossReason, Pulse},
};

/// Holds that are renewed together are due at multiples of this share of their interval: up to so much early.
const SLOTS: u32 = 4;

/// When a hold that was granted or renewed just now is due: after a third of what is left, spread by jitter.
pub(crate) fn first_due(held: &Held, now: Tick) -> Tick {
    match held.options.options.renewal() {
        Renewal::Auto => next_due(held.agenda.cadence, held.limits().ttl, held.lease_end(), now),
        Renewal::Manual => held.deadline(),
    }
}

fn next_due(Cadence { longest, together }: Cadence, ttl: Duration, deadline: Tick, now: Tick) -> Tick {
    let lease = ttl.min(now.until(deadline));
    let due = now.after(between((lease / 3).min(longest), 0.9, 1.0));
    // By the ttl, not by what is left: holds that never met share the slots.
    let slot = due.rounded_down((ttl / 3).min(longest) / SLOTS);
    // A lease that is shorter than a slot must not be renewed again and again until the slot is over.
    if together && slot > now { slot } else { due }
}

/// Works on a timer that came due: renews, notices a loss, or gives up what a shutdown found still held.
pub(crate) fn renew_due(held: Arc<Held>) -> impl Future<Output = ()> {
    // Made before the first poll: a runtime may end before that, and the timer must be found by the next keeper.
    work_on(NextTimer { held, rung: false, due: None })
}

async fn work_on(mut next: NextTimer) {
    let held = Arc::clone(&next.held);
    let clock = held.agenda.clock;
    let now = clock.now();
    if now >= held.unclaimed_until() || !held.stands_at(now) || held.agenda.is_draining() {
        give_back_unclaimed(&held);
    }
    next.rung = held.rung.begin_renewal();
    let draining = held.agenda.draining_since();
    if draining.is_some() && clock.now() >= held.agenda.closing_end(&held) {
        held.lose(LossReason::Closed);
    }
    if !held.is_held() {
        return left_over(&held);
    }
    let before = held.lease_end();
    let (mut slot, joined) = match held.slot.try_lock() {
        Ok(slot) => (slot, false),
        // A renewal by hand, a note, or the release. Joined, not waited for: a future that nobody polls may have it.
        Err(_) => {
            let patience = held.limits().op_timeout.min(clock.now().until(held.deadline()));
            match within(patience, held.slot.lock()).await {
                Some(slot) => (slot, true),
                None => return,
            }
        }
    };
    if joined && !held.is_held() {
        return left_over(&held);
    }
    let Some(claim) = slot.as_mut() else { return };
    let unknown = held.unknown_renewals.load(Relaxed) > 0;
    // Only a later end proves that what had the slot was a renewal, and was confirmed.
    let renewed = joined && held.lease_end() > before;
    let regular = match (held.options.options.renewal(), draining) {
        // A session has no deadline to end it: it must be looked after to the end.
        (_, Some(_)) if held.lease_end() != Tick::NEVER => false,
        (Renewal::Auto, _) => !renewed,
        (Renewal::Manual, _) => unknown, // a hint asked for a look that did not succeed yet
    };
    if !next.rung && !regular {
        let due = if draining.is_some() { Tick::NEVER } else { first_due(&held, clock.now()) };
        next.due = Some(due);
        return;
    }
    // A hint is a reason to look, but none to hold on for longer than the user wanted.
    let wish = if held.options.options.renewal() == Renewal::Manual { Wish::Look } else { Wish::Keep };
    match beat(&held, claim, wish).await {
        Ok(()) => next.due = Some(first_due(&held, clock.now())),
        Err(error) if error.kind() == ErrorKind::Lost => left_over(&held),
        Err(_) => {
            // C10: it neither extends the lease nor ends it. Soon again, but gently to a store that recovers.
            let streak = held.unknown_renewals.load(Relaxed);
            held.unknown_renewals.store(streak.saturating_add(1), Relaxed);
            let pause = held.limits().ttl / 24 * (1 << streak.min(2));
            next.due = Some(clock.now().after(pause.min(held.agenda.cadence.longest)));
        }
    }
}

/// Renews at the user's wish, for another time than the ttl if that is given; the keeper's timer follows.
///
/// # Errors
/// [`ErrorKind::Lost`] if the lock is lost; any other error means that the outcome is unknown.
pub(crate) async fn renew_now(held: Arc<Held>, lease: Option<Duration>) -> Result<()> {
    let outcome = match within(held.limits().op_timeout, held.slot.lock()).await {
        None => Err(Error::new(ErrorKind::Unavailable, "another renewal in flight did not end in time")),
        Some(mut slot) => match slot.as_mut() {
            Some(claim) if held.is_held() => {
                beat(&held, claim, lease.map_or(Wish::Renew, Wish::Extend)).await
            }
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
            Err(held.explain(error, if lease.is_none() { "renew" } else { "extend" }))
        }
    }
}

/// What a renewal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// A lease of this length.
    Extend(Duration),
    /// A lease of the ttl, as it is due.
    Keep,
    /// To hear whether the lock is still held.
    Look,
    /// A lease of the ttl, as the user asks for it.
    Renew,
}

impl Wish {
    fn operation(self) -> &'static str {
        match self {
            Self::Extend(_) => "extend",
            Self::Keep | Self::Look | Self::Renew => "renew",
        }
    }
}

/// One request for renewal, and what follows from its answer.
async fn beat(held: &Held, claim: &mut LiveClaim, wish: Wish) -> Result<()> {
    let (span, margin) = (held.renew_span(), held.remaining());
    let outcome = ask(held, claim, wish).instrument(span).await;
    match outcome {
        Ok(round_trip) => {
            let margin = margin.saturating_sub(round_trip);
            held.observe(|| What::Renewed { token: held.token(), margin });
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Lost => Err(error),
        Err(error) => {
            let error = held.explain(error, wish.operation());
            tracing::debug!(name = %held.name, "{error}");
            held.observe(|| What::RenewalFailed { error: &error });
            Err(error)
        }
    }
}

/// How long the request took.
async fn ask(held: &Held, claim: &mut LiveClaim, wish: Wish) -> Result<Duration> {
    let clock = held.agenda.clock;
    let asked = clock.now();
    let budget = held.limits().op_timeout.min(asked.until(held.deadline()));
    // A shorter time than what is left would take from what was confirmed (C2): no store knows what its holder was told.
    let kept = held.lease_left(asked);
    let lease = match wish {
        Wish::Extend(lease) => Some(lease.max(kept)),
        Wish::Keep | Wish::Look | Wish::Renew if held.agenda.extends && kept > held.limits().ttl => {
            Some(kept)
        }
        Wish::Keep | Wish::Look | Wish::Renew => None,
    };
    let known = if matches!(wish, Wish::Keep | Wish::Look) { claim.known_pulse() } else { None };
    let pulse = match (known, lease) {
        (Some(known), _) => known?,
        (None, None) => claim.keep_alive(budget).await?,
        (None, Some(lease)) => claim.extend(lease, budget).await?,
    };
    match pulse {
        Pulse::Alive(lease) => {
            // An answer that comes after the deadline is too late: somebody may have seen the lock as lost.
            if !held.is_held() {
                return Err(held.lost_error());
            }
            // A look takes what it hears of an earlier end, such as that of a quorum which has lost a member.
            if wish != Wish::Look || deadline_of(asked, lease) < held.lease_end() {
                held.extend(asked, lease);
            }
            held.unknown_renewals.store(0, Relaxed);
            Ok(asked.until(clock.now()))
        }
        Pulse::Lost(reason) => {
            held.lose(reason);
            Err(held.lost_error())
        }
    }
}

/// The lock is lost; the keeper frees early what is left of it in the store. One that was given back is its
/// releaser's, who wants to hear the outcome.
pub(super) fn left_over(held: &Arc<Held>) {
    if held.ending() == Some(Ending::GivenBack) {
        return;
    }
    held.agenda.retire(held, Some(Chore::Release(Arc::clone(held), None)));
}

/// Puts the timer back however the renewal ends, also when its runtime is shut down before it begins, or midway.
struct NextTimer {
    held: Arc<Held>,
    rung: bool,
    due: Option<Tick>,
}

impl Drop for NextTimer {
    fn drop(&mut self) {
        let due = self.due.unwrap_or_else(|| {
            // Nothing was asked of the store, or no answer came: the hint still stands.
            self.held.rung.put_back(self.rung);
            let pause = (self.held.limits().ttl / 24).min(self.held.agenda.cadence.longest);
            self.held.agenda.clock.now().after(pause)
        });
        self.held.agenda.schedule(&self.held, due.min(self.held.unclaimed_until()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Tick = Tick::from_nanos(1_000_000_000_007);
    const MANY: u32 = 2_000;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Pauses until a hold is due, at many instants.
    fn pauses(cadence: Cadence, ttl: Duration, left: Duration) -> impl Iterator<Item = Duration> {
        (0..MANY).map(move |step| {
            let now = NOW.after(ttl / 1_000 * step);
            now.until(next_due(cadence, ttl, now.after(left), now))
        })
    }

    #[test]
    fn c10_alone_it_is_due_within_the_last_tenth_of_a_third_or_of_the_longest() {
        for (longest, interval) in [(Duration::MAX, secs(10)), (secs(10), secs(10)), (secs(4), secs(4))] {
            let alone = Cadence { longest, together: false };
            let drawn: Vec<_> = pauses(alone, secs(30), secs(30)).collect();
            assert!(drawn.iter().all(|pause| (interval * 9 / 10..=interval).contains(pause)), "{interval:?}");
            assert!(drawn.iter().max().unwrap().abs_diff(*drawn.iter().min().unwrap()) > interval / 20);
        }
    }

    #[test]
    fn c10_together_it_is_never_late_nor_much_too_early() {
        for (longest, interval) in [(Duration::MAX, secs(10)), (secs(4), secs(4)), (secs(1), secs(1))] {
            let together = Cadence { longest, together: true };
            for pause in pauses(together, secs(30), secs(30)) {
                assert!(pause <= interval, "{pause:?} of {interval:?}");
                assert!(pause > interval * 13 / 20 - Duration::from_micros(1), "{pause:?} of {interval:?}");
            }
        }
    }

    #[test]
    fn c10_together_holds_are_due_at_few_common_instants() {
        let together = Cadence { longest: Duration::MAX, together: true };
        // Each round trip takes another share of the lease.
        let due = |step| {
            let now = NOW.after(Duration::from_millis(15) * step);
            let left = Duration::from_millis(29_698) - Duration::from_micros(7) * step;
            next_due(together, secs(30), now.after(left), now)
        };
        let mut due: Vec<_> = (0..MANY).map(due).collect();
        due.sort();
        due.dedup();
        assert!(due.len() <= 14, "{} instants in 30 s", due.len());
    }

    #[test]
    fn c3_what_is_left_of_a_lease_is_never_overslept_nor_renewed_in_a_loop() {
        for together in [false, true] {
            let cadence = Cadence { longest: Duration::MAX, together };
            for left in [30, 300, 2_000, 7_000].map(Duration::from_millis) {
                let drawn: Vec<_> = pauses(cadence, secs(30), left).collect();
                assert!(drawn.iter().all(|pause| !pause.is_zero() && *pause <= left / 3), "{left:?}");
                // A slot may begin soon, but only the next one is that near again.
                let soon = drawn.iter().filter(|pause| **pause < left / 30).count();
                assert!(soon < drawn.len() / 10, "{soon} of {MANY} with {left:?} left");
            }
        }
    }

    #[test]
    fn c3_a_hold_without_a_deadline_is_renewed_by_its_ttl() {
        for together in [false, true] {
            let due = next_due(Cadence { longest: Duration::MAX, together }, secs(30), Tick::NEVER, NOW);
            assert!((secs(6)..=secs(10)).contains(&NOW.until(due)), "{:?}", NOW.until(due));
        }
    }
}
