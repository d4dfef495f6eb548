use super::*;
use crate::report::{
    Outcome, ROUND_TRIP, Setting, Side, Verdict,
    sample::{self, measured},
};

fn series(metric: Metric, rounds: &[f64]) -> Report {
    let mut report = sample::tiny([0.0; 5], [0.0; 5]);
    report.outcomes = vec![outcome(Side::Lockkit, metric, rounds)];
    report
}

fn outcome(side: Side, metric: Metric, rounds: &[f64]) -> Outcome {
    measured(
        "only",
        side,
        (Scenario::OwnNames, Case::default()),
        [(metric, Series(rounds.to_vec()))],
    )
}

fn counts(comparison: &Comparison) -> (usize, usize) {
    (comparison.worse.len(), comparison.better.len())
}

#[test]
fn a_report_does_not_differ_from_itself() {
    let report = sample::report();
    let same = compare(&report, &report);
    assert!(same.is_comparable() && !same.is_regression(), "{same}");
    assert_eq!((counts(&same), same.gained.len(), same.warnings.len()), ((0, 0), 0, 0), "{same}");
    assert!(same.compared > 100, "{same}");
}

#[test]
fn less_throughput_or_more_of_any_other_figure_is_worse() {
    let small = &[90.0, 91.0, 92.0, 90.5, 91.5][..];
    let large = &[100.0, 101.0, 102.0, 100.5, 101.5][..];
    let throughput = |rounds| series(Metric::GrantsPerSecond, rounds);
    let latency = |rounds| series(Metric::WaitP50Us, rounds);
    let worse = [
        compare(&throughput(large), &throughput(small)),
        compare(&latency(small), &latency(large)),
    ];
    for found in &worse {
        assert!(found.is_regression(), "{found}");
        assert_eq!(counts(found), (1, 0), "{found}");
    }
    let better = [
        compare(&throughput(small), &throughput(large)),
        compare(&latency(large), &latency(small)),
    ];
    for found in &better {
        assert!(!found.is_regression(), "{found}");
        assert_eq!(counts(found), (0, 1), "{found}");
    }
}

#[test]
fn overlapping_ranges_are_noise_for_all_medians() {
    let old = series(Metric::GrantsPerSecond, &[100.0, 101.0, 50.0, 100.0, 101.0]);
    let new = series(Metric::GrantsPerSecond, &[51.0, 50.0, 52.0, 51.0, 51.0]);
    assert_eq!(counts(&compare(&old, &new)), (0, 0));
}

#[test]
fn a_third_less_is_worse_even_with_wide_ranges() {
    let old = [0.55, 0.8, 0.94, 1.2, 1.4];
    let new = series(Metric::GrantsPerSecond, &old.map(|rate| rate / 3.0));
    assert_eq!(counts(&compare(&series(Metric::GrantsPerSecond, &old), &new)), (1, 0));
}

#[test]
fn less_than_five_percent_is_no_change_even_with_narrow_ranges() {
    let old = series(Metric::GrantsPerSecond, &[100.0; 5]);
    assert_eq!(counts(&compare(&old, &series(Metric::GrantsPerSecond, &[95.5; 5]))), (0, 0));
    assert_eq!(counts(&compare(&old, &series(Metric::GrantsPerSecond, &[94.5; 5]))), (1, 0));
}

#[test]
fn requests_are_counted_so_two_percent_count() {
    let old = series(Metric::RequestsPerGrant, &[3.0; 5]);
    assert_eq!(counts(&compare(&old, &series(Metric::RequestsPerGrant, &[3.05; 5]))), (0, 0));
    assert_eq!(counts(&compare(&old, &series(Metric::RequestsPerGrant, &[3.09; 5]))), (1, 0));
    let free = series(Metric::RequestsPerGrant, &[0.0; 5]);
    let found = compare(&free, &old);
    assert_eq!(counts(&found), (1, 0));
    assert!(found.to_string().contains("from nothing"), "{found}");
}

