//! The times at which work is due: every pause between attempts and every instant of a renewal.

use std::time::Duration;

use crate::{
    chance::between,
    clock::Tick,
    options::MAX_TTL,
    spi::{Poll, RenewalPacing},
};

/// A lock that was handed to a task which does not look at it is given back after this time.
pub(super) const UNCLAIMED: Duration = Duration::from_secs(1);

/// Leaving a queue inline may take this long beyond the wait bound, or two round trips if that is
/// more.
pub(super) const LEAVING: Duration = Duration::from_millis(5);
/// How long before the bound the last attempt begins, on a store that answers at once. tokio's
/// timers may be a millisecond late.
const LEAST_RESERVE: Duration = Duration::from_millis(2);
/// The shortest pause between two attempts, whatever the store says.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// A lease that is much shorter than its ttl is renewed after this time.
const MADE_WHOLE: Duration = Duration::from_millis(50);

/// How often a task in line checks for a turn that it got because time passed. With more tasks
/// ahead it checks less often.
const LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(4);
/// With fewer tasks ahead than this, a task checks as often as one that is first.
const FEW: usize = 64;

/// Holds that are renewed together are due at multiples of a quarter of their interval. So a hold
/// may be due up to a quarter early.
const SLOTS: u32 = 4;

/// The pause before the next attempt of a waiter that nothing wakes.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(poll: Poll) -> Self {
        // Above that bound no user sees a difference, and a longer pause could not be jittered.
        let max = poll.max.min(MAX_TTL);
        Self { pause: poll.min.min(max), max }
    }

    /// The present pause, ±25 %, so that waiters that started together drift apart.
    pub(crate) fn jittered(&self) -> Duration {
        between(self.pause, 0.75, 1.25)
    }

    pub(crate) fn grow(&mut self) {
        self.pause = (self.pause * 2).min(self.max);
    }
}

/// When a hold that was granted or renewed at `now` is due: after a third of the rest of its lease,
/// spread by jitter.
pub(super) fn next_renewal(
    RenewalPacing { longest, together }: RenewalPacing,
    ttl: Duration,
    lease_end: Tick,
    now: Tick,
) -> Tick {
    let lease = ttl.min(now.until(lease_end));
    let due = now.after(between((lease / 3).min(longest), 0.9, 1.0));
    // The slot depends on the ttl and not on the rest of the lease, so that unrelated holds share
    // the slots.
    let slot = due.rounded_down((ttl / 3).min(longest) / SLOTS);
    // A lease that is shorter than a slot must not be renewed again and again until the slot ends.
    if together && slot > now { slot } else { due }
}

/// The pause after a renewal whose outcome is unknown, when `failures_before` others failed before
/// it. It is short, but it grows, to spare a store that recovers.
pub(super) fn renewal_retry(
    renewal_pacing: RenewalPacing,
    ttl: Duration,
    failures_before: u8,
) -> Duration {
    let pause = ttl / 24 * (1 << failures_before.min(2));
    pause.min(renewal_pacing.longest)
}

/// When a grant at `now` is due if its lease is much shorter than its ttl, as after a transfer:
/// soon. [`Tick::NEVER`] for a whole lease.
pub(super) fn made_whole(ttl: Duration, lease_end: Tick, now: Tick) -> Tick {
    if now.until(lease_end) < ttl / 2 { now.after(MADE_WHOLE) } else { Tick::NEVER }
}

/// How long before the bound the last attempt begins, so that it ends before the bound.
pub(super) fn last_reserve(round_trip: Duration) -> Duration {
    LEAST_RESERVE.max(round_trip * 2)
}

/// How long leaving a queue may take beyond the bound.
pub(super) fn leaving(round_trip: Duration) -> Duration {
    LEAVING.max(round_trip * 2)
}

