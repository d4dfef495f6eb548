//! Chooses the cases to measure, and estimates how long they take.

use std::time::Duration;

use crate::{
    report::{Case, Scenario},
    scenario,
};

/// One case, and the number of its rounds on each store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) scenario: Scenario,
    pub(crate) case: Case,
    pub(crate) rounds: u32,
}

/// The rounds of a case that takes seconds. More rounds would add little.
const LONG_ROUNDS: u32 = 3;

/// All cases, in the order in which they are measured. If `only` is not empty, it names the
/// scenarios to measure.
pub(crate) fn plan(is_quick: bool, rounds: u32, only: &[Scenario]) -> Vec<Planned> {
    let cases = if is_quick { quick() } else { full() };
    let wanted = |scenario: &Scenario| only.is_empty() || only.contains(scenario);
    let cases = cases.into_iter().filter(|(scenario, _)| wanted(scenario));
    let planned = cases.map(|(scenario, case)| {
        let most = match (scenario, is_quick) {
            (Scenario::IdleLocks | Scenario::Recovery, true) => 1,
            (Scenario::IdleLocks, false) => LONG_ROUNDS,
            _ => rounds,
        };
        Planned { scenario, case, rounds: rounds.min(most) }
    });
    planned.collect()
}

fn full() -> Vec<(Scenario, Case)> {
    let mut cases = independent();
    for hold in [0.0, 2.0] {
        for tasks in [2, 8, 64, 256] {
            for processes in [1, tasks.min(8)] {
                cases.push((Scenario::HotName, hot_name(tasks, processes, hold)));
            }
        }
    }
    cases.extend([2, 8, 64, 256].map(|tasks| (Scenario::HandOff, one_name(tasks))));
    cases.extend(shared());
    cases.extend([2, 64, 1_000].map(|tasks| (Scenario::Crowd, one_name(tasks))));
    cases.extend(alone(10_000));
    cases
}

fn quick() -> Vec<(Scenario, Case)> {
    let mut cases = independent();
    for (tasks, processes) in [(8, 1), (64, 1), (64, 8)] {
        cases.push((Scenario::HotName, hot_name(tasks, processes, 0.0)));
    }
    cases.push((Scenario::HandOff, one_name(8)));
    cases.extend(shared());
    cases.push((Scenario::Crowd, one_name(64)));
    cases.extend(alone(1_000));
    cases
}

/// Cases in which two tasks seldom want the same name.
fn independent() -> Vec<(Scenario, Case)> {
    let names = |tasks, names| Case {
        tasks: Some(tasks),
        names: Some(names),
        hold_ms: Some(0.0),
        ..Case::default()
    };
    vec![
        (Scenario::Uncontended, names(1, 1)),
        (Scenario::OwnNames, names(64, 64)),
        (Scenario::Zipf, names(64, 10_000)),
    ]
}

fn hot_name(tasks: u32, processes: u32, hold_ms: f64) -> Case {
    Case { processes: Some(processes), hold_ms: Some(hold_ms), ..one_name(tasks) }
}

fn one_name(tasks: u32) -> Case {
    Case { tasks: Some(tasks), names: Some(1), hold_ms: Some(0.0), ..Case::default() }
}

/// Cases in which several owners have the lock at once.
fn shared() -> Vec<(Scenario, Case)> {
    vec![
        (Scenario::ReadWrite, Case { readers_percent: Some(90), ..one_name(64) }),
        (Scenario::Semaphore, Case { permits: Some(4), ..one_name(32) }),
    ]
}

/// Cases that need few, long rounds.
fn alone(locks: u32) -> Vec<(Scenario, Case)> {
    vec![
        (Scenario::OpenLoop, Case { names: Some(64), ..Case::default() }),
        (Scenario::IdleLocks, Case { names: Some(locks), ttl_ms: Some(6_000), ..Case::default() }),
        (Scenario::Recovery, Case { ttl_ms: Some(2_000), names: Some(1), ..Case::default() }),
    ]
}

/// An estimate of the length of the whole plan, on this many stores with this many contenders each.
pub(crate) fn estimate(
    plan: &[Planned],
    stores: u32,
    contenders: u32,
    slice: Duration,
) -> Duration {
    let rounds = |planned: &Planned| match planned.scenario {
        Scenario::IdleLocks => {
            Duration::from_secs(10) + Duration::from_micros(500) * planned.case.names.unwrap_or(0)
        }
        Scenario::Recovery => Duration::from_millis(3_500),
        Scenario::OpenLoop => slice * 8,
        // These cover a warm-up of a quarter slice, the slice, the last waiters, and the floor.
        _ if planned.case.processes > Some(1) => slice * 3 + Duration::from_millis(400),
        _ => slice * 3,
    };
    let others = |planned: &Planned| match scenario::contenders(planned.scenario, &planned.case) {
        // These cover a warm-up of a quarter slice, the slice, and the last waiters.
        Some(_) => slice * 3 / 2 * contenders,
        None => Duration::ZERO,
    };
    plan.iter().map(|planned| (rounds(planned) + others(planned)) * planned.rounds * stores).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Scenario; 11] = [
        Scenario::Uncontended,
        Scenario::OwnNames,
        Scenario::Zipf,
        Scenario::HotName,
        Scenario::HandOff,
        Scenario::ReadWrite,
        Scenario::Semaphore,
        Scenario::Crowd,
        Scenario::IdleLocks,
        Scenario::Recovery,
        Scenario::OpenLoop,
    ];

    #[test]
    fn every_scenario_is_in_both_plans() {
        for is_quick in [false, true] {
            let plan = plan(is_quick, 5, &[]);
            for scenario in ALL {
                assert!(plan.iter().any(|planned| planned.scenario == scenario), "{scenario:?}");
            }
            let mut seen = Vec::new();
            for planned in &plan {
                let key = (planned.scenario, planned.case.clone());
                assert!(!seen.contains(&key), "{key:?} is there twice");
                seen.push(key);
            }
        }
    }

    #[test]
    fn a_full_run_takes_at_most_25_minutes_and_a_quick_run_3() {
        let full = estimate(&plan(false, 5, &[]), 5, 1, Duration::from_millis(400));
        assert!(full <= Duration::from_secs(25 * 60), "{full:?}");
        let quick = estimate(&plan(true, 3, &[]), 5, 1, Duration::from_millis(100));
        assert!(quick <= Duration::from_secs(3 * 60), "{quick:?}");
    }

    #[test]
    fn a_choice_of_scenarios_leaves_out_the_others() {
        let plan = plan(false, 5, &[Scenario::Zipf]);
        assert_eq!(plan.len(), 1);
        assert_eq!((plan[0].scenario, plan[0].rounds), (Scenario::Zipf, 5));
    }
}