/// The new machine has half the speed, so the ratio of lockkit to the bare driver is the same.
#[test]
fn a_slower_machine_is_no_regression_if_the_floor_is_also_slower() {
    let old = sample::tiny([100.0, 90.0, 95.0, 96.0, 94.0], [110.0, 100.0, 105.0, 106.0, 104.0]);
    let mut new = sample::tiny([50.0, 45.0, 47.0, 48.0, 46.0], [55.0, 50.0, 52.0, 53.0, 51.0]);
    new.host.cpu = "Some slower CPU".into();
    let found = compare(&old, &new);
    assert!(!found.is_regression(), "{found}");
    assert!(found.to_string().contains("warning: another host"), "{found}");
    new.outcomes.retain(|outcome| outcome.side == Side::Lockkit);
    assert!(
        compare(&old, &new).is_regression(),
        "without the floor only absolute figures are left"
    );
}

/// The absolute figures are the same, but the bare driver became twice as fast.
#[test]
fn a_ratio_that_falls_is_a_regression() {
    let old = sample::tiny([100.0; 5], [110.0; 5]);
    let new = sample::tiny([100.0; 5], [220.0; 5]);
    let found = compare(&old, &new);
    assert!(found.is_regression());
    assert!(found.to_string().contains("÷ bare driver 0.909"), "{found}");
}

/// The bare driver sends lockkit's requests, so it became faster with them. The classic did not.
#[test]
fn fewer_requests_are_an_improvement_over_the_classic() {
    let with_classic = |own, floor| {
        let mut report = sample::tiny([own; 5], [floor; 5]);
        let rounds = [100.0; 5];
        report.outcomes.push(outcome(Side::Classic, Metric::GrantsPerSecond, &rounds));
        report
    };
    let found = compare(&with_classic(50.0, 60.0), &with_classic(100.0, 120.0));
    assert_eq!(counts(&found), (0, 1), "{found}");
    assert!(found.to_string().contains("÷ classic 0.500"), "{found}");
    let without = sample::tiny([50.0; 5], [60.0; 5]);
    let found = compare(&without, &with_classic(100.0, 120.0));
    assert_eq!(counts(&found), (0, 0), "only the bare driver is in both: {found}");
}

#[test]
fn a_failed_or_missing_case_is_a_regression() {
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
    assert!(
        compare(&old, &vanished).is_regression(),
        "the other stores were measured in that case"
    );
    assert_eq!(compare(&vanished, &old).gained.len(), 1);

    let mut poorer = old.clone();
    let Verdict::Measured { figures, .. } = &mut poorer.outcomes[0].verdict else {
        panic!("measured")
    };
    figures.remove(&Metric::WaitP50Us);
    let found = compare(&old, &poorer);
    assert!(found.is_regression());
    assert!(found.to_string().contains("no wait p50 any more"), "{found}");
}

/// The number of grants differs, or the server does not report its counts this time. Neither is a
/// change of lockkit.
#[test]
fn a_missing_optional_figure_is_no_loss() {
    let old = sample::report();
    let mut new = old.clone();
    for metric in [Metric::MostOverLeast, Metric::WaitP99Us, Metric::RequestsPerGrant] {
        for outcome in &mut new.outcomes {
            let Verdict::Measured { figures, .. } = &mut outcome.verdict else { continue };
            figures.remove(&metric);
        }
    }
    let found = compare(&old, &new);
    assert!(!found.is_regression(), "{found}");
    assert!(found.to_string().contains("no most ÷ least any more"), "{found}");
}

/// Each run measures its own rate, unless the user gives one.
#[test]
fn an_open_loop_at_another_rate_is_not_compared() {
    let old = sample::report();
    let mut new = old.clone();
    for outcome in new.outcomes.iter_mut().filter(|outcome| outcome.scenario == Scenario::OpenLoop)
    {
        outcome.case.rate_per_second = Some(210.0);
        let Verdict::Measured { figures, .. } = &mut outcome.verdict else { continue };
        for series in figures.values_mut() {
            *series = Series(vec![1e9; 5]);
        }
    }
    let found = compare(&old, &new);
    assert!(!found.is_regression() && found.gained.is_empty(), "{found}");
    assert_eq!(found.not_compared.len(), old.stores.len(), "{found}");
    assert!(found.to_string().contains("redis, Requests at a fixed rate: other rate"), "{found}");
}

