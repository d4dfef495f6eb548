//! Runs all cases on all stores in turn, round by round.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rand::RngExt as _;
use tokio::time::timeout;

use crate::{
    children::Children,
    error::{Error, Result},
    floor::Rival,
    host::host,
    options::{Options, name_of},
    plan::{self, Planned},
    report::{Metric, Outcome, Report, SCHEMA, Scenario, Side, Verdict},
    sample::{Rounds, Sample, float},
    scenario::{self, Turn},
    target::Target,
    usage,
};

/// The bound for a slice without another bound. It ends a slice in which a store no longer grants,
/// and many tasks wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The additional time for each lock of a case that takes many locks in turn, holds them, and
/// releases them, on a slow store.
const PATIENCE_EACH: Duration = Duration::from_millis(20);
/// The time to release locks when a run ends.
const FAREWELL: Duration = Duration::from_secs(15);
/// The share of the slowest store's highest rate. No store builds up a queue at this rate.
const OPEN_LOOP_SHARE: f64 = 0.3;

/// Receives the progress of a run.
pub trait Progress: Send + Sync {
    /// All stores are connected, and the measurements begin.
    fn begins(&self, steps: u64);

    /// The next step begins: a case, its round and the number of rounds, and the store.
    fn step(&self, what: &str);

    /// The run is over, with or without an error.
    fn ends(&self);

    /// The run is done, but with a problem: for example, it left keys in a store.
    fn warns(&self, what: &str) {
        let _ = what;
    }
}

/// Measures all stores, until the work is done or `stop` completes.
///
/// If a case fails on a store, the report contains the error, and the run continues. When `stop`
/// completes, the run ends its child processes and releases its locks before it returns. If a lock
/// can't be released, the run calls [`Progress::warns`] and returns no error.
///
/// # Errors
/// The run can't reach a store at the start, the peer can't be measured on any store, or `stop`
/// completed.
///
/// # Cancel safety
/// Not cancel safe: the locks remain until their leases end. Let `stop` complete instead.
pub async fn run(
    options: &Options,
    progress: &dyn Progress,
    stop: impl Future<Output = ()>,
) -> Result<Report> {
    if options.addresses.is_empty() || options.rounds == 0 || options.slice.is_zero() {
        return Err(Error::new(
            "there is nothing to measure; give at least one URL, and rounds and slices above zero",
        ));
    }
    if let Some(peer) = options.peer {
        peer.check(options.addresses.iter().map(|address| &*address.url))?;
    }
    let children = Children::new(options.worker.clone());
    let mut targets = Vec::new();
    tokio::pin!(stop);
    let outcome = tokio::select! {
        outcome = measure(options, progress, &children, &mut targets) => outcome,
        () = stop => Err(Error::new("the run was stopped before its end, so it wrote no report")),
    };
    progress.ends();
    children.all_ended().await;
    for target in &targets {
        match timeout(FAREWELL, target.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => progress.warns(&error.to_string()),
            Err(_) => progress.warns(&format!(
                "could not clean up {} within {}; locks end with their leases, but names and \
                 tables of the bare driver (lockkit-bench… and lockkit_bench…) may remain",
                target.store.url,
                humantime::format_duration(FAREWELL)
            )),
        }
    }
    outcome
}

