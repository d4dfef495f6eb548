//! Answers what to expect of the store that a user already has.

use super::{Answer, caution, needs};
use crate::report::{
    Case, GuaranteeClass, Metric, Report, Scenario, Side, Store, lookup, numbers,
    verdict::rank::{finding, rank},
};

/// Products that are the same thing to their operator.
const FAMILIES: [(&str, &[&str]); 3] = [
    ("MySQL or MariaDB", &["mysql", "mariadb", "percona"]),
    ("Redis", &["redis", "valkey"]),
    ("ZooKeeper", &["zookeeper"]),
];

/// The figures that matter for each store.
const FIGURES: [(&str, Scenario, Metric); 5] = [
    ("a lock that nobody else wants comes after", Scenario::Uncontended, Metric::WaitP50Us),
    ("all names together", Scenario::OwnNames, Metric::GrantsPerSecond),
    ("one hot name", Scenario::HotName, Metric::GrantsPerSecond),
    ("most ÷ least served", Scenario::HotName, Metric::MostOverLeast),
    (
        "after a crash of the holder, the next one gets it in",
        Scenario::Recovery,
        Metric::RecoveryMs,
    ),
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
                format!("Its guarantee: {}.", one.guarantee.class),
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
    let told = kinds.into_iter().filter_map(|(kind, scenario, metric)| {
        let case = report.typical(scenario, metric)?;
        let ranked = rank(report, (scenario, case, metric), &is_member);
        let said = needs::said(report, &finding(report, &ranked), metric);
        Some(said.map(|said| format!("{kind}: {said}")))
    });
    let told: Vec<_> = told.collect();
    if told.is_empty() {
        return vec!["Nothing was measured that would tell them apart.".into()];
    }
    told.into_iter().flatten().collect()
}

/// How a rate compares with what the user could have without a lock library.
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
    let told = FIGURES.iter().filter_map(|(what, scenario, metric)| {
        let case = report.typical(*scenario, *metric)?;
        let series = report.own(*scenario, case, store, *metric)?;
        let ratio = over_classic(report, (*scenario, case, *metric), store).unwrap_or_default();
        Some(format!("{what} {}{ratio}", numbers::with_range(*metric, series)))
    });
    let told: Vec<_> = told.collect();
    if told.is_empty() {
        format!("{}: nothing was measured", store.id)
    } else {
        format!("{}: {}", store.id, told.join("; "))
    }
}