#[test]
fn an_untried_case_is_not_run_and_no_regression() {
    let old = sample::report();
    let mut fewer_stores = old.clone();
    fewer_stores.stores.retain(|store| store.id != "redis");
    fewer_stores.outcomes.retain(|outcome| outcome.store != "redis");
    let mut fewer_scenarios = old.clone();
    fewer_scenarios.outcomes.retain(|outcome| outcome.scenario == Scenario::HotName);
    let mut fewer_cases = old.clone();
    fewer_cases.outcomes.retain(|outcome| outcome.case.tasks != Some(256));
    for (new, line) in [
        (fewer_stores, "\n  redis: not run\n"),
        (fewer_scenarios, "\n  Recovery after a crash: not run\n"),
        (fewer_cases, "\n  Hand-off, 256 tasks, 1 name: not run\n"),
    ] {
        let found = compare(&old, &new);
        assert!(found.is_comparable() && !found.is_regression(), "{found}");
        assert_eq!(found.to_string().matches(line).count(), 1, "{line}{found}");
    }
}

#[test]
fn a_single_slow_wait_is_listed_but_does_not_count() {
    for metric in [Metric::WaitMaxUs, Metric::BytesPerLock] {
        let found = compare(&series(metric, &[10.0; 5]), &series(metric, &[100.0; 5]));
        assert!(!found.is_regression() && found.worse.is_empty(), "{found}");
        assert!(found.to_string().contains("+900.0%"), "{found}");
    }
}

/// The two ranges touch. One in a hundred pairs of similar runs has such ranges.
#[test]
fn ranges_with_a_small_gap_are_noise() {
    let old = series(Metric::GrantsPerSecond, &[100.0, 104.0, 96.0, 101.0, 99.0]);
    let near = series(Metric::GrantsPerSecond, &[95.0, 91.0, 93.0, 88.0, 94.0]);
    assert_eq!(counts(&compare(&old, &near)), (0, 0));
    let far = series(Metric::GrantsPerSecond, &[85.0, 81.0, 83.0, 78.0, 84.0]);
    assert_eq!(counts(&compare(&old, &far)), (1, 0));
}

#[test]
fn reports_with_nothing_in_common_are_not_comparable() {
    let old = sample::report();
    let mut other_stores = old.clone();
    for store in &mut other_stores.stores {
        store.id = format!("other-{}", store.id);
    }
    let mut other_cases = old.clone();
    other_cases.outcomes.clear();
    let mut another_plan = old.clone();
    for outcome in &mut another_plan.outcomes {
        outcome.case.ttl_ms = Some(77);
    }
    for new in [other_stores, other_cases, another_plan] {
        let found = compare(&old, &new);
        assert!(!found.is_comparable() && !found.is_regression(), "{found}");
        assert!(found.to_string().contains("can't be compared"), "{found}");
    }
}

#[test]
fn four_rounds_are_too_few_for_a_verdict() {
    let found =
        compare(&series(Metric::WaitP50Us, &[1.0; 4]), &series(Metric::WaitP50Us, &[9.0; 5]));
    assert!(!found.is_regression());
    let text = found.to_string();
    assert!(text.contains("Too few rounds to decide:\n  only, Many names"), "{text}");
    assert!(text.contains("1 figure has fewer than 5 rounds"), "{text}");
    assert!(!found.is_comparable() && text.ends_with("No figure could be compared.\n"), "{text}");
}

#[test]
fn other_settings_and_versions_give_a_warning() {
    let old = sample::report();
    let mut new = old.clone();
    new.stores[1].version = "8.0".into();
    new.stores[2].settings[0].value = "none".into();
    new.is_quick = true;
    new.stores[3].url = "mysql://elsewhere/".into();
    let trip = |value: &str| Setting {
        name: ROUND_TRIP.into(),
        value: value.into(),
        meaning: String::new(),
    };
    new.stores[0].settings.push(trip("90 µs"));
    let text = compare(&old, &new).to_string();
    for part in [
        "redis is another server: Redis 7.1",
        "zookeeper settings: durability = some",
        "kind of run: full",
        "mysql-optimistic is at another address",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("memory settings"), "{text}");
}