async fn measure(
    options: &Options,
    progress: &dyn Progress,
    children: &Children,
    targets: &mut Vec<Target>,
) -> Result<Report> {
    let started_at = Timestamp::now();
    let start = Instant::now();
    let host = host();
    for address in &options.addresses {
        let taken: Vec<_> = targets.iter().map(|target| target.store.id.clone()).collect();
        targets.push(Target::connect(address, &taken, options.peer).await?);
    }
    let plan = options.plan();
    let rounds: u64 = plan.iter().map(|planned| u64::from(planned.rounds)).sum();
    progress.begins(rounds * u64::try_from(targets.len()).unwrap_or(u64::MAX));
    let run = Run {
        targets: &*targets,
        children,
        slice: options.slice,
        namespace: format!("lockkit-bench/{:012x}", rand::rng().random::<u64>() >> 16),
        cases: plan.len(),
        progress,
    };
    let mut outcomes = Vec::new();
    let mut used_rate = None;
    for (number, mut planned) in plan.into_iter().enumerate() {
        if planned.scenario == Scenario::OpenLoop {
            let rate = match options.rate_per_second {
                Some(rate) => Ok(rate),
                None => run.rate(&outcomes).await,
            };
            match rate {
                Ok(rate) => used_rate = Some(rate),
                Err(error) => {
                    outcomes.extend(run.failed(&planned, &error));
                    continue;
                }
            }
            planned.case.rate_per_second = used_rate;
        }
        outcomes.extend(run.case(number, &planned).await?);
    }
    Ok(Report {
        schema: SCHEMA,
        lockkit: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command(used_rate),
        started_at: to_the_second(started_at),
        took_seconds: start.elapsed().as_secs_f64(),
        rounds: options.rounds,
        slice_seconds: options.slice.as_secs_f64(),
        is_quick: options.is_quick,
        host,
        stores: targets.iter().map(|target| target.store.clone()).collect(),
        outcomes,
    })
}

/// The time in whole seconds.
fn to_the_second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

struct Run<'a> {
    targets: &'a [Target],
    children: &'a Children,
    slice: Duration,
    namespace: String,
    /// The number of cases in the plan.
    cases: usize,
    progress: &'a dyn Progress,
}

/// One side's part in a case, on one store.
struct Part<'a> {
    target: &'a Target,
    /// The rival and the number of its clients; `None` for lockkit.
    rival: Option<(&'a Rival, u32)>,
    rounds: Rounds,
}

impl Part<'_> {
    fn side(&self) -> Side {
        self.rival.map_or(Side::Lockkit, |(rival, _)| rival.side)
    }

    async fn work(&self, turn: &Turn<'_>) -> Result<Sample> {
        match self.rival {
            None => scenario::lockkit(turn).await,
            Some((rival, clients)) => scenario::rival(turn, rival, clients).await,
        }
    }
}

/// The processor time that each side has used so far.
struct CpuTimes {
    client: Option<Duration>,
    server: Option<Duration>,
}

impl CpuTimes {
    async fn of(target: &Target) -> Self {
        let server = target.server_cpu_time().await;
        Self { client: usage::cpu_time().ok(), server }
    }

    /// Records the cost of each grant since the start.
    async fn per_grant(self, target: &Target, sample: &mut Sample) {
        if sample.all_grants == 0 {
            return;
        }
        let grants = float(sample.all_grants);
        let now = Self::of(target).await;
        let sides = [
            (Metric::ClientCpuUs, self.client, now.client),
            (Metric::ServerCpuUs, self.server, now.server),
        ];
        for (metric, from, until) in sides {
            if let (Some(from), Some(until)) = (from, until) {
                sample.put(metric, until.saturating_sub(from).as_secs_f64() * 1e6 / grants);
            }
        }
    }
}

