//! The plan of a run, and the run: each case × store × lock is a line of the report.

use std::{collections::BTreeSet, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Trial};

use crate::{case::Case, cases, execute::execute, harness::Store, lanes, lock::Flavor};

/// Runs every case that fits on every store, with the arguments of the command line, and says how it went.
///
/// The whole test file of a backend is a `main` that returns this.
#[must_use]
pub fn main(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> ExitCode {
    run(stores, Locks::All, false)
}

/// As [`main()`], and fails if a case fits none of the stores: for lockkit's own runs, whose stores cover every case.
#[must_use]
pub fn main_covering_all(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> ExitCode {
    run(stores, Locks::All, true)
}

/// As [`main()`], and runs each case on the first lock only that it is for: a third of the time, for stores whose locks
/// are checked one by one elsewhere.
#[must_use]
pub fn main_on_one_lock(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> ExitCode {
    run(stores, Locks::First, false)
}

/// On which of a store's locks a case is run.
#[derive(Clone, Copy)]
enum Locks {
    All,
    First,
}

fn run(stores: impl IntoIterator<Item = Arc<dyn Store>>, locks: Locks, covering_all: bool) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The leak oracle counts what the whole process has open.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    let mut covered = BTreeSet::new();
    for store in stores {
        for planned in plan(&*store, locks) {
            if let Planned::Run(case, _) = planned {
                covered.insert(case.name);
            }
            trials.push(trial(&store, planned));
        }
    }
    if covering_all {
        trials.push(Trial::test("suite::every_case_fits_some_store", move || {
            let uncovered: Vec<_> =
                cases::all().map(|case| case.name).filter(|name| !covered.contains(name)).collect();
            if uncovered.is_empty() { Ok(()) } else { Err(uncovered.join(", ").into()) }
        }));
    }
    let mut place = 0..;
    trials.retain(|_| place.next().is_some_and(lanes::is_ours));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What becomes of a case on a store.
enum Planned {
    NotApplicable(Case, String),
    Run(Case, Flavor),
}

fn plan(store: &dyn Store, locks: Locks) -> Vec<Planned> {
    let (descriptor, hooks) = (store.descriptor(), store.hooks());
    let mut planned = Vec::new();
    for case in cases::all() {
        let flavors = case.needs.flavors(&descriptor.capabilities);
        if flavors.is_empty() {
            planned.push(Planned::NotApplicable(case, case.needs.missing_capability().to_owned()));
        } else if let Some(reason) = case.needs.obstacle(&descriptor, &hooks) {
            planned.push(Planned::NotApplicable(case, reason));
        } else {
            let count = if matches!(locks, Locks::First) || store.is_twin() { 1 } else { flavors.len() };
            planned.extend(flavors.into_iter().take(count).map(|flavor| Planned::Run(case, flavor)));
        }
    }
    planned
}

fn trial(store: &Arc<dyn Store>, planned: Planned) -> Trial {
    let name = store.name().to_owned();
    match planned {
        Planned::NotApplicable(case, reason) => {
            Trial::ignorable_test(format!("{name}::{}", case.name), move || {
                Ok(Completion::ignored_with(format!("not applicable: {reason}")))
            })
        }
        Planned::Run(case, flavor) => {
            let name = match flavor {
                Flavor::Mutex => format!("{name}::{}", case.name),
                _ => format!("{name}::{flavor}::{}", case.name),
            };
            let store = Arc::clone(store);
            Trial::test(name, move || Ok(execute(case, &store, flavor)?))
        }
    }
}

/// Runs one case, by name, over the store's first lock that fits; for tests of the suite itself.
///
/// # Errors
/// Why the case failed, or that there is no such case for this store.
pub fn run_case(store: &Arc<dyn Store>, name: &str) -> Result<(), String> {
    let case = plan(&**store, Locks::First).into_iter().find_map(|planned| match planned {
        Planned::Run(case, flavor) if case.name == name => Some((case, flavor)),
        _ => None,
    });
    let (case, flavor) = case.ok_or_else(|| format!("{name} is no case for {}", store.name()))?;
    execute(case, store, flavor)
}
