use super::*;
use crate::report::{
    Case, Metric, Outcome, Scenario, Series, Side, Verdict,
    sample::{self, measured},
};

type Rounds<'a> = (&'a str, GuaranteeClass, &'a [f64]);

const DURABLE: GuaranteeClass = GuaranteeClass::OneDurableServer;

/// Stores with one figure each.
fn report(scenario: Scenario, metric: Metric, stores: &[Rounds<'_>]) -> Report {
    let mut report =
        sample::empty(stores.iter().map(|(id, class, _)| sample::store(id, "MySQL", *class)).collect());
    report.outcomes = stores.iter().map(|(id, _, rounds)| outcome(id, scenario, metric, rounds)).collect();
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
    all.iter().find(|answer| answer.need == need).unwrap_or_else(|| panic!("{need} in {all:?}")).clone()
}

#[test]
fn the_lower_latency_and_the_higher_throughput_win() {
    let few: &[f64] = &[10.0, 11.0, 12.0];
    let many: &[f64] = &[100.0, 110.0, 120.0];
    let stores = [("few", DURABLE, few), ("many", DURABLE, many)];
    assert_eq!(
        answer(&latency(&stores), "Lowest latency").text,
        "few, 10.0 times better than the next, many."
    );
    let throughput = report(Scenario::OwnNames, Metric::GrantsPerSecond, &stores);
    assert_eq!(
        answer(&throughput, "Most throughput on many names").text,
        "many, 10.0 times as much as the next, few."
    );
}

/// The medians differ twofold; one round of the slow one was as quick as one of the quick one.
#[test]
fn nobody_wins_where_ranges_overlap() {
    let report = latency(&[("b", DURABLE, &[20.0, 22.0, 11.5]), ("a", DURABLE, &[10.0, 11.0, 12.0])]);
    let text = answer(&report, "Lowest latency").text;
    assert!(text.starts_with("a and b can't be told apart in this run"), "{text}");
}

/// The third overlaps with the first although the second, between them, does not.
#[test]
fn an_overlap_with_any_other_store_is_seen() {
    let report = latency(&[
        ("a", DURABLE, &[10.0, 10.0, 10.0]),
        ("b", DURABLE, &[20.0, 20.0, 20.0]),
        ("c", DURABLE, &[9.0, 30.0, 31.0]),
    ]);
    let text = answer(&report, "Lowest latency").text;
    assert!(text.starts_with("a and c can't be told apart"), "{text}");
}

#[test]
fn a_lead_of_less_than_five_percent_is_none() {
    let near = latency(&[("a", DURABLE, &[100.0, 100.1, 100.2]), ("b", DURABLE, &[104.0, 104.1, 104.2])]);
    assert!(answer(&near, "Lowest latency").text.contains("can't be told apart"));
    let clear = latency(&[("a", DURABLE, &[100.0, 100.1, 100.2]), ("b", DURABLE, &[110.0, 110.1, 110.2])]);
    assert_eq!(answer(&clear, "Lowest latency").text, "a, 10% better than the next, b.");
}

#[test]
fn a_quick_run_and_one_of_two_rounds_are_too_short() {
    let mut quick = latency(&[("a", DURABLE, &[1.0, 1.0, 1.0]), ("b", DURABLE, &[9.0, 9.0, 9.0])]);
    assert!(!answer(&quick, "Lowest latency").text.contains("too short"));
    quick.is_quick = true;
    assert!(answer(&quick, "Lowest latency").text.contains("too short"));
    let two_rounds = latency(&[("a", DURABLE, &[1.0, 1.0]), ("b", DURABLE, &[9.0, 9.0])]);
    assert!(answer(&two_rounds, "Lowest latency").text.contains("too short"));
}

#[test]
fn a_store_of_one_process_is_never_put_forward() {
    let report = latency(&[
        ("memory", GuaranteeClass::Process, &[1.0, 1.0, 1.0]),
        ("a", DURABLE, &[9.0, 9.0, 9.0]),
        ("b", DURABLE, &[90.0, 90.0, 90.0]),
    ]);
    let answer = answer(&report, "Lowest latency");
    assert_eq!(answer.text, "a, 10.0 times better than the next, b.");
    assert!(answer.figures.iter().any(|line| line.starts_with("memory is left out")), "{:?}", answer.figures);
}

/// Who wins by forgetting is named with a warning, and with the best of those that don't forget.
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
        "quick, 9.00 times better than the next, sure. Among those that keep their locks over a restart: sure, 10.0 \
         times better than the next, slow."
    );
    assert_eq!(answer.cautions.len(), 1);
    assert!(answer.cautions[0].starts_with("quick is volatile: a restart"), "{:?}", answer.cautions);
}