impl Run<'_> {
    /// Measures one case on all stores, in turn: lockkit and its rivals on the first store, then on
    /// the second, and so on. Each round repeats this.
    async fn case(&self, number: usize, planned: &Planned) -> Result<Vec<Outcome>> {
        let name = format!("{}/{}-{number}", self.namespace, name_of(planned.scenario));
        let place = place(number, self.cases);
        let case = shown(planned);
        let mut parts = self.parts(planned)?;
        let warm_up = u32::from(!scenario::has_own_warm_up(planned.scenario, &planned.case));
        for round in (1 - warm_up)..=planned.rounds {
            // The first round, number 0, opens connections and fills caches. The run discards its
            // results.
            let slice = if round == 0 { self.slice / 4 } else { self.slice };
            for index in turns(round, parts.len()) {
                let Some(part) = parts.get_mut(index) else { continue };
                if round > 0 && part.rival.is_none() {
                    let rounds = planned.rounds;
                    let store = &part.target.store.id;
                    self.progress
                        .step(&format!("{place}{case}, round {round} of {rounds}, {store}"));
                }
                if part.rounds.has_ended() {
                    continue;
                }
                let turn = Turn {
                    target: part.target,
                    scenario: planned.scenario,
                    case: &planned.case,
                    name: &name,
                    slice,
                    children: self.children,
                };
                let sample = self.counted(part, &turn, bound(planned, slice)).await;
                keep(&mut part.rounds, round, sample)?;
            }
        }
        let outcome = |part: Part<'_>| Outcome {
            scenario: planned.scenario,
            case: planned.case.clone(),
            store: part.target.store.id.clone(),
            side: part.side(),
            verdict: part.rounds.into_verdict(),
        };
        Ok(parts.into_iter().map(outcome).collect())
    }

    /// The parts of all sides of this case, store by store, with lockkit's part first. A part that
    /// can't be measured contains the reason already.
    fn parts(&self, planned: &Planned) -> Result<Vec<Part<'_>>> {
        let mut parts = Vec::new();
        for target in self.targets {
            let rivals = target.rivals.iter().filter_map(|rival| {
                let clients = scenario::clients(rival.side, planned.scenario, &planned.case)?;
                Some((rival, clients))
            });
            for rival in std::iter::once(None).chain(rivals.map(Some)) {
                let mut rounds = Rounds::new()?;
                if let Some(reason) = scenario::obstacle(planned.scenario, &planned.case, target) {
                    rounds.does_not_apply(reason);
                }
                if let Some(reason) = rival.and_then(|(rival, _)| rival.absence()) {
                    rounds.does_not_apply(reason);
                }
                parts.push(Part { target, rival, rounds });
            }
        }
        Ok(parts)
    }

    /// Does the work of a part within bounds, and counts the server's requests for each grant.
    async fn counted(&self, part: &Part<'_>, turn: &Turn<'_>, bound: Duration) -> Result<Sample> {
        let target = part.target;
        let before = target.requests().await;
        // One process does all the work of these scenarios.
        let used = match turn.scenario {
            Scenario::Uncontended | Scenario::OwnNames => Some(CpuTimes::of(target).await),
            _ => None,
        };
        let done = timeout(bound, part.work(turn)).await.unwrap_or_else(|_| {
            Err(Error::new(format!(
                "the measurement did not end within {}",
                humantime::format_duration(bound)
            )))
        });
        if done.is_err() {
            // Children that still release their locks would disturb the next measurement.
            self.children.all_ended().await;
        }
        let mut sample = done?;
        if let Some(used) = used {
            used.per_grant(target, &mut sample).await;
        }
        let after = match sample.counted_until {
            Some(count) => Some(count),
            None => target.requests().await,
        };
        // The count leaves out commands that lockkit's scripts call, such as SET, and a contender
        // may send those as requests.
        if let (Some(before), Some(after)) = (sample.counted_from.or(before), after)
            && matches!(part.side(), Side::Lockkit | Side::Floor)
            && sample.all_grants > 0
        {
            let each = float(after.saturating_sub(before)) / float(sample.all_grants);
            sample.put(Metric::RequestsPerGrant, each);
        }
        Ok(sample)
    }

    /// The outcomes of a case that could not start.
    fn failed(&self, planned: &Planned, error: &Error) -> Vec<Outcome> {
        let outcome = |target: &Target| Outcome {
            scenario: planned.scenario,
            case: planned.case.clone(),
            store: target.store.id.clone(),
            side: Side::Lockkit,
            verdict: Verdict::Failed { reason: error.to_string() },
        };
        self.targets.iter().map(outcome).collect()
    }

    /// A share of the rate that one client of the bare driver reaches on the slowest store. Where
    /// there is no bare driver, lockkit's rate counts.
    async fn rate(&self, outcomes: &[Outcome]) -> Result<f64> {
        let mut known = outcomes.to_vec();
        if !known.iter().any(|outcome| outcome.scenario == Scenario::Uncontended) {
            let planned = plan::plan(true, 1, &[Scenario::Uncontended]);
            for planned in &planned {
                known.extend(self.case(usize::MAX, planned).await?);
            }
        }
        let slowest = self
            .targets
            .iter()
            .filter_map(|target| fastest(&known, &target.store.id))
            .min_by(f64::total_cmp);
        let slowest =
            slowest.ok_or_else(|| Error::new("no store completed the uncontended case"))?;
        Ok(two_digits(slowest * OPEN_LOOP_SHARE).max(1.0))
    }
}

