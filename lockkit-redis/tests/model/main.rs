//! Tests the protocol of the Redis scripts as a model. It runs the scripts themselves, on a Redis
//! and with clients that are values. So it can try every order in which requests, replies,
//! messages, faults and time can meet.

mod batches;
mod calls;
mod client;
mod drain;
mod fake;
mod free;
mod invariants;
mod lua;
mod mutants;
mod permit_batches;
mod permits;
mod rules;
#[path = "../../src/scripts.rs"]
mod scripts;
mod search;
mod sources;
mod world;

use std::{ops::Range, time::Instant};

use calls::Redis;
use client::Ear;
use mutants::{Mutant, mutants};
use rules::{Permits, Pushes, Rules};
use search::{Found, Report, exhaust, walk};
use world::{Setting, Step, World};

/// A setting so small that every order can be tried.
const FEW: Setting = Setting {
    clients: 2,
    ticks: 4,
    faults: 0,
    skew: 0,
    rules: Rules {
        op_timeout: 1,
        window: 1,
        lease: 2,
        attempts: 1,
        refreshes: 0,
        extends: 0,
        raises: 0,
        transfers: 0,
        resumes: 0,
        releases: 1,
        pushes: Pushes::All,
        flaw: None,
        hurried: false,
        batched: false,
        permits: None,
    },
};
/// A setting for walks.
const TWO: Setting = Setting {
    clients: 2,
    ticks: 30,
    faults: 2,
    skew: 0,
    rules: Rules {
        op_timeout: 1,
        window: 2,
        lease: 3,
        attempts: 5,
        refreshes: 5,
        extends: 3,
        raises: 2,
        transfers: 2,
        resumes: 0,
        releases: 3,
        pushes: Pushes::All,
        flaw: None,
        hurried: false,
        batched: false,
        permits: None,
    },
};
const THREE: Setting = Setting {
    clients: 3,
    ticks: 30,
    faults: 3,
    skew: 0,
    rules: Rules {
        op_timeout: 2,
        window: 4,
        lease: 6,
        attempts: 6,
        refreshes: 4,
        extends: 2,
        raises: 2,
        transfers: 2,
        resumes: 0,
        releases: 3,
        pushes: Pushes::All,
        flaw: None,
        hurried: false,
        batched: false,
        permits: None,
    },
};
/// Permits can't be transferred.
const COUNTED: Rules = Rules { transfers: 0, ..THREE.rules };
const BATCHED: Setting = Setting { rules: Rules { batched: true, ..TWO.rules }, ..TWO };
/// Two light claims and a heavy one.
const PERMITS: Setting = Setting {
    rules: Rules { permits: Some(Permits { counts: [1, 1, 2], limit: 2 }), ..COUNTED },
    ..THREE
};
/// Three light claims, and a permit for each.
const READERS: Setting = Setting {
    clients: 3,
    rules: Rules {
        permits: Some(Permits { counts: [1, 1, 1], limit: 3 }),
        transfers: 0,
        ..TWO.rules
    },
    ..TWO
};
/// Claims whose grant another owner resumes.
const TICKETS: Setting = Setting { rules: Rules { resumes: 4, ..TWO.rules }, ..TWO };
const PERMIT_TICKETS: Setting = Setting { rules: Rules { resumes: 4, ..PERMITS.rules }, ..PERMITS };
const STEPPED: Setting = Setting { rules: WRITERS, ..CLOCK_STEPS };
const WRITERS: Rules = Rules { permits: Some(Permits { counts: [2, 2, 2], limit: 2 }), ..COUNTED };
/// The server refuses to send messages.
const DENIED: Setting = Setting { rules: Rules { pushes: Pushes::Denied, ..TWO.rules }, ..TWO };
/// The server's clock steps ahead by more than a window.
const CLOCK_STEPS: Setting = Setting { skew: 5, ..THREE };
const CLOCK_GOES_BACK: Setting = Setting { skew: -3, ..THREE };

