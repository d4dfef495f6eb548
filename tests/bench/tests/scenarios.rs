//! Runs every scenario with tiny slices on the embedded store and on a real Redis, and checks that
//! the figures are plausible.

use std::time::Duration;

use lockkit_bench::{
    Address, Options, Progress, WorkerCommand,
    report::{Case, Metric, Outcome, Report, Scenario, Side, Verdict},
    run,
};
use lockkit_fixture::{RedisServer, ZooKeeperOptions, ZooKeeperServer};

struct Silent;

impl Progress for Silent {
    fn begins(&self, _steps: u64) {}
    fn step(&self, _what: &str) {}
    fn ends(&self) {}
}

/// Figures that are measured while a server pauses are not plausible.
fn steady() -> RedisServer {
    let mut redis = RedisServer::start().unwrap();
    redis.never_stall();
    redis
}

fn worker() -> WorkerCommand {
    WorkerCommand {
        program: env!("CARGO_BIN_EXE_lockkit-bench").into(),
        arguments: vec!["worker".into()],
    }
}

async fn measure(urls: &[&str]) -> Report {
    let addresses =
        urls.iter().map(|url| Address { url: (*url).to_owned(), label: None }).collect();
    let mut options = Options::quick(addresses, worker());
    options.rounds = 2;
    // A busy machine may leave a short slice no time for a grant.
    for slice in [50, 500] {
        options.slice = Duration::from_millis(slice);
        let report = run(&options, &Silent, std::future::pending()).await.unwrap();
        if report.outcomes.iter().all(has_grants) {
            return report;
        }
    }
    options.slice = Duration::from_secs(5);
    run(&options, &Silent, std::future::pending()).await.unwrap()
}

/// Whether a case that was measured got locks in each round.
fn has_grants(outcome: &Outcome) -> bool {
    let Verdict::Measured { figures, .. } = &outcome.verdict else { return true };
    let rates = figures.get(&Metric::GrantsPerSecond);
    rates.is_none_or(|series| series.0.iter().all(|rate| *rate > 0.0))
}

fn figure(outcome: &Outcome, metric: Metric) -> Option<f64> {
    match &outcome.verdict {
        Verdict::Measured { figures, .. } => figures.get(&metric)?.median(),
        other => panic!("{:?} on {}: {other:?}", outcome.scenario, outcome.store),
    }
}

/// The rate of the best round: a busy machine may leave a short slice no time for a grant.
fn most_grants(outcome: &Outcome) -> f64 {
    let Verdict::Measured { figures, .. } = &outcome.verdict else { panic!("{outcome:?}") };
    let rates = figures.get(&Metric::GrantsPerSecond).into_iter().flat_map(|series| &series.0);
    rates.copied().fold(0.0, f64::max)
}

fn has(case: &Case) -> bool {
    case.processes.unwrap_or(1) > 1
}

/// Whether the store can't do this: the memory store has no floor and no second process.
fn is_beyond_the_store(outcome: &Outcome) -> bool {
    let is_apart = has(&outcome.case) || outcome.scenario == Scenario::Recovery;
    outcome.store == "memory" && (outcome.side == Side::Floor || is_apart)
}

fn idle_locks_cost_little(outcome: &Outcome) {
    let get = |metric| figure(outcome, metric);
    let bytes = get(Metric::BytesPerLock).unwrap();
    assert!(bytes > 0.0 && bytes < 20_000.0, "{outcome:?}");
    assert!(get(Metric::CpuPercent).is_some(), "{outcome:?}");
    // A thousand locks are renewed, each after two seconds.
    let requests = get(Metric::IdleRequestsPerSecond);
    assert!(
        outcome.store == "memory" || requests.is_some_and(|rate| (50.0..1_500.0).contains(&rate)),
        "{outcome:?}"
    );
}

fn recovery_waits_for_the_lease(outcome: &Outcome) {
    let took = figure(outcome, Metric::RecoveryMs).unwrap();
    assert!(took > 500.0 && took < 60_000.0, "a lease of 2 s, renewed at 2/3: {outcome:?}");
    assert_eq!(figure(outcome, Metric::LeaseMs), Some(2_000.0), "{outcome:?}");
}

fn the_floor_of_the_open_loop_has_no_rate(outcome: &Outcome) {
    assert!(figure(outcome, Metric::WaitP50Us).unwrap() > 0.0, "{outcome:?}");
    assert_eq!(figure(outcome, Metric::GrantsPerSecond), None, "that is the rate of the case");
}

fn there_are_grants_and_waits(outcome: &Outcome) {
    let get = |metric| figure(outcome, metric);
    assert!(most_grants(outcome) > 0.0, "{outcome:?}");
    let is_ours = outcome.side == Side::Lockkit;
    let p99 = get(Metric::WaitP99Us);
    assert!(
        !is_ours || p99.is_none_or(|p99| p99 >= get(Metric::WaitP50Us).unwrap()),
        "{outcome:?}"
    );
    assert!(!is_ours || get(Metric::WaitP50Us) > Some(0.0), "{outcome:?}");
    assert!(get(Metric::MostOverLeast).is_none_or(|ratio| ratio >= 1.0), "{outcome:?}");
    assert_eq!(get(Metric::RequestsPerGrant).is_some(), is_counted(outcome), "{outcome:?}");
}

/// Whether requests are counted: the memory store has none, and those of the classic may be
/// commands that the count leaves out.
fn is_counted(outcome: &Outcome) -> bool {
    outcome.store != "memory" && outcome.side != Side::Classic
}

fn an_uncontended_pair_is_two_scripts(outcome: &Outcome) {
    let requests = figure(outcome, Metric::RequestsPerGrant).unwrap();
    assert!((1.9..2.2).contains(&requests), "a script to take, a script to give back: {outcome:?}");
}

