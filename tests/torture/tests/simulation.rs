//! Thousands of simulated runs, one for each seed. No run breaks a promise, and each run can be
//! repeated.
//!
//! `LOCKKIT_TORTURE_SEEDS=20000..90000` chooses other seeds.

#[path = "support/seeds.rs"]
mod seeds;

use std::{
    collections::BTreeMap,
    env,
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};

use lockkit_torture::{
    check::check,
    sim::{Simulated, simulate},
};

use self::seeds::in_parallel;

const SEEDS: std::ops::Range<u64> = 0..2_000;
const REPEATED: std::ops::Range<u64> = 0..100;

/// Set in the process that repeats the runs.
const REPEATS: &str = "LOCKKIT_TORTURE_REPEATS";

fn chosen() -> std::ops::Range<u64> {
    let Ok(text) = env::var("LOCKKIT_TORTURE_SEEDS") else { return SEEDS };
    let range =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or_else(|| panic!("LOCKKIT_TORTURE_SEEDS={text:?}: it looks like 0..2000"))
}

#[derive(Default)]
struct Sum {
    records: usize,
    documented: usize,
    faults: BTreeMap<&'static str, u64>,
    broken: Vec<u64>,
}

#[test]
fn c1_to_c10_hold_in_each_simulated_run() {
    let seeds = chosen();
    let started = Instant::now();
    let sum = Mutex::<Sum>::default();
    in_parallel(seeds.clone(), |seed| {
        let Simulated { records, terms, faults, .. } = simulate(seed);
        let verdict = check(&records, &terms);
        let mut sum = sum.lock().unwrap();
        sum.records += records.len();
        sum.documented += verdict.documented.len();
        for (kind, count) in faults {
            *sum.faults.entry(kind).or_default() += count;
        }
        if !verdict.violations.is_empty() {
            sum.broken.push(seed);
            for violation in &verdict.violations {
                println!(
                    "seed {seed}: {} {:?}: {}",
                    violation.rule, violation.lock, violation.what
                );
                violation.slice.iter().for_each(|record| println!("    {record:?}"));
            }
            println!("    repeat it: cargo run -p lockkit-torture -- simulate --seed {seed}");
        }
        true
    });
    let Sum { records, documented, faults, mut broken } = sum.into_inner().unwrap();
    broken.sort_unstable();
    let count = seeds.end - seeds.start;
    println!(
        "{count} seeds, {records} records in {:?}; {documented} documented weaknesses",
        started.elapsed()
    );
    println!("faults: {faults:?}");
    assert!(broken.is_empty(), "{} of {count} seeds break a promise: {broken:?}", broken.len());
    if seeds.start == SEEDS.start && seeds.end >= SEEDS.end {
        // A simulation in which nothing goes wrong proves little.
        for kind in [
            "death",
            "eviction",
            "failed for good",
            "paused process",
            "refused",
            "reply lost",
            "request late",
            "request lost",
            "silent store",
            "slow",
            "wake-up lost",
        ] {
            assert!(faults.get(kind).is_some_and(|count| *count > 100), "{kind}: {faults:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_in_another_process() {
    let digests = || REPEATED.map(|seed| simulate(seed).digest).collect::<Vec<_>>();
    if env::var_os(REPEATS).is_some() {
        println!("{REPEATS} {:?}", digests());
        return;
    }
    let repeated = Command::new(env::current_exe().unwrap())
        .args(["--exact", "the_same_seed_gives_the_same_run_in_another_process", "--nocapture"])
        .env(REPEATS, "1")
        .output()
        .unwrap();
    assert!(repeated.status.success(), "{repeated:?}");
    let text = String::from_utf8(repeated.stdout).unwrap();
    let said =
        text.lines().find_map(|line| line.split_once(REPEATS)).expect("the digests").1.trim();
    assert_eq!(said, format!("{:?}", digests()));
}

#[test]
fn a_run_takes_seconds_of_its_own_clock_and_different_seeds_differ() {
    let [a, b] = [1, 2].map(simulate);
    assert_ne!(a.digest, b.digest);
    let lasts = |run: &Simulated| Duration::from_nanos(run.records.last().unwrap().at);
    assert!(lasts(&a) > Duration::from_secs(1), "{:?}", lasts(&a));
}