fn ended(what: &str, redis: &Redis, began: Instant, result: Result<Report, Found>) -> Report {
    let took = began.elapsed();
    match result {
        Ok(report) => {
            println!("{what}: {report:?}, {} runs of scripts, {took:?}", redis.runs);
            report
        }
        Err(Found { broken, trace }) => {
            panic!("{what}: {broken}, by {} steps: {trace:?}", trace.len())
        }
    }
}

fn every_order(what: &str, setting: &Setting) {
    let began = Instant::now();
    let mut redis = Redis::new(&setting.rules, &[]);
    let result = exhaust(setting, &mut redis, 10_000_000, 32);
    assert!(
        ended(what, &redis, began, result).complete,
        "{what}: there are more states than expected"
    );
}

fn walks(what: &str, setting: &Setting, seeds: Range<u64>, steps: usize) {
    for seed in seeds {
        let began = Instant::now();
        let mut redis = Redis::new(&setting.rules, &[]);
        let result = walk(setting, &mut redis, seed, steps);
        ended(&format!("{what}, seed {seed}"), &redis, began, result);
    }
}

#[test]
fn c1_c3_c6_c12_two_claims_in_every_order() {
    every_order("two claims", &FEW);
    let rules = Rules { refreshes: 1, ..FEW.rules };
    every_order("two claims, refreshed", &Setting { ticks: 2, rules, ..FEW });
}

#[test]
fn c1_c2_c4_c12_a_transfer_in_every_order() {
    let rules = Rules { transfers: 1, ..FEW.rules };
    every_order("a hand-over", &Setting { ticks: 2, rules, ..FEW });
    every_order("a hand-over and a fault", &Setting { ticks: 1, faults: 1, rules, ..FEW });
    let rules = Rules { raises: 1, extends: 1, ..FEW.rules };
    every_order("a raised token", &Setting { ticks: 2, rules, ..FEW });
}

#[test]
fn c1_c2_c4_c5_c9_a_ticket_in_every_order_and_on_walks() {
    let permits = Some(Permits { counts: [1, 2, 1], limit: 2 });
    for permits in [None, permits] {
        let rules = Rules { resumes: 1, permits, ..FEW.rules };
        every_order("a ticket", &Setting { ticks: 2, rules, ..FEW });
        every_order("a ticket and a fault", &Setting { ticks: 1, faults: 1, rules, ..FEW });
        let renewed = Rules { extends: 1, ..rules };
        every_order("a renewal and a ticket", &Setting { ticks: 1, rules: renewed, ..FEW });
    }
    walks("tickets", &TICKETS, 1..2, 20_000);
    walks("tickets for permits", &PERMIT_TICKETS, 1..2, 20_000);
    for permits in [None, permits] {
        let rules = Rules { resumes: 4, permits, ..COUNTED };
        walks("a clock that steps", &Setting { rules, ..CLOCK_STEPS }, 5..6, 10_000);
        walks("a clock that goes back", &Setting { rules, ..CLOCK_GOES_BACK }, 6..7, 10_000);
    }
}

#[test]
fn c1_c3_c5_c9_two_claims_and_a_fault_in_every_order() {
    every_order("two claims and a fault", &Setting { ticks: 2, faults: 1, ..FEW });
}

/// True for the thorough model. It takes eight minutes and some GB, and is for changes of the
/// protocol:
/// `LOCKKIT_MODEL=thorough cargo test --release -p lockkit-redis --test model`
fn thorough() -> bool {
    std::env::var("LOCKKIT_MODEL").is_ok_and(|depth| depth == "thorough")
}

