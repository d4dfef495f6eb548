//! The protocol of the Redis scripts as a model: the scripts themselves, on a Redis and with clients that are values, so that
//! every order in which requests, replies, messages, faults and time can meet may be tried.

mod calls;
mod client;
mod drain;
mod fake;
mod invariants;
mod lua;
mod mutants;
mod search;
mod world;

use std::time::Instant;

use calls::Redis;
use client::Rules;
use mutants::{Mutant, mutants};
use search::{Found, Report, exhaust, walk};
use world::Setting;

/// For every order.
const SMALL: Setting = Setting {
    clients: 2,
    ticks: 5,
    faults: 1,
    skew: 0,
    rules: Rules { op_timeout: 1, window: 2, lease: 3, attempts: 2, refreshes: 1, extends: 1, releases: 1, flaw: None },
};
/// For walks: more of everything.
const PAIR: Setting = Setting {
    clients: 2,
    ticks: 30,
    faults: 2,
    skew: 0,
    rules: Rules { op_timeout: 1, window: 2, lease: 3, attempts: 5, refreshes: 5, extends: 3, releases: 3, flaw: None },
};
const THREE: Setting = Setting {
    clients: 3,
    ticks: 30,
    faults: 3,
    skew: 0,
    rules: Rules { op_timeout: 2, window: 4, lease: 6, attempts: 6, refreshes: 4, extends: 2, releases: 3, flaw: None },
};

fn passed(what: &str, redis: &Redis, began: Instant, result: Result<Report, Found>) {
    let took = began.elapsed();
    match result {
        Ok(report) => println!("{what}: {report:?}, {} runs of scripts, {took:?}", redis.runs),
        Err(Found { broken, trace }) => panic!("{what}: {broken}, by {} steps: {trace:?}", trace.len()),
    }
}

fn explore(what: &str, setting: &Setting, limit: usize) {
    let began = Instant::now();
    let mut redis = Redis::new(setting.rules.window, &[]);
    let result = exhaust(setting, &mut redis, limit, 32);
    passed(what, &redis, began, result);
}

fn wander(what: &str, setting: &Setting, seed: u64, steps: usize) {
    let began = Instant::now();
    let mut redis = Redis::new(setting.rules.window, &[]);
    let result = walk(setting, &mut redis, seed, steps);
    passed(&format!("{what}, seed {seed}"), &redis, began, result);
}

#[test]
fn c1_c4_c5_c6_c12_two_claims_in_every_order() {
    explore("two claims", &SMALL, 60_000);
}

#[test]
fn c1_c4_c5_c6_c12_three_claims_on_walks() {
    wander("three claims", &THREE, 1, 100_000);
}

#[test]
fn c1_c4_c5_c6_c12_two_claims_on_walks() {
    wander("two claims", &PAIR, 4, 100_000);
}

#[test]
#[ignore = "for counting states"]
fn deep() {
    let get = |name: &str, or: u8| std::env::var(name).map_or(or, |value| value.parse().unwrap());
    let rules = Rules { attempts: get("A", 1), refreshes: get("R", 1), extends: get("X", 0), releases: get("L", 1), ..SMALL.rules };
    let setting = Setting { ticks: get("T", 4).into(), faults: get("F", 0), rules, clients: usize::from(get("N", 2)), ..SMALL };
    explore("deep", &setting, 6_000_000);
}

#[test]
fn c4_tokens_rise_while_the_clock_steps_ahead() {
    wander("a clock that steps", &Setting { skew: 5, ..THREE }, 2, 50_000);
}

#[test]
fn every_mutant_is_found() {
    let missed: Vec<_> = mutants().iter().filter_map(|mutant| find(mutant).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

fn find(Mutant { name, edits, flaw, skewed, breaks }: &Mutant) -> Result<(), String> {
    let found = [(PAIR, 20_000), (THREE, 60_000)].into_iter().find_map(|(setting, steps)| {
        let rules = Rules { flaw: *flaw, ..setting.rules };
        let setting = Setting { skew: if *skewed { 5 } else { 0 }, rules, ..setting };
        walk(&setting, &mut Redis::new(rules.window, edits), 3, steps).err()
    });
    let Found { broken, trace } = found.ok_or_else(|| format!("{name}: not found"))?;
    println!("{name}: {broken}, by {} steps: {trace:?}", trace.len());
    if breaks.contains(&broken) { Ok(()) } else { Err(format!("{name}: found by \"{broken}\" instead")) }
}
