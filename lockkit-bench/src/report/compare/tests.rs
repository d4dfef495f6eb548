use super::*;
use crate::report::{
    Outcome, Side, Verdict,
    sample::{self, measured},
};

fn series(metric: Metric, rounds: &[f64]) -> Report {
    let mut report = sample::tiny([0.0; 3], [0.0; 3]);
    report.outcomes = vec![outcome(Side::Lockkit, metric, rounds)];
    report
}

fn outcome(side: Side, metric: Metric, rounds: &[f64]) -> Outcome {
    measured("only", side, (Scenario::OwnNames, Case::default()), [(metric, Series(rounds.to_vec()))])
}

fn counts(comparison: &Comparison) -> (usize, usize) {
    (comparison.worse.len(), comparison.better.len())
}

#[test]
fn a_report_is_like_itself() {
    let report = sample::report();
    let same = compare(&report, &report);
    assert!(same.is_comparable() && !same.is_regression(), "{same}");
    assert_eq!((counts(&same), same.gained.len(), same.warnings.len()), ((0, 0), 0, 0), "{same}");
    assert!(same.compared > 100, "{same}");
}

#[test]
fn worse_is_less_throughput_and_more_of_all_else() {
    let (small, large) = (&[90.0, 91.0, 92.0][..], &[100.0, 101.0, 102.0][..]);
    let throughput = |rounds| series(Metric::GrantsPerSecond, rounds);
    let latency = |rounds| series(Metric::WaitP50Us, rounds);
    let worse = [compare(&throughput(large), &throughput(small)), compare(&latency(small), &latency(large))];
    for found in &worse {
        assert!(found.is_regression(), "{found}");
        assert_eq!(counts(found), (1, 0), "{found}");
    }
    let better = [compare(&throughput(small), &throughput(large)), compare(&latency(large), &latency(small))];
    for found in &better {
        assert!(!found.is_regression(), "{found}");
        assert_eq!(counts(found), (0, 1), "{found}");
    }
}

#[test]
fn what_overlaps_is_noise_however_far_the_medians_are_apart() {
    let old = series(Metric::GrantsPerSecond, &[100.0, 101.0, 50.0]);
    let new = series(Metric::GrantsPerSecond, &[51.0, 50.0, 52.0]);
    assert_eq!(counts(&compare(&old, &new)), (0, 0));
}

#[test]
fn less_than_five_percent_is_no_change_however_narrow_the_ranges_are() {
    let old = series(Metric::GrantsPerSecond, &[100.0, 100.0, 100.0]);
    assert_eq!(counts(&compare(&old, &series(Metric::GrantsPerSecond, &[95.5; 3]))), (0, 0));
    assert_eq!(counts(&compare(&old, &series(Metric::GrantsPerSecond, &[94.5; 3]))), (1, 0));
}

#[test]
fn requests_are_counted_so_two_percent_count() {
    let old = series(Metric::RequestsPerGrant, &[3.0; 3]);
    assert_eq!(counts(&compare(&old, &series(Metric::RequestsPerGrant, &[3.05; 3]))), (0, 0));
    assert_eq!(counts(&compare(&old, &series(Metric::RequestsPerGrant, &[3.09; 3]))), (1, 0));
    let free = series(Metric::RequestsPerGrant, &[0.0; 3]);
    let found = compare(&free, &old);
    assert_eq!(counts(&found), (1, 0));
    assert!(found.to_string().contains("from nothing"), "{found}");
}

/// A machine of half the speed, with lockkit as near to the bare driver as before.
#[test]
fn another_machine_is_no_regression_where_the_floor_went_along() {
    let old = sample::tiny([100.0, 90.0, 95.0], [110.0, 100.0, 105.0]);
    let mut new = sample::tiny([50.0, 45.0, 47.0], [55.0, 50.0, 52.0]);
    new.host.cpu = "Some slower CPU".into();
    let found = compare(&old, &new);
    assert!(!found.is_regression(), "{found}");
    assert!(found.to_string().contains("warning: another host"), "{found}");
    new.outcomes.retain(|outcome| outcome.side == Side::Lockkit);
    assert!(compare(&old, &new).is_regression(), "without the floor only absolute figures are left");
}

/// The same absolute figures, while the bare driver became twice as fast.
#[test]
fn a_ratio_that_falls_is_a_regression() {
    let old = sample::tiny([100.0; 3], [110.0; 3]);
    let new = sample::tiny([100.0; 3], [220.0; 3]);
    let found = compare(&old, &new);
    assert!(found.is_regression());
    assert!(found.to_string().contains("÷ bare driver 0.909"), "{found}");
}

#[test]
fn what_failed_or_vanished_is_a_regression() {
    let old = sample::report();
    let mut failed = old.clone();
    failed.outcomes[0].verdict = Verdict::Failed { reason: "no\nroute".into() };
    let found = compare(&old, &failed);
    assert!(found.is_regression());
    assert!(found.to_string().contains("failed: no route"), "{found}");
    assert!(!compare(&failed, &old).is_regression(), "the other way round it is a gain");
    assert_eq!(compare(&failed, &old).gained.len(), 1);

    let mut vanished = old.clone();
    vanished.outcomes.remove(0);
    assert!(compare(&old, &vanished).is_regression());
    assert_eq!(compare(&vanished, &old).gained.len(), 1);

    let mut poorer = old.clone();
    let Verdict::Measured { figures, .. } = &mut poorer.outcomes[0].verdict else { panic!("measured") };
    figures.remove(&Metric::WaitP99Us);
    let found = compare(&old, &poorer);
    assert!(found.is_regression());
    assert!(found.to_string().contains("no wait p99 any more"), "{found}");
}

#[test]
fn nothing_in_common_is_no_regression_but_incomparable() {
    let old = sample::report();
    let mut other_stores = old.clone();
    for store in &mut other_stores.stores {
        store.id = format!("other-{}", store.id);
    }
    let mut other_cases = old.clone();
    other_cases.outcomes.clear();
    for new in [other_stores, other_cases] {
        let found = compare(&old, &new);
        assert!(!found.is_comparable() && !found.is_regression(), "{found}");
        assert!(found.to_string().contains("can't be compared"), "{found}");
    }
}

#[test]
fn two_rounds_say_nothing() {
    let found = compare(&series(Metric::WaitP50Us, &[1.0, 1.0]), &series(Metric::WaitP50Us, &[9.0, 9.0]));
    assert!(!found.is_regression());
    assert!(found.to_string().contains("1 figures have fewer than 3 rounds"), "{found}");
}

#[test]
fn other_settings_and_versions_are_warned_of() {
    let old = sample::report();
    let mut new = old.clone();
    new.stores[1].version = "8.0".into();
    new.stores[2].settings[0].value = "none".into();
    new.is_quick = true;
    let text = compare(&old, &new).to_string();
    for part in
        ["redis is another server: Redis 7.1", "zookeeper settings: durability = some", "kind of run: whole"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}