/// The parts in the order of their turns. Every second round has the opposite order. Otherwise a
/// machine that slowly gets faster or slower would always favor the same parts.
fn turns(round: u32, parts: usize) -> Vec<usize> {
    let mut turns: Vec<_> = (0..parts).collect();
    if round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

/// The maximum length of one turn.
fn bound(planned: &Planned, slice: Duration) -> Duration {
    let each = match planned.scenario {
        Scenario::IdleLocks => PATIENCE_EACH * planned.case.names.unwrap_or(0),
        _ => Duration::ZERO,
    };
    PATIENCE + slice * 10 + each
}

fn keep(rounds: &mut Rounds, round: u32, sample: Result<Sample>) -> Result<()> {
    match sample {
        Ok(_) if round == 0 => Ok(()),
        Ok(sample) => rounds.add(&sample),
        Err(error) => {
            rounds.failed(error.to_string());
            Ok(())
        }
    }
}

/// The pairs per second of one task on a store, by the bare driver if the store has one.
fn fastest(outcomes: &[Outcome], store: &str) -> Option<f64> {
    let of = |side| {
        outcomes
            .iter()
            .find(|outcome| {
                outcome.scenario == Scenario::Uncontended
                    && outcome.store == store
                    && outcome.side == side
            })
            .and_then(|outcome| outcome.series(Metric::GrantsPerSecond)?.median())
    };
    of(Side::Floor).or_else(|| of(Side::Lockkit))
}

/// The value rounded to two digits, which a user can easily type again.
fn two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    (value / unit).round() * unit
}

/// The number of the case and the count of cases, such as `2/13`. A case that is measured only for
/// another case has no number.
fn place(number: usize, cases: usize) -> String {
    if number < cases { format!("{}/{cases} ", number + 1) } else { String::new() }
}

/// A short description of a case.
fn shown(planned: &Planned) -> String {
    let case = &planned.case;
    let mut words = vec![name_of(planned.scenario)];
    words.extend(
        case.tasks
            .map(|tasks| if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }),
    );
    words.extend(
        case.processes.filter(|count| *count > 1).map(|count| format!("{count} processes")),
    );
    words.extend(case.hold_ms.filter(|ms| *ms > 0.0).map(|ms| format!("held {ms} ms")));
    words.extend(case.rate_per_second.map(|rate| format!("{rate}/s")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_to_two_digits() {
        for (value, rounded) in [(4_567.0, 4_600.0), (0.123, 0.12), (99.6, 100.0), (7.0, 7.0)] {
            assert!((two_digits(value) - rounded).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn the_start_of_a_run_has_whole_seconds() {
        let time: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        assert_eq!(to_the_second(time), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn cases_are_numbered_from_one() {
        let cases = plan::plan(true, 3, &[]).len();
        assert_eq!(
            [0, cases - 1, usize::MAX].map(|number| place(number, cases)),
            ["1/13 ", "13/13 ", ""]
        );
    }

    #[test]
    fn turns_are_taken_in_the_opposite_order_every_other_round() {
        assert_eq!([1, 2, 3].map(|round| turns(round, 3)), [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
    }

    #[test]
    fn ten_thousand_locks_get_more_time_than_one() {
        let of = |scenario| {
            let planned = plan::plan(false, 5, &[scenario]);
            bound(&planned[0], Duration::from_millis(400))
        };
        assert!(of(Scenario::IdleLocks) > of(Scenario::HotName) + Duration::from_secs(100));
    }
}