#[test]
fn c1_c3_c5_c6_c9_c12_more_in_every_order() {
    let (long, short) = if thorough() { (3, 2) } else { (1, 1) };
    let refreshed = Rules { refreshes: 1, ..FEW.rules };
    every_order("refreshed", &Setting { ticks: long, rules: refreshed, ..FEW });
    every_order("a fault", &Setting { ticks: long, faults: 1, ..FEW });
    let retried = Rules { attempts: 2, ..FEW.rules };
    let renewed = Rules { extends: 1, refreshes: 1, ..retried };
    if thorough() {
        every_order(
            "refreshed, and a fault",
            &Setting { ticks: long, faults: 1, rules: refreshed, ..FEW },
        );
        every_order(
            "asked again, refreshed and renewed",
            &Setting { ticks: short, rules: renewed, ..FEW },
        );
        every_order("three claims", &Setting { clients: 3, ticks: 1, ..FEW });
    }
    every_order(
        "asked again, and a fault",
        &Setting { ticks: short, faults: 1, rules: retried, ..FEW },
    );
    let (seeds, steps) = if thorough() { (100..115, 1_000_000) } else { (100..101, 10_000) };
    walks("two claims", &TWO, seeds.clone(), steps);
    walks("three claims", &THREE, seeds.clone(), steps);
    walks("a clock that steps", &CLOCK_STEPS, seeds.clone(), steps);
    walks("a clock that goes back", &CLOCK_GOES_BACK, seeds, steps);
}

#[test]
fn c1_c3_c4_c5_c6_c9_c12_two_claims_on_walks() {
    walks("two claims", &TWO, 1..3, 50_000);
}

#[test]
fn c1_c3_c4_c5_c6_c9_c12_three_claims_on_walks() {
    walks("three claims", &THREE, 3..5, 40_000);
}

#[test]
fn c4_tokens_rise_and_proofs_refuse_when_the_clock_steps() {
    walks("a clock that steps", &CLOCK_STEPS, 5..6, 30_000);
    walks("a clock that goes back", &CLOCK_GOES_BACK, 6..7, 30_000);
}

#[test]
fn c1_c3_c4_c5_c6_c12_claims_whose_requests_are_sent_in_batches() {
    let few = Rules { batched: true, ..FEW.rules };
    every_order("two claims in batches", &Setting { rules: few, ..FEW });
    every_order("and a fault", &Setting { ticks: 2, faults: 1, rules: few, ..FEW });
    walks("two claims in batches", &BATCHED, 1..3, 30_000);
    let rules = Rules { batched: true, ..CLOCK_STEPS.rules };
    walks("a clock that steps", &Setting { rules, ..CLOCK_STEPS }, 5..6, 20_000);
}

#[test]
fn c1_c3_c4_c5_c6_c12_claims_for_permits_whose_requests_are_sent_in_batches() {
    for (counts, limit) in [([2, 2, 2], 2), ([1, 2, 1], 2), ([1, 1, 1], 2)] {
        let rules = Rules { batched: true, permits: Some(Permits { counts, limit }), ..COUNTED };
        let few = Rules { batched: true, permits: rules.permits, ..FEW.rules };
        every_order("two claims in batches", &Setting { ticks: 2, rules: few, ..FEW });
        every_order("and a fault", &Setting { ticks: 1, faults: 1, rules: few, ..FEW });
        walks("three claims in batches", &Setting { rules, ..THREE }, 1..2, 10_000);
        walks("a clock that steps", &Setting { rules, ..CLOCK_STEPS }, 5..6, 10_000);
    }
}

/// A writer, a reader and a claim that wants one of several permits.
#[test]
fn c1_c3_c4_c5_c6_c9_c12_claims_for_permits() {
    for (counts, limit) in [([2, 2, 2], 2), ([1, 2, 1], 2), ([1, 1, 1], 2)] {
        let permits = Some(Permits { counts, limit });
        let rules = Rules { permits, ..FEW.rules };
        let ticks = if thorough() { FEW.ticks } else { 2 };
        every_order("two claims", &Setting { ticks, rules, ..FEW });
        every_order("two claims and a fault", &Setting { ticks: 1, faults: 1, rules, ..FEW });
        let refreshed = Rules { refreshes: 1, ..rules };
        every_order("refreshed", &Setting { ticks, rules: refreshed, ..FEW });
        let renewed = Rules { attempts: 2, extends: 1, ..rules };
        every_order("asked again and renewed", &Setting { ticks: 1, rules: renewed, ..FEW });
        let rules = Rules { permits, ..COUNTED };
        let (seeds, steps) = if thorough() { (1..4, 100_000) } else { (1..2, 10_000) };
        walks("three claims", &Setting { rules, ..THREE }, seeds.clone(), steps);
        walks("a clock that steps", &Setting { rules, ..CLOCK_STEPS }, seeds.clone(), steps);
        walks("a clock that goes back", &Setting { rules, ..CLOCK_GOES_BACK }, seeds, steps);
        let rules = Rules { pushes: Pushes::NotToTheFirst, ..rules };
        walks("three claims, one without messages", &Setting { rules, ..THREE }, 1..2, steps);
        let rules = Rules { pushes: Pushes::All, hurried: true, ..rules };
        walks("three claims, looked at one by one", &Setting { rules, ..THREE }, 1..2, steps);
    }
}

