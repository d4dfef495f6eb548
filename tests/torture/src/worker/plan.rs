//! The plan of a task for one claim. The task makes it before any request, so the same seed makes
//! the same plans for all answers of the store.

use std::time::Duration;

use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};

use super::locks::{Locks, PERMITS};
use crate::{
    history::{Lock, Mode, Patience, Renewal},
    workload::Workload,
};

const BY_HAND: f64 = 0.2;
const BOUNDED: f64 = 0.03;
/// The share of claims that oversleep, among the claims that renew by hand. Each of them delays
/// other claims for a whole lease.
const OVERSLEEPS: f64 = 0.1;
/// The share of long holds among the other claims.
const LONG: f64 = 0.01;

/// One claim, from the request to the rest after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) lock: Lock,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) renewal: Renewal,
    pub(super) patience: Patience,
    pub(super) max_hold: Option<Duration>,
    pub(super) op_timeout: Option<Duration>,
    /// Whether the holder also listens for the loss signal during its work, and does not only
    /// check.
    pub(super) listens: bool,
    pub(super) steps: Vec<Step>,
    /// Whether the holder writes once more after it has learned of its loss.
    pub(super) obstinate: bool,
    pub(super) end: End,
    pub(super) rest: Duration,
}

/// One step of a holder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Check,
    /// Renews for this long, if the store supports it.
    Extend(Duration),
    /// Writes notes in sequence for this long, if the store has notes.
    Note(Duration),
    /// Stays idle until this long after the end of its lease, and then writes without a check.
    Oversleep(Duration),
    Renew,
    Sleep(Duration),
    /// Sleeps for long, with occasional checks.
    Work(Duration),
    /// Checks, and writes. Does nothing if the holder is not exclusive.
    Write,
}

/// The way in which a holder releases the lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Drop,
    Release,
    /// Drops the release if it takes longer than this.
    ReleaseWithin(Duration),
}

/// The plans of one task.
#[derive(Debug)]
pub(super) struct Planner {
    locks: Locks,
    ttls: Vec<Duration>,
    longest_hold: Duration,
    longest_rest: Duration,
    extends: bool,
    seeds: StdRng,
}

impl Planner {
    /// The plans for a store that offers no lease shorter than `min_ttl`, and that supports other
    /// leases than the ttl if `extends`.
    pub(super) fn new(
        locks: Locks,
        workload: &Workload,
        (min_ttl, extends): (Duration, bool),
        seeds: StdRng,
    ) -> Self {
        let mut ttls: Vec<_> = workload.ttls.iter().map(|ttl| *ttl.max(&min_ttl)).collect();
        if ttls.is_empty() {
            ttls.push(min_ttl.max(Duration::from_secs(1)));
        }
        let Workload { longest_hold, longest_rest, .. } = *workload;
        Self { locks, ttls, longest_hold, longest_rest, extends, seeds }
    }

    pub(super) fn next(&mut self) -> Plan {
        let rng = &mut StdRng::seed_from_u64(self.seeds.next_u64());
        let lock = self.locks.choose(rng).clone();
        let mode = match &lock {
            Lock::Mutex(_) => Mode::Exclusive,
            Lock::RwLock(_) if rng.random_bool(0.4) => Mode::Exclusive,
            Lock::RwLock(_) => Mode::Shared,
            // The plan chooses all permits as often as one permit.
            Lock::Semaphore { .. } => Mode::Permits(rng.random_range(1..=PERMITS)),
        };
        let ttl = self.ttls[rng.random_range(0..self.ttls.len())];
        let renewal = if rng.random_bool(BY_HAND) { Renewal::Manual } else { Renewal::Auto };
        let max_hold = rng.random_bool(BOUNDED).then(|| ttl + up_to(rng, ttl / 2));
        Plan {
            lock,
            mode,
            ttl,
            renewal,
            patience: patience(rng, ttl),
            max_hold,
            op_timeout: rng.random_bool(0.1).then(|| ttl / rng.random_range(2..12)),
            listens: rng.random_bool(0.5),
            steps: self.steps(rng, ttl, renewal, max_hold),
            obstinate: rng.random_bool(0.5),
            end: match rng.random_range(0..20) {
                0..4 => End::Drop,
                4 => End::ReleaseWithin(up_to(rng, Duration::from_millis(2))),
                _ => End::Release,
            },
            rest: up_to(rng, self.longest_rest),
        }
    }

