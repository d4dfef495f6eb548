//! Plans a run and runs it: each case × store × lock is a line of the report.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use libtest_mimic::{Arguments, Completion, Trial};

use crate::{
    case::Case,
    cases,
    execute::{Files, execute},
    harness::Store,
    lock::Flavor,
    oracle::Baseline,
};

/// How many cases run at once: a case waits most of its time.
const AT_ONCE: usize = 32;

/// Runs every case that fits on every store, with the arguments of the command line, and reports
/// the result.
///
/// The whole test file of a backend is a `main` that returns this.
#[must_use]
pub fn main(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> ExitCode {
    run(stores, Locks::All, false)
}

/// As [`main()`], and fails if a case fits none of the stores. lockkit's own runs use it, because
/// their stores cover every case.
#[must_use]
pub fn main_covering_all(
    stores: impl IntoIterator<Item = Arc<dyn Store>>,
    locks: Locks,
) -> ExitCode {
    run(stores, locks, true)
}

/// As [`main()`], and runs each case on one lock of each store, as [`Locks::InTurn`] describes.
/// This takes less than half the time.
#[must_use]
pub fn main_on_one_lock(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> ExitCode {
    run(stores, Locks::InTurn, false)
}

/// On which of a store's locks a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// On each lock that the case is for.
    All,
    /// On one of them: another lock for the next case, and another on the next store. So each lock
    /// of a store meets a share of the cases, and each case meets every lock on some store.
    InTurn,
}

fn run(
    stores: impl IntoIterator<Item = Arc<dyn Store>>,
    locks: Locks,
    covering_all: bool,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let at_once = *arguments.test_threads.get_or_insert(AT_ONCE);
    // Open files can only be counted for the whole process.
    let files = if at_once == 1 { Files::OfTheCase } else { Files::OfTheRun };
    let mut covered = BTreeSet::new();
    let mut of_stores = Vec::new();
    let sites = Sites::default();
    for (place, store) in stores.into_iter().enumerate() {
        let mut trials = Vec::new();
        for planned in plan(&*store, locks, place) {
            if let Planned::Run(case, _) = planned {
                covered.insert(case.name);
            }
            trials.push(trial(&store, planned, &sites, files));
        }
        of_stores.push(trials.into_iter());
    }
    let mut trials = in_turn(of_stores);
    if covering_all {
        trials.push(Trial::test("suite::every_case_fits_some_store", move || {
            let uncovered: Vec<_> =
                cases::all().map(|case| case.name).filter(|name| !covered.contains(name)).collect();
            if uncovered.is_empty() { Ok(()) } else { Err(uncovered.join(", ").into()) }
        }));
    }
    let baseline = Baseline::of_the_process();
    let conclusion = libtest_mimic::run(&arguments, trials);
    match baseline.check() {
        Err(leak) if files == Files::OfTheRun => {
            println!("C6: {leak} by the cases above; run with --test-threads=1 to see by which");
            ExitCode::FAILURE
        }
        _ => conclusion.exit_code(),
    }
}

/// Takes one trial of each store in turn, so that all stores work at once.
fn in_turn(mut of_stores: Vec<impl Iterator<Item = Trial>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    loop {
        let before = trials.len();
        trials.extend(of_stores.iter_mut().filter_map(Iterator::next));
        if trials.len() == before {
            return trials;
        }
    }
}

/// A case that disturbs all users of a site has the site to itself.
type Turns = Arc<RwLock<()>>;

/// The sites of all stores, by name.
#[derive(Clone, Default)]
struct Sites(Arc<Mutex<BTreeMap<String, Turns>>>);

impl Sites {
    fn turns(&self, store: &dyn Store) -> Turns {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sites.entry(store.site()).or_default())
    }
}

/// The plan for a case on a store.
enum Planned {
    NotApplicable(Case, String),
    Run(Case, Flavor),
}

/// The plan for the store that has this place among all stores.
fn plan(store: &dyn Store, locks: Locks, place: usize) -> Vec<Planned> {
    let descriptor = store.descriptor();
    let hooks = store.hooks();
    let mut planned = Vec::new();
    for (number, case) in cases::all().enumerate() {
        let flavors = case.needs.flavors(&descriptor.capabilities);
        if flavors.is_empty() {
            planned.push(Planned::NotApplicable(case, case.needs.missing_capability().to_owned()));
        } else if let Some(reason) = case.needs.obstacle(&descriptor, &hooks) {
            planned.push(Planned::NotApplicable(case, reason));
        } else {
            let (first, count) = match locks {
                _ if store.is_twin() => (0, 1),
                Locks::All => (0, flavors.len()),
                Locks::InTurn => ((number + place) % flavors.len(), 1),
            };
            let chosen = flavors.into_iter().skip(first).take(count);
            planned.extend(chosen.map(|flavor| Planned::Run(case, flavor)));
        }
    }
    planned
}

fn trial(store: &Arc<dyn Store>, planned: Planned, sites: &Sites, files: Files) -> Trial {
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
            let sites = sites.clone();
            Trial::test(name, move || {
                if case.needs.disturbs() {
                    let store = store.on_a_server_of_its_own()?.unwrap_or(store);
                    let turns = sites.turns(&*store);
                    let _alone = turns.write().unwrap_or_else(PoisonError::into_inner);
                    Ok(execute(case, &store, flavor, files)?)
                } else {
                    let turns = sites.turns(&*store);
                    let _beside_others = turns.read().unwrap_or_else(PoisonError::into_inner);
                    Ok(execute(case, &store, flavor, files)?)
                }
            })
        }
    }
}

/// Runs one case, by name, over the store's first lock that fits. Tests of the suite itself use it.
///
/// # Errors
/// The case failed, with the reason; or this store has no such case.
pub fn run_case(store: &Arc<dyn Store>, name: &str) -> Result<(), String> {
    let case = plan(&**store, Locks::All, 0).into_iter().find_map(|planned| match planned {
        Planned::Run(case, flavor) if case.name == name => Some((case, flavor)),
        _ => None,
    });
    let (case, flavor) = case.ok_or_else(|| format!("{name} is no case for {}", store.name()))?;
    execute(case, store, flavor, Files::OfTheCase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::MemoryStore;

    /// The cases with their locks, for a store at this place.
    fn chosen(place: usize) -> BTreeMap<&'static str, Vec<String>> {
        let mut chosen = BTreeMap::<_, Vec<_>>::new();
        for planned in plan(&MemoryStore::new(), Locks::InTurn, place) {
            if let Planned::Run(case, flavor) = planned {
                chosen.entry(case.name).or_default().push(flavor.to_string());
            }
        }
        chosen
    }

    /// Catches a choice that never reaches one of the locks, or that runs a case twice.
    #[test]
    fn in_turn_each_case_runs_once_on_a_store_and_on_every_lock_of_three_stores() {
        let of_stores = [0, 1, 2].map(chosen);
        for (case, locks) in &of_stores[0] {
            assert_eq!(locks.len(), 1, "{case}");
        }
        let case = "c1_a_held_lock_is_refused_to_others";
        let locks: BTreeSet<_> = of_stores.iter().flat_map(|chosen| &chosen[case]).collect();
        assert_eq!(locks.len(), 3, "{case} runs on {locks:?}");
        let of_one_store: BTreeSet<_> = of_stores[0].values().flatten().collect();
        assert_eq!(of_one_store.len(), 3, "one store tests {of_one_store:?}");
    }
}
