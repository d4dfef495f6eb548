//! Who is ahead, as far as the rounds can tell.

use crate::report::{Better, Case, Metric, Report, Scenario, Series, Store, words};

/// What is closer than this is the same for all practical purposes.
const SAME: f64 = 1.05;

/// A store and its rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranked<'a> {
    pub(super) store: &'a Store,
    pub(super) series: &'a Series,
    median: f64,
}

/// What a ranking says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding<'a> {
    /// One is ahead of all others in each round, and by this factor of the next.
    Best { best: Ranked<'a>, next: Ranked<'a>, factor: f64 },
    /// These can't be told apart, and no other is ahead of them.
    Tied(Vec<Ranked<'a>>),
    /// There was only one.
    Alone(Ranked<'a>),
    /// There was none.
    Nobody,
    /// Of a quick run, or of too few rounds.
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

/// What may be said of a ranking.
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
    /// The stores that are put forward.
    pub(super) fn named(&self) -> Vec<&'a Store> {
        match self {
            Self::Best { best, .. } => vec![best.store],
            Self::Alone(one) => vec![one.store],
            Self::Tied(all) => all.iter().map(|one| one.store).collect(),
            Self::Nobody | Self::TooShort => Vec::new(),
        }
    }
}