#[test]
fn c8_no_waiter_hangs_without_messages() {
    for pushes in [Pushes::NotToTheFirst, Pushes::Denied] {
        let rules = Rules { pushes, ..THREE.rules };
        walks("three claims", &Setting { rules, ..THREE }, 6..7, 20_000);
    }
}

#[test]
fn c8_no_waiter_hangs_if_each_request_checks_only_one_waiter() {
    let rules = Rules { hurried: true, ..THREE.rules };
    walks(
        "three claims",
        &Setting { rules, ..THREE },
        if thorough() { 1..7 } else { 7..9 },
        if thorough() { 300_000 } else { 20_000 },
    );
}

#[test]
fn c9_a_dead_waiter_ahead_costs_nothing_or_its_window() {
    for (ear, cost) in [(Ear::Closed, 0), (Ear::Ghost, THREE.rules.window)] {
        let mut redis = Redis::new(&THREE.rules, &[]);
        let mut world = World::new(&THREE, &mut redis);
        let queue = (0..3).flat_map(|at| [Step::Send(at), Step::Take(at), Step::Hear(at)]);
        for step in queue.chain([Step::Crash(1, ear), Step::Leave(0)]) {
            world = world.after(step, &THREE, &mut redis).expect("possible").expect("kept");
        }
        let passed = drain::all(&world, &THREE, &mut redis).expect("all get the lock");
        assert_eq!(passed, cost, "{ear:?}");
    }
}

#[test]
fn c12_a_newcomer_comes_after_the_waiters_that_its_own_request_sets_aside() {
    for rules in [THREE.rules, WRITERS] {
        let setting = Setting { rules: Rules { hurried: true, ..rules }, ..THREE };
        let mut redis = Redis::new(&setting.rules, &[]);
        let mut world = World::new(&setting, &mut redis);
        let held = [Step::Send(1), Step::Take(1), Step::Tick, Step::Tick];
        // Two clients wait and close their connections, and the lease lapses.
        let dead = [Step::Send(0), Step::Take(0), Step::Tick, Step::Tick, Step::Send(1)];
        let newer = [Step::Tick, Step::Crash(0, Ear::Closed), Step::Send(2), Step::Tick];
        let asks = [Step::Crash(2, Ear::Closed), Step::TakeUnanswered(2), Step::Take(1)];
        for step in held.into_iter().chain(dead).chain(newer).chain(asks) {
            world = world.after(step, &setting, &mut redis).expect("possible").expect("kept");
        }
    }
}

#[test]
fn every_mutant_is_found() {
    let missed: Vec<_> = mutants().iter().filter_map(|mutant| find(mutant).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

fn find(Mutant { name, edits, flaw, setting, breaks }: &Mutant) -> Result<(), String> {
    let counted = setting.iter().any(|setting| setting.rules.permits.is_some());
    let others = if counted { &[][..] } else { &[&TWO, &THREE] };
    let found = setting.iter().chain(others.iter().copied()).find_map(|setting| {
        let rules = Rules { flaw: *flaw, ..setting.rules };
        walk(&Setting { rules, ..*setting }, &mut Redis::new(&rules, edits), 3, 80_000).err()
    });
    let Found { broken, trace } = found.ok_or_else(|| format!("{name}: not found"))?;
    println!("{name}: {broken}, by {} steps: {trace:?}", trace.len());
    if breaks.contains(&broken) {
        Ok(())
    } else {
        Err(format!("{name}: found by \"{broken}\" instead"))
    }
}