fn both_sides_use_processor_time(outcome: &Outcome) {
    assert!(figure(outcome, Metric::ClientCpuUs).is_some(), "{outcome:?}");
    let server = figure(outcome, Metric::ServerCpuUs);
    assert_eq!(server.is_some_and(|time| time > 0.0), outcome.store != "memory", "{outcome:?}");
}

fn the_open_loop_serves_what_is_offered(outcome: &Outcome) {
    let offered = outcome.case.rate_per_second.unwrap();
    let served = figure(outcome, Metric::GrantsPerSecond).unwrap();
    // A short slice has few requests, so one more is a large part.
    assert!(served <= offered * 2.0, "no more than was asked for: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_gives_plausible_figures() {
    let redis = steady();
    let report = measure(&["memory://", &redis.url()]).await;
    assert_eq!(
        report.stores.iter().map(|store| store.id.as_str()).collect::<Vec<_>>(),
        ["memory", "redis"]
    );
    let mut hand_offs = Vec::new();
    for outcome in &report.outcomes {
        if is_beyond_the_store(outcome) {
            assert!(matches!(outcome.verdict, Verdict::NotApplicable { .. }), "{outcome:?}");
            continue;
        }
        match outcome.scenario {
            Scenario::IdleLocks => idle_locks_cost_little(outcome),
            Scenario::Recovery => recovery_waits_for_the_lease(outcome),
            Scenario::OpenLoop if outcome.side == Side::Floor => {
                the_floor_of_the_open_loop_has_no_rate(outcome)
            }
            _ => there_are_grants_and_waits(outcome),
        }
        if outcome.scenario == Scenario::HandOff {
            // A busy machine may leave a slice no time for a hand-off.
            hand_offs.extend(figure(outcome, Metric::HandOffP50Us));
        }
        if outcome.scenario == Scenario::Uncontended && is_counted(outcome) {
            an_uncontended_pair_is_two_scripts(outcome);
        }
        if matches!(outcome.scenario, Scenario::Uncontended | Scenario::OwnNames) {
            both_sides_use_processor_time(outcome);
        }
        if outcome.scenario == Scenario::OpenLoop && outcome.side == Side::Lockkit {
            the_open_loop_serves_what_is_offered(outcome);
        }
    }
    assert!(!hand_offs.is_empty() && hand_offs.iter().all(|took| *took > 0.0), "{hand_offs:?}");
    let scenarios = |side| report.outcomes.iter().filter(|outcome| outcome.side == side).count();
    assert!(scenarios(Side::Lockkit) > scenarios(Side::Floor) && scenarios(Side::Floor) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stops_midway_is_recorded_and_the_run_continues() {
    struct Killer(std::sync::Mutex<RedisServer>);
    impl Progress for Killer {
        fn begins(&self, _steps: u64) {
            self.0.lock().unwrap().kill().unwrap();
        }
        fn step(&self, _what: &str) {}
        fn ends(&self) {}
    }
    let redis = steady();
    let addresses = [redis.url(), "memory://".to_owned()].map(|url| Address { url, label: None });
    let worker = WorkerCommand::this_program(["worker"]).unwrap();
    let mut options = Options::quick(addresses.to_vec(), worker);
    options.rounds = 1;
    options.slice = Duration::from_millis(20);
    options.only = vec![Scenario::Uncontended];
    let report = run(&options, &Killer(redis.into()), std::future::pending()).await.unwrap();
    let of = |store| {
        report
            .outcomes
            .iter()
            .find(|outcome| outcome.store == store && outcome.side == Side::Lockkit)
    };
    assert!(matches!(of("redis").unwrap().verdict, Verdict::Failed { .. }), "{report:?}");
    assert!(matches!(of("memory").unwrap().verdict, Verdict::Measured { .. }), "{report:?}");
}

/// A run that fails because of a table that could not be removed would lose the report of an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_to_close_gives_a_warning() {
    #[derive(Default)]
    struct Killer {
        server: std::sync::Mutex<Option<RedisServer>>,
        warnings: std::sync::Mutex<Vec<String>>,
    }
    impl Progress for Killer {
        fn begins(&self, _steps: u64) {}
        fn step(&self, _what: &str) {}
        fn ends(&self) {
            self.server.lock().unwrap().take();
        }
        fn warns(&self, what: &str) {
            self.warnings.lock().unwrap().push(what.to_owned());
        }
    }
    let redis = steady();
    let address = Address { url: redis.url(), label: None };
    let mut options =
        Options::quick(vec![address], WorkerCommand::this_program(["worker"]).unwrap());
    (options.rounds, options.slice) = (1, Duration::from_millis(20));
    options.only = vec![Scenario::Uncontended];
    let killer = Killer { server: Some(redis).into(), ..Killer::default() };
    let report = run(&options, &killer, std::future::pending()).await.unwrap();
    assert!(
        report.outcomes.iter().all(|outcome| matches!(outcome.verdict, Verdict::Measured { .. }))
    );
    let warnings = killer.warnings.into_inner().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

/// A stock ZooKeeper does not agree to sessions of two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_is_measured_with_the_lease_that_the_servers_agree_to() {
    let mut zookeeper =
        ZooKeeperServer::start_with(ZooKeeperOptions::default().with_tick(Duration::from_secs(2)))
            .unwrap();
    zookeeper.never_stall();
    let address = Address { url: zookeeper.url(), label: None };
    let mut options = Options::quick(vec![address], worker());
    options.only = vec![Scenario::Recovery];
    let report = run(&options, &Silent, std::future::pending()).await.unwrap();
    let [outcome] = &report.outcomes[..] else { panic!("{report:?}") };
    assert_eq!(figure(outcome, Metric::LeaseMs), Some(4_000.0), "{outcome:?}");
}