    fn steps(
        &self,
        rng: &mut StdRng,
        ttl: Duration,
        renewal: Renewal,
        max_hold: Option<Duration>,
    ) -> Vec<Step> {
        let number = rng.random_range(0..=5);
        let mut steps: Vec<_> = (0..number).map(|_| self.step(rng, ttl)).collect();
        match (renewal, max_hold) {
            // By then most other holders have written.
            (Renewal::Manual, _) if rng.random_bool(OVERSLEEPS) => {
                steps.push(Step::Oversleep(up_to(rng, ttl / 2)));
            }
            (Renewal::Auto, Some(max)) if rng.random_bool(0.5) => {
                steps.push(Step::Work(max + ttl / 4))
            }
            (Renewal::Auto, None) if rng.random_bool(LONG) => {
                let busy = rng.random_bool(0.5);
                let time = up_to(rng, ttl);
                let long = if busy { Step::Note(ttl + time) } else { Step::Work(ttl / 2 + time) };
                steps.extend([long, Step::Write]);
            }
            (Renewal::Auto | Renewal::Manual, _) => {}
        }
        steps
    }

    fn step(&self, rng: &mut StdRng, ttl: Duration) -> Step {
        match rng.random_range(0..20) {
            0 => Step::Renew,
            1 if self.extends => Step::Extend(ttl / 2 + up_to(rng, ttl)),
            2..5 => Step::Check,
            5..12 => Step::Sleep(up_to(rng, self.longest_hold / 2)),
            _ => Step::Write,
        }
    }
}

fn patience(rng: &mut StdRng, ttl: Duration) -> Patience {
    match rng.random_range(0..20) {
        0..4 => Patience::No,
        4..10 => Patience::For(up_to(rng, ttl)),
        10..14 => Patience::UntilDropped(up_to(rng, ttl)),
        // This is about one or two round trips, so the drop happens during a request.
        14..16 => Patience::UntilDropped(up_to(rng, Duration::from_millis(2))),
        _ => Patience::Unbounded,
    }
}

fn up_to(rng: &mut StdRng, longest: Duration) -> Duration {
    rng.random_range(Duration::ZERO..=longest)
}

/// The random source of a task.
pub(super) fn seeds(seed: u64, process: u32, task: u32) -> StdRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&process.to_le_bytes());
    bytes[12..16].copy_from_slice(&task.to_le_bytes());
    StdRng::from_seed(bytes)
}

#[cfg(test)]
mod tests {
    use lockkit::Locker;

    use super::*;

    fn plans(seed: u64, process: u32, task: u32, min_ttl: Duration) -> Vec<Plan> {
        let workload = Workload::new(1, 1);
        let locks = Locks::of(&workload, &Locker::memory()).unwrap();
        let mut planner =
            Planner::new(locks, &workload, (min_ttl, true), seeds(seed, process, task));
        (0..2_000).map(|_| planner.next()).collect()
    }

    #[test]
    fn equal_seeds_make_equal_plans_for_all_and_different_seeds_different_ones() {
        let plans = |seed, process, task| plans(seed, process, task, Duration::ZERO);
        assert_eq!(plans(1, 2, 3), plans(1, 2, 3));
        for other in [plans(2, 2, 3), plans(1, 3, 3), plans(1, 2, 4)] {
            assert_ne!(plans(1, 2, 3), other);
        }
    }

    #[test]
    fn plans_contain_every_kind_of_step() {
        let plans = plans(7, 1, 1, Duration::ZERO);
        let some =
            |what: &str, is: &dyn Fn(&Plan) -> bool| assert!(plans.iter().any(is), "no {what}");
        let steps = |step: fn(&Step) -> bool| move |plan: &Plan| plan.steps.iter().any(step);
        some("reader", &|plan| plan.mode == Mode::Shared);
        some("writer", &|plan| {
            matches!((&plan.lock, plan.mode), (Lock::RwLock(_), Mode::Exclusive))
        });
        some("taker of all permits", &|plan| plan.mode == Mode::Permits(PERMITS));
        some("extension", &steps(|step| matches!(step, Step::Extend(_))));
        some("writer of notes", &steps(|step| matches!(step, Step::Note(_))));
        some("long hold", &steps(|step| matches!(step, Step::Work(_))));
        some("renewal by hand", &steps(|step| matches!(step, Step::Renew)));
        some("oversleeper", &steps(|step| matches!(step, Step::Oversleep(_))));
        let longer = |plan: &Plan, step: &Step| matches!(step, Step::Work(time) if plan.max_hold.is_some_and(|max| max < *time));
        some("hold beyond its bound", &|plan| plan.steps.iter().any(|step| longer(plan, step)));
        some("unbounded wait", &|plan| plan.patience == Patience::Unbounded);
        some("dropped release", &|plan| matches!(plan.end, End::ReleaseWithin(_)));
    }

    #[test]
    fn options_keep_their_relations_with_long_leases() {
        let least = Duration::from_secs(4);
        for plan in plans(7, 1, 1, least) {
            assert!(plan.ttl >= least, "{plan:?}");
            assert!(plan.max_hold.is_none_or(|max| max >= plan.ttl), "{plan:?}");
            assert!(plan.op_timeout.is_none_or(|op| op <= plan.ttl / 2), "{plan:?}");
            let oversleeps = plan.steps.iter().any(|step| matches!(step, Step::Oversleep(_)));
            assert!(!oversleeps || plan.renewal == Renewal::Manual, "{plan:?}");
        }
    }
}
