//! Measures lockkit beside other locks on each store, and checks that each rival is measured in the
//! cases that it can do.

use std::time::Duration;

use lockkit_bench::{
    Address, Options, Peer, Progress, WorkerCommand,
    report::{Metric, Outcome, Report, Scenario, Side, Verdict, markdown},
    run,
};
use lockkit_fixture::{RedisServer, SqlFlavor, SqlServer, ZooKeeperServer};

struct Silent;

impl Progress for Silent {
    fn begins(&self, _steps: u64) {}
    fn step(&self, _what: &str) {}
    fn ends(&self) {}
}

/// The cases of a quick run in which other locks do the work of lockkit's tasks.
const CONTENDED: [(Scenario, Option<u32>); 4] = [
    (Scenario::Uncontended, Some(1)),
    (Scenario::OwnNames, Some(64)),
    (Scenario::HotName, Some(8)),
    (Scenario::HotName, Some(64)),
];

async fn measure(url: String, peer: Option<Peer>) -> Report {
    let worker = WorkerCommand {
        program: env!("CARGO_BIN_EXE_lockkit-bench").into(),
        arguments: vec!["worker".into()],
    };
    let mut options = Options::quick(vec![Address { url, label: None }], worker);
    options.rounds = 2;
    options.only = vec![Scenario::Uncontended, Scenario::OwnNames, Scenario::HotName];
    options.peer = peer;
    // A busy machine may leave a short slice no time for a grant.
    for slice in [100, 1_000] {
        options.slice = Duration::from_millis(slice);
        let report = run(&options, &Silent, std::future::pending()).await.unwrap();
        if report.outcomes.iter().all(has_grants) {
            return report;
        }
    }
    options.slice = Duration::from_secs(5);
    run(&options, &Silent, std::future::pending()).await.unwrap()
}

/// Whether a case that was measured got locks, in one round at least.
fn has_grants(outcome: &Outcome) -> bool {
    let Verdict::Measured { figures, .. } = &outcome.verdict else { return true };
    let best = figures.get(&Metric::GrantsPerSecond).and_then(|series| series.max());
    best.is_none_or(|best| best > 0.0)
}

/// The cases in which a side got locks.
fn cases(report: &Report, side: Side) -> Vec<(Scenario, Option<u32>)> {
    let mut cases = Vec::new();
    for outcome in report.outcomes.iter().filter(|outcome| outcome.side == side) {
        let Verdict::Measured { figures, .. } = &outcome.verdict else { panic!("{outcome:?}") };
        assert!(has_grants(outcome), "{outcome:?}");
        let fairness = figures.get(&Metric::MostOverLeast).and_then(|series| series.min());
        assert!(fairness.is_none_or(|ratio| ratio >= 1.0), "{outcome:?}");
        cases.push((outcome.scenario, outcome.case.tasks));
    }
    cases
}

fn are_measured(report: &Report, sides: &[Side]) {
    for side in [Side::Classic, Side::RowLock, Side::Rslock] {
        let expected = if sides.contains(&side) { &CONTENDED[..] } else { &[] };
        assert_eq!(cases(report, side), expected, "{side:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_measured_beside_the_classic() {
    let redis = RedisServer::start().unwrap();
    let report = measure(redis.url(), None).await;
    are_measured(&report, &[Side::Classic]);
    let text = markdown(&report);
    assert!(text.contains(" | grants | classic | ÷ classic | bare driver | ÷ bare driver | "));
}

#[cfg(feature = "rslock")]
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_measured_beside_the_classic_and_rslock() {
    let redis = RedisServer::start().unwrap();
    let report = measure(redis.url(), Some(Peer::Rslock)).await;
    are_measured(&report, &[Side::Classic, Side::Rslock]);
    assert!(report.command.ends_with(" --peer rslock"), "{}", report.command);
    assert!(markdown(&report).contains(" | ÷ bare driver | rslock | ÷ rslock | "));
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_is_measured_beside_get_lock_and_a_row_lock() {
    let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
    let report = measure(server.url(), None).await;
    are_measured(&report, &[Side::Classic, Side::RowLock]);
    assert!(markdown(&report).contains(" | ÷ classic | row lock | ÷ row lock | bare driver | "));
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_is_measured_beside_the_recipe_of_its_client() {
    let server = ZooKeeperServer::start().unwrap();
    are_measured(&measure(server.url(), None).await, &[Side::Classic]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_measured_beside_a_locked_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    are_measured(&measure(url, None).await, &[Side::Classic]);
}
