//! Answers for users who already have a store.

use super::{Answer, caution, needs};
use crate::report::{
    Case, GuaranteeClass, Metric, Report, Scenario, Side, Store, lookup, numbers,
    verdict::rank::{finding, rank},
};

/// Products that their operators treat as the same.
const FAMILIES: [(&str, &[&str]); 3] = [
    ("MySQL or MariaDB", &["mysql", "mariadb", "percona"]),
    ("Redis", &["redis", "valkey"]),
    ("ZooKeeper", &["zookeeper"]),
];

/// The figures that matter for each store.
const FIGURES: [(&str, Scenario, Metric); 5] = [
    ("wait without contention", Scenario::Uncontended, Metric::WaitP50Us),
    ("grants on many names", Scenario::OwnNames, Metric::GrantsPerSecond),
    ("grants on one hot name", Scenario::HotName, Metric::GrantsPerSecond),
    ("most ÷ least", Scenario::HotName, Metric::MostOverLeast),
    ("next grant after a crash of the holder", Scenario::Recovery, Metric::RecoveryMs),
];

/// One answer for each family of stores that was measured.
pub(super) fn answers(report: &Report) -> Vec<Answer> {
    FAMILIES.iter().filter_map(|(name, products)| answer(report, name, products)).collect()
}

fn answer(report: &Report, name: &str, products: &[&str]) -> Option<Answer> {
    let is_member = |store: &Store| {
        let product = store.product.to_lowercase();
        store.guarantee.class > GuaranteeClass::Host
            && products.iter().any(|one| product.contains(one))
    };
    let members: Vec<_> = report.stores.iter().filter(|store| is_member(store)).collect();
    let text = match members.as_slice() {
        [] => return None,
        [one] => {
            vec![
                format!("{}.", summary(report, one)),
                format!("Guarantee: {}.", one.guarantee.class),
            ]
        }
        _ => choice(report, is_member),
    };
    let figures = match members.as_slice() {
        [_] => vec![],
        all => all.iter().map(|store| summary(report, store)).collect(),
    };
    let cautions = members.iter().filter_map(|store| caution(store)).collect();
    Some(Answer {
        need: format!("You already have {name}"),
        measure: None,
        text,
        named: vec![],
        figures,
        cautions,
    })
}

/// Compares the members of a family, for the two needs that differ most.
fn choice(report: &Report, is_member: impl Fn(&Store) -> bool) -> Vec<String> {
    let kinds = [
        ("Many names", Scenario::OwnNames, Metric::GrantsPerSecond),
        ("One hot name", Scenario::HotName, Metric::GrantsPerSecond),
    ];
    let texts = kinds.into_iter().filter_map(|(kind, scenario, metric)| {
        let case = report.typical(scenario, metric)?;
        let ranked = rank(report, (scenario, case, metric), &is_member);
        let said = needs::said(report, &finding(report, &ranked), metric);
        Some(said.map(|said| format!("{kind}: {said}")))
    });
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() {
        return vec!["This run has no figures that compare them.".into()];
    }
    texts.into_iter().flatten().collect()
}

/// A rate divided by the rate of the lock that needs no library.
fn over_classic(
    report: &Report,
    (scenario, case, metric): (Scenario, &Case, Metric),
    store: &Store,
) -> Option<String> {
    if metric != Metric::GrantsPerSecond {
        return None;
    }
    let classic = report.series(scenario, case, &store.id, Side::Classic, metric)?;
    let ratio = lookup::ratio(report.own(scenario, case, store, metric)?, classic)?.median()?;
    Some(format!(", {} times the classic", numbers::three(ratio)))
}

fn summary(report: &Report, store: &Store) -> String {
    let texts = FIGURES.iter().filter_map(|(what, scenario, metric)| {
        let case = report.typical(*scenario, *metric)?;
        let series = report.own(*scenario, case, store, *metric)?;
        let ratio = over_classic(report, (*scenario, case, *metric), store).unwrap_or_default();
        Some(format!("{what} {}{ratio}", numbers::with_range(*metric, series)))
    });
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() {
        format!("{}: no figures", store.id)
    } else {
        format!("{}: {}", store.id, texts.join("; "))
    }
}