#[test]
fn a_durable_winner_needs_no_warning() {
    let report = latency(&[
        ("quick", GuaranteeClass::Volatile, &[9.0, 9.0, 9.0]),
        ("sure", GuaranteeClass::Consensus, &[1.0, 1.0, 1.0]),
    ]);
    let answer = answer(&report, "Lowest latency");
    assert_eq!(answer.text, "sure, 9.00 times better than the next, quick.");
    assert!(answer.cautions.is_empty(), "{:?}", answer.cautions);
}

#[test]
fn only_a_majority_survives_the_loss_of_a_server() {
    use GuaranteeClass::{AsynchronousFailover, Consensus, OneDurableServer, Process, Volatile};
    let classes = [("p", Process), ("v", Volatile), ("f", AsynchronousFailover), ("o", OneDurableServer)];
    let mut stores: Vec<Rounds<'_>> = classes.iter().map(|(id, class)| (*id, *class, &[1.0][..])).collect();
    let need = "Survives the loss of a server";
    let weak = answer(&latency(&stores), need);
    assert!(weak.text.starts_with("None of the stores measured"), "{}", weak.text);
    assert!(weak.cautions[0].starts_with("f may grant a lock twice"), "{:?}", weak.cautions);
    stores.push(("c", Consensus, &[1.0]));
    assert!(answer(&latency(&stores), need).text.starts_with("c: a majority"));
}

/// The unfair one happened to be the evenest in this run: that is luck, not a promise.
#[test]
fn fair_is_only_who_serves_in_order() {
    let stores: [Rounds<'_>; 3] = [
        ("x-optimistic", DURABLE, &[1.0, 1.0, 1.0]),
        ("a", DURABLE, &[1.2, 1.2, 1.2]),
        ("b", DURABLE, &[3.0, 3.0, 3.0]),
    ];
    let answer = answer(&report(Scenario::HotName, Metric::MostOverLeast, &stores), "Fair to all who wait");
    assert!(answer.text.starts_with("a, 2.50 times better"), "{}", answer.text);
    assert!(
        answer.figures.iter().any(|line| line.starts_with("x-optimistic is left out: it does not serve"))
    );
}

#[test]
fn without_a_rival_there_is_no_winner() {
    let alone = latency(&[("a", DURABLE, &[1.0, 1.0, 1.0])]);
    assert_eq!(answer(&alone, "Lowest latency").text, "Only a was measured that meets this need.");
    let mut nobody = latency(&[("a", DURABLE, &[1.0, 1.0, 1.0])]);
    nobody.outcomes[0].verdict = Verdict::Failed { reason: "down".into() };
    assert_eq!(answer(&nobody, "Lowest latency").text, "Nothing was measured that would tell.");
    assert!(answers(&nobody).iter().all(|answer| answer.need != "Cheap idle locks"), "it was not run");
}

#[test]
fn who_has_mysql_learns_which_of_its_strategies_is_better_at_what() {
    let report = sample::report();
    let answer = answer(&report, "You already have MySQL or MariaDB");
    assert_eq!(
        answer.text,
        "Many names: mysql-optimistic, 2.17 times as much as the next, mysql-pessimistic. One hot name: \
         mysql-pessimistic, 18% better than the next, mysql-optimistic."
    );
    assert_eq!(answer.figures.len(), 2);
    assert!(answer.figures.iter().all(|line| line.contains("crash of the holder")), "{:?}", answer.figures);
}