/// How often a task with `ahead` others before it in line checks for its turn.
pub(super) fn look_in_line(ahead: usize) -> Duration {
    let crowds = u32::try_from(ahead / FEW).unwrap_or(u32::MAX);
    LOOK.saturating_mul(crowds.saturating_add(1)).min(LONGEST_LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_are_jittered_by_a_quarter() {
        let min = Duration::from_millis(10);
        let max = Duration::from_millis(35);
        let mut backoff = Backoff::new(Poll { min, max });
        for expected in [10_000, 20_000, 35_000, 35_000] {
            let drawn: Vec<_> = (0..100).map(|_| backoff.jittered().as_micros()).collect();
            assert!(
                drawn.iter().all(|us| (expected * 3 / 4..=expected * 5 / 4).contains(us)),
                "{drawn:?}"
            );
            assert!(drawn.iter().any(|us| *us != drawn[0]), "no jitter");
            backoff.grow();
        }
    }
    const NOW: Tick = Tick::from_nanos(1_000_000_000_007);
    const MANY: u32 = 2_000;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// The pauses until a hold is due, at many instants.
    fn pauses(
        renewal_pacing: RenewalPacing,
        ttl: Duration,
        left: Duration,
    ) -> impl Iterator<Item = Duration> {
        (0..MANY).map(move |step| {
            let now = NOW.after(ttl / 1_000 * step);
            now.until(next_renewal(renewal_pacing, ttl, now.after(left), now))
        })
    }

    #[test]
    fn c10_a_single_renewal_is_due_in_the_last_tenth_of_its_interval() {
        for (longest, interval) in
            [(Duration::MAX, secs(10)), (secs(10), secs(10)), (secs(4), secs(4))]
        {
            let alone = RenewalPacing { longest, together: false };
            let drawn: Vec<_> = pauses(alone, secs(30), secs(30)).collect();
            assert!(
                drawn.iter().all(|pause| (interval * 9 / 10..=interval).contains(pause)),
                "{interval:?}"
            );
            assert!(
                drawn.iter().max().unwrap().abs_diff(*drawn.iter().min().unwrap()) > interval / 20
            );
        }
    }

    #[test]
    fn c10_grouped_renewals_are_never_late_nor_much_too_early() {
        for (longest, interval) in
            [(Duration::MAX, secs(10)), (secs(4), secs(4)), (secs(1), secs(1))]
        {
            let together = RenewalPacing { longest, together: true };
            for pause in pauses(together, secs(30), secs(30)) {
                assert!(pause <= interval, "{pause:?} of {interval:?}");
                assert!(
                    pause > interval * 13 / 20 - Duration::from_micros(1),
                    "{pause:?} of {interval:?}"
                );
            }
        }
    }

    #[test]
    fn c10_together_holds_are_due_at_few_common_instants() {
        let together = RenewalPacing { longest: Duration::MAX, together: true };
        // Each round trip takes a different share of the lease.
        let due = |step| {
            let now = NOW.after(Duration::from_millis(15) * step);
            let left = Duration::from_millis(29_698) - Duration::from_micros(7) * step;
            next_renewal(together, secs(30), now.after(left), now)
        };
        let mut due: Vec<_> = (0..MANY).map(due).collect();
        due.sort();
        due.dedup();
        assert!(due.len() <= 14, "{} instants in 30 s", due.len());
    }

    #[test]
    fn c3_the_rest_of_a_lease_is_never_overslept_nor_renewed_in_a_loop() {
        for together in [false, true] {
            let renewal_pacing = RenewalPacing { longest: Duration::MAX, together };
            for left in [30, 300, 2_000, 7_000].map(Duration::from_millis) {
                let drawn: Vec<_> = pauses(renewal_pacing, secs(30), left).collect();
                assert!(
                    drawn.iter().all(|pause| !pause.is_zero() && *pause <= left / 3),
                    "{left:?}"
                );
                // A slot may begin soon after `now`, but that must be rare.
                let soon = drawn.iter().filter(|pause| **pause < left / 30).count();
                assert!(soon < drawn.len() / 10, "{soon} of {MANY} with {left:?} left");
            }
        }
    }

    #[test]
    fn c3_a_hold_without_a_deadline_is_renewed_by_its_ttl() {
        for together in [false, true] {
            let due = next_renewal(
                RenewalPacing { longest: Duration::MAX, together },
                secs(30),
                Tick::NEVER,
                NOW,
            );
            assert!((secs(6)..=secs(10)).contains(&NOW.until(due)), "{:?}", NOW.until(due));
        }
    }
}
