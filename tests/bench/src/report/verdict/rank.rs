//! Ranks the stores, as far as the rounds can prove an order.

use crate::report::{Better, Case, Metric, Report, Scenario, Series, Store, words};

/// Values within this factor are the same for all practical purposes.
const SAME: f64 = 1.05;

/// A store and its rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranked<'a> {
    pub(super) store: &'a Store,
    pub(super) series: &'a Series,
    median: f64,
}

/// The result of a ranking.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding<'a> {
    /// One store is ahead of all others in each round, and ahead of the next by this factor.
    Best { best: Ranked<'a>, next: Ranked<'a>, factor: f64 },
    /// These stores can't be distinguished, and no other store is ahead of them.
    Tied(Vec<Ranked<'a>>),
    /// There was only one store.
    Alone(Ranked<'a>),
    /// There was no store.
    Nobody,
    /// The run was a quick run, or had too few rounds.
    TooShort,
}

/// The stores that were measured, the best first.
pub(super) fn rank<'a>(
    report: &'a Report,
    (scenario, case, metric): (Scenario, &Case, Metric),
    is_meant: impl Fn(&Store) -> bool,
) -> Vec<Ranked<'a>> {
    let mut ranked: Vec<_> = (report.stores.iter().filter(|store| is_meant(store)))
        .filter_map(|store| {
            let series = report.own(scenario, case, store, metric)?;
            Some(Ranked { store, series, median: series.median()? })
        })
        .collect();
    ranked.sort_by(|one, other| match metric.better() {
        Better::Higher => other.median.total_cmp(&one.median),
        Better::Lower => one.median.total_cmp(&other.median),
    });
    ranked
}

/// The conclusion that a ranking allows.
pub(super) fn finding<'a>(report: &Report, ranked: &[Ranked<'a>]) -> Finding<'a> {
    let [best, others @ ..] = ranked else { return Finding::Nobody };
    if report.is_quick || ranked.iter().any(|one| has_few_rounds(one.series)) {
        return Finding::TooShort;
    }
    let Some(next) = others.first() else { return Finding::Alone(best.clone()) };
    let is_like_best =
        |other: &&Ranked<'a>| best.series.overlaps(other.series) || factor(best, other) < SAME;
    let alike: Vec<_> = others.iter().filter(is_like_best).cloned().collect();
    if alike.is_empty() {
        return Finding::Best {
            best: best.clone(),
            next: next.clone(),
            factor: factor(best, next),
        };
    }
    Finding::Tied([best.clone()].into_iter().chain(alike).collect())
}

fn has_few_rounds(series: &Series) -> bool {
    u32::try_from(series.0.len()).is_ok_and(|rounds| rounds < words::MIN_ROUNDS)
}

fn factor(best: &Ranked<'_>, other: &Ranked<'_>) -> f64 {
    (best.median / other.median).max(other.median / best.median)
}

impl<'a> Finding<'a> {
    /// The stores that the finding names.
    pub(super) fn named(&self) -> Vec<&'a Store> {
        match self {
            Self::Best { best, .. } => vec![best.store],
            Self::Alone(one) => vec![one.store],
            Self::Tied(all) => all.iter().map(|one| one.store).collect(),
            Self::Nobody | Self::TooShort => Vec::new(),
        }
    }
}
