use super::*;
use crate::report::{
    Case, Metric, Outcome, Scenario, Series, Side, Verdict,
    sample::{self, measured},
};

type Rounds<'a> = (&'a str, GuaranteeClass, &'a [f64]);

const DURABLE: GuaranteeClass = GuaranteeClass::OneDurableServer;

/// Stores with one figure each.
fn report(scenario: Scenario, metric: Metric, stores: &[Rounds<'_>]) -> Report {
    let mut report = sample::empty(
        stores.iter().map(|(id, class, _)| sample::store(id, "MySQL", *class)).collect(),
    );
    report.outcomes =
        stores.iter().map(|(id, _, rounds)| outcome(id, scenario, metric, rounds)).collect();
    report
}

fn outcome(id: &str, scenario: Scenario, metric: Metric, rounds: &[f64]) -> Outcome {
    measured(id, Side::Lockkit, (scenario, Case::default()), [(metric, Series(rounds.to_vec()))])
}

fn latency(stores: &[Rounds<'_>]) -> Report {
    report(Scenario::Uncontended, Metric::WaitP50Us, stores)
}

fn answer(report: &Report, need: &str) -> Answer {
    let all = answers(report);
    all.iter()
        .find(|answer| answer.need == need)
        .unwrap_or_else(|| panic!("{need} in {all:?}"))
        .clone()
}

fn said(report: &Report, need: &str) -> String {
    answer(report, need).text.join(" ")
}

#[test]
fn the_lower_latency_and_the_higher_throughput_win() {
    let few: &[f64] = &[10.0, 11.0, 12.0];
    let many: &[f64] = &[100.0, 110.0, 120.0];
    let stores = [("few", DURABLE, few), ("many", DURABLE, many)];
    assert_eq!(
        said(&latency(&stores), "Lowest latency"),
        "few: 11.0 µs (10.0–12.0). The next, many: 110 µs (100–120), 10.0 times as much."
    );
    let throughput = report(Scenario::OwnNames, Metric::GrantsPerSecond, &stores);
    assert_eq!(
        said(&throughput, "Highest throughput on many names"),
        "many: 110/s (100–120), 10.0 times as much as the next, few: 11.0/s (10.0–12.0)."
    );
}

/// The medians differ twofold, but one round of the slow store was as fast as one round of the fast
/// store.
#[test]
fn no_store_wins_if_ranges_overlap() {
    let report =
        latency(&[("b", DURABLE, &[20.0, 22.0, 11.5]), ("a", DURABLE, &[10.0, 11.0, 12.0])]);
    let text = said(&report, "Lowest latency");
    assert!(
        text.starts_with(
            "a: 11.0 µs (10.0–12.0) and b: 20.0 µs (11.5–22.0) can't be distinguished"
        ),
        "{text}"
    );
}

/// The third store's range overlaps the first one's, although the second store's range does not.
#[test]
fn an_overlap_with_any_other_store_is_seen() {
    let report = latency(&[
        ("a", DURABLE, &[10.0, 10.0, 10.0]),
        ("b", DURABLE, &[20.0, 20.0, 20.0]),
        ("c", DURABLE, &[9.0, 30.0, 31.0]),
    ]);
    let text = said(&report, "Lowest latency");
    assert!(text.starts_with("a: ") && !text.contains("b: "), "{text}");
    assert!(text.contains("and c: 30.0 µs (9.00–31.0) can't be distinguished"), "{text}");
}

#[test]
fn a_lead_of_less_than_five_percent_does_not_win() {
    let near =
        latency(&[("a", DURABLE, &[100.0, 100.1, 100.2]), ("b", DURABLE, &[104.0, 104.1, 104.2])]);
    assert!(said(&near, "Lowest latency").contains("can't be distinguished"));
    let clear =
        latency(&[("a", DURABLE, &[100.0, 100.1, 100.2]), ("b", DURABLE, &[110.0, 110.1, 110.2])]);
    assert_eq!(
        said(&clear, "Lowest latency"),
        "a: 100 µs (100–100). The next, b: 110 µs (110–110), 10% more."
    );
}

#[test]
fn a_quick_run_and_one_of_two_rounds_are_too_short() {
    let names_no_store = |report: &Report| {
        let answer = answer(report, "Lowest latency");
        assert!(!answer.figures.is_empty(), "{answer:?}");
        answer.named.is_empty()
    };
    let mut quick = latency(&[("a", DURABLE, &[1.0, 1.0, 1.0]), ("b", DURABLE, &[9.0, 9.0, 9.0])]);
    assert!(!names_no_store(&quick));
    quick.is_quick = true;
    assert!(names_no_store(&quick));
    assert_eq!(said(&quick, "Lowest latency"), "", "the report says why, once");
    quick.stores.truncate(1);
    assert!(names_no_store(&quick), "a quick run proves nothing about a single store either");
    let mut two_rounds = latency(&[("a", DURABLE, &[1.0, 1.0]), ("b", DURABLE, &[9.0, 9.0])]);
    assert!(names_no_store(&two_rounds));
    assert!(
        said(&two_rounds, "Lowest latency").contains("too few to choose a store"),
        "the report has five rounds"
    );
    two_rounds.rounds = 2;
    assert_eq!(said(&two_rounds, "Lowest latency"), "");
}

#[test]
fn a_store_of_one_process_is_never_recommended() {
    let report = latency(&[
        ("memory", GuaranteeClass::Process, &[1.0, 1.0, 1.0]),
        ("a", DURABLE, &[9.0, 9.0, 9.0]),
        ("b", DURABLE, &[90.0, 90.0, 90.0]),
    ]);
    let answer = answer(&report, "Lowest latency");
    assert_eq!(answer.named, ["a"]);
    assert_eq!(
        answer.text,
        ["a: 9.00 µs (9.00–9.00). The next, b: 90.0 µs (90.0–90.0), 10.0 times as much."]
    );
    assert!(
        answer.figures.iter().any(|line| line.starts_with("memory: left out")),
        "{:?}",
        answer.figures
    );
}

/// A winner that forgets locks gets a warning, and the best store that keeps them is named too.
#[test]
fn a_volatile_winner_comes_with_a_warning_and_an_alternative() {
    let report = latency(&[
        ("quick", GuaranteeClass::Volatile, &[1.0, 1.0, 1.0]),
        ("slow", DURABLE, &[90.0, 90.0, 90.0]),
        ("sure", GuaranteeClass::Consensus, &[9.0, 9.0, 9.0]),
    ]);
    let answer = answer(&report, "Lowest latency");
    assert_eq!(
        answer.text,
        [
            "quick: 1.00 µs (1.00–1.00). The next, sure: 9.00 µs (9.00–9.00), 9.00 times as much.",
            "Among the stores that keep all grants over a restart or a failover: sure: 9.00 µs \
             (9.00–9.00). The next, slow: 90.0 µs (90.0–90.0), 10.0 times as much."
        ]
    );
    assert_eq!(answer.cautions.len(), 1);
    assert!(
        answer.cautions[0].starts_with("quick is volatile: a restart"),
        "{:?}",
        answer.cautions
    );
}

#[test]
fn a_durable_winner_needs_no_warning() {
    let report = latency(&[
        ("quick", GuaranteeClass::Volatile, &[9.0, 9.0, 9.0]),
        ("sure", GuaranteeClass::Consensus, &[1.0, 1.0, 1.0]),
    ]);
    let answer = answer(&report, "Lowest latency");
    assert_eq!((answer.named, answer.text.len()), (vec!["sure".to_owned()], 1));
    assert!(answer.cautions.is_empty(), "{:?}", answer.cautions);
}

#[test]
fn only_a_majority_survives_the_loss_of_a_server() {
    use GuaranteeClass::{AsynchronousFailover, Consensus, OneDurableServer, Process, Volatile};
    let classes =
        [("p", Process), ("v", Volatile), ("f", AsynchronousFailover), ("o", OneDurableServer)];
    let mut stores: Vec<Rounds<'_>> =
        classes.iter().map(|(id, class)| (*id, *class, &[1.0][..])).collect();
    let need = "Survives the loss of a server";
    let weak = answer(&latency(&stores), need);
    assert!(
        weak.named.is_empty() && weak.text[0].starts_with("None of the measured stores"),
        "{weak:?}"
    );
    assert!(weak.cautions[0].starts_with("f may grant a lock twice"), "{:?}", weak.cautions);
    stores.push(("c", Consensus, &[1.0]));
    assert!(said(&latency(&stores), need).starts_with("c: a majority"));
}

/// The unfair store served most evenly in this run, but only by luck.
#[test]
fn only_a_store_that_serves_in_order_is_fair() {
    let stores: [Rounds<'_>; 3] = [
        ("x-optimistic", DURABLE, &[1.0, 1.0, 1.0]),
        ("a", DURABLE, &[1.2, 1.2, 1.2]),
        ("b", DURABLE, &[3.0, 3.0, 3.0]),
    ];
    let answer = answer(
        &report(Scenario::HotName, Metric::MostOverLeast, &stores),
        "Fairness among waiters",
    );
    assert_eq!(answer.named, ["a"]);
    assert!(
        answer
            .figures
            .iter()
            .any(|line| line.starts_with("x-optimistic: left out: it does not serve"))
    );
}

#[test]
fn without_a_rival_there_is_no_winner() {
    let alone = latency(&[("a", DURABLE, &[1.0, 1.0, 1.0])]);
    assert_eq!(
        said(&alone, "Lowest latency"),
        "Only one measured store meets this need: a: 1.00 µs (1.00–1.00)."
    );
    let mut failed = latency(&[("a", DURABLE, &[1.0, 1.0, 1.0])]);
    failed.outcomes[0].verdict = Verdict::Failed { reason: "down".into() };
    assert_eq!(said(&failed, "Lowest latency"), "This run has no figures that answer this.");
    assert!(
        answers(&failed).iter().all(|answer| answer.need != "Cheap idle locks"),
        "it was not run"
    );
}

#[test]
fn a_failed_store_is_listed() {
    let mut report =
        latency(&[("a", DURABLE, &[1.0; 3]), ("b", DURABLE, &[9.0; 3]), ("c", DURABLE, &[0.1; 3])]);
    report.outcomes[2].verdict = Verdict::Failed { reason: "down".into() };
    let answer = answer(&report, "Lowest latency");
    assert_eq!(answer.named, ["a"]);
    assert!(answer.figures.contains(&"c: failed: down".to_owned()), "{:?}", answer.figures);
}

/// The store did best in the case that is shown, but failed in another case.
#[test]
fn a_winner_that_failed_elsewhere_comes_with_a_warning() {
    let mut report = latency(&[("a", DURABLE, &[1.0; 3]), ("b", DURABLE, &[9.0; 3])]);
    let mut harder = outcome("a", Scenario::Uncontended, Metric::WaitP50Us, &[]);
    harder.case.hold_ms = Some(2.0);
    harder.verdict = Verdict::Failed { reason: "down".into() };
    report.outcomes.push(harder);
    let answer = answer(&report, "Lowest latency");
    assert_eq!(answer.named, ["a"]);
    let warning = "a failed in 1 of 2 cases of \"One task, no contention\"".to_owned();
    assert!(answer.cautions.contains(&warning) && answer.figures.contains(&warning), "{answer:?}");
}

/// A store without a ratio served some tasks too seldom. It is worse, and must not be left out.
#[test]
fn a_store_measured_without_the_figure_is_listed() {
    let stores: [Rounds<'_>; 2] = [("a", DURABLE, &[1.2; 3]), ("b", DURABLE, &[3.0; 3])];
    let mut report = report(Scenario::HotName, Metric::MostOverLeast, &stores);
    report.outcomes[1] = outcome("b", Scenario::HotName, Metric::GrantsPerSecond, &[5.0; 3]);
    let answer = answer(&report, "Fairness among waiters");
    let line = answer.figures.iter().find(|line| line.starts_with("b: ")).unwrap();
    assert!(line.contains("measured without this figure: too few grants"), "{line}");
}

#[test]
fn the_verdict_compares_the_strategies_of_mysql() {
    let report = sample::report();
    let answer = answer(&report, "You already have MySQL or MariaDB");
    assert!(
        answer.text[0].starts_with("Many names: mysql-optimistic: 6,300/s"),
        "{:?}",
        answer.text
    );
    assert!(
        answer.text[1].starts_with("One hot name: mysql-pessimistic: 720/s"),
        "{:?}",
        answer.text
    );
    assert_eq!(answer.figures.len(), 2);
    assert!(
        answer.figures.iter().all(|line| line.contains("crash of the holder")),
        "{:?}",
        answer.figures
    );
}

#[test]
fn the_verdict_compares_redis_with_a_lock_without_a_library() {
    let answer = answer(&sample::report(), "You already have Redis");
    let text = answer.text.join(" ");
    assert!(
        text.contains("grants on many names 42,000/s (40,700–43,300), 0.900 times the classic"),
        "{text}"
    );
}

/// Catches an answer that praises a connection's lock for its milliseconds, without a warning.
#[test]
fn the_fastest_recovery_comes_with_a_warning_about_the_killed_process() {
    let stores: [Rounds<'_>; 2] =
        [("link", DURABLE, &[2.0, 2.1, 2.2]), ("lease", DURABLE, &[1_500.0, 1_600.0, 1_700.0])];
    let report = report(Scenario::Recovery, Metric::RecoveryMs, &stores);
    let answer = answer(&report, "Quickest recovery after a crash of the holder");
    assert_eq!(answer.named, ["link"]);
    assert!(
        answer
            .cautions
            .iter()
            .any(|text| text.starts_with("the benchmark killed only the process")),
        "{answer:?}"
    );
}
