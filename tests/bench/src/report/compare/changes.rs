//! Compares two reports, figure by figure.

use super::{Change, Comparison};
use crate::report::{
    Better, Metric, Outcome, Report, Scenario, Series, Side, Verdict, lookup, table, words,
};

/// With fewer rounds, chance alone too often puts all rounds of one report above all rounds of the
/// other.
const MIN_ROUNDS: usize = 5;

/// A gap between the ranges of this part of the median is clear, however wide the ranges are.
const CLEAR_GAP: f64 = 0.1;

/// Medians that differ by this factor are clear too, if the ranges have no common value.
const CLEAR_FACTOR: f64 = 1.5;

/// The least difference of medians that counts.
const fn threshold(metric: Metric) -> f64 {
    match metric {
        Metric::RequestsPerGrant => 0.02,
        _ => 0.05,
    }
}

/// One unlucky wait of a whole run, or the allocator, can decide these figures. The comparison
/// lists them, but they must not stop a release.
const fn is_noisy(metric: Metric) -> bool {
    matches!(metric, Metric::WaitMaxUs | Metric::BytesPerLock)
}

/// Whether a figure exists whenever a case was measured. The others need many grants, or a server
/// that reports its counts.
const fn is_always_there(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::GrantsPerSecond | Metric::WaitP50Us | Metric::HandOffP50Us | Metric::RecoveryMs
    )
}

pub(super) fn collect(comparison: &mut Comparison, old: &Report, new: &Report) {
    for before in own(old) {
        let after = twin(new, before, Side::Lockkit);
        if after.is_none()
            && let Some(reason) = not_run(new, before)
        {
            if !comparison.not_compared.contains(&reason) {
                comparison.not_compared.push(reason);
            }
            continue;
        }
        match (&before.verdict, after) {
            (Verdict::Measured { .. }, Some(after)) if table::reason(after).is_none() => {
                figures(comparison, (old, before), (new, after));
            }
            (Verdict::Measured { .. }, after) => {
                let reason =
                    after.and_then(table::reason).unwrap_or_else(|| "not in the new report".into());
                comparison.lost.push(format!("{}: {reason}", name(before)));
            }
            (_, Some(after)) if table::reason(after).is_none() => {
                comparison.gained.push(format!("{}: measured only in the new report", name(after)));
            }
            _ => {}
        }
    }
    let has_twin = |after: &Outcome| {
        twin(old, after, Side::Lockkit).or_else(|| other_rate(old, after)).is_some()
    };
    let is_new = |after: &&Outcome| !has_twin(after);
    comparison.gained.extend(
        own(new).filter(is_new).map(|after| format!("{}: not in the old report", name(after))),
    );
}

fn own(report: &Report) -> impl Iterator<Item = &Outcome> {
    report.outcomes.iter().filter(|outcome| outcome.side == Side::Lockkit)
}

fn twin<'a>(report: &'a Report, of: &Outcome, side: Side) -> Option<&'a Outcome> {
    report.outcome(of.scenario, &of.case, &of.store, side)
}

/// The same store's open loop at another rate, because the waits depend on the rate.
fn other_rate<'a>(report: &'a Report, of: &Outcome) -> Option<&'a Outcome> {
    let is_open = |outcome: &Outcome| outcome.scenario == Scenario::OpenLoop;
    own(report).find(|outcome| is_open(of) && is_open(outcome) && outcome.store == of.store)
}

/// The reason why the new report lacks this outcome, if the run did not try it. This was the user's
/// choice, and no failure.
fn not_run(new: &Report, before: &Outcome) -> Option<String> {
    let is_tried = |is_meant: &dyn Fn(&Outcome) -> bool| own(new).any(is_meant);
    if !new.stores.iter().any(|store| store.id == before.store) {
        return Some(format!("{}: not run", before.store));
    }
    if let Some(after) = other_rate(new, before) {
        let was = words::case(&before.case);
        let is = words::case(&after.case);
        return Some(format!(
            "{}, {}: other rate, {was} before and {is} now; give both runs the same --rate",
            before.store,
            words::title(before.scenario)
        ));
    }
    if !is_tried(&|after| after.scenario == before.scenario) {
        return Some(format!("{}: not run", words::title(before.scenario)));
    }
    (!is_tried(&|after| after.scenario == before.scenario && after.case == before.case)).then(
        || format!("{}, {}: not run", words::title(before.scenario), words::case(&before.case)),
    )
}

fn name(outcome: &Outcome) -> String {
    format!("{}, {}, {}", outcome.store, words::title(outcome.scenario), words::case(&outcome.case))
}

fn figures(
    comparison: &mut Comparison,
    (old, before): (&Report, &Outcome),
    (new, after): (&Report, &Outcome),
) {
    let Verdict::Measured { figures, .. } = &before.verdict else { return };
    for metric in figures.keys().copied() {
        let Some(was) = before.series(metric) else { continue };
        let Some(is) = after.series(metric) else {
            let gone = format!("{}: no {} any more", name(before), words::metric(metric));
            if is_always_there(metric) {
                comparison.lost.push(gone);
            } else {
                comparison.not_compared.push(gone);
            }
            continue;
        };
        let ratios = Side::RIVALS.into_iter().find_map(|side| {
            let was = relative(old, before, side, metric)?;
            Some((Some(side), was, relative(new, after, side, metric)?))
        });
        let (over, was, is) = ratios.unwrap_or_else(|| (None, was.clone(), is.clone()));
        let is_short = was.0.len().min(is.0.len()) < MIN_ROUNDS;
        let change = Change {
            scenario: before.scenario,
            case: before.case.clone(),
            store: before.store.clone(),
            metric,
            over,
            old: was,
            new: is,
        };
        let found = change.is_for_the_better();
        if is_short {
            comparison.too_few_rounds += 1;
            comparison.untold.extend(found.map(|_| change));
            continue;
        }
        comparison.compared += 1;
        match found {
            Some(_) if is_noisy(metric) => comparison.noisy.push(change),
            Some(true) => comparison.better.push(change),
            Some(false) => comparison.worse.push(change),
            None => {}
        }
    }
}

/// The ratio to a rival. Request counts need no ratio, because they are exact, and fairness needs
/// none, because the machine's speed does not decide it.
fn relative(report: &Report, own: &Outcome, side: Side, metric: Metric) -> Option<Series> {
    if matches!(metric, Metric::RequestsPerGrant | Metric::MostOverLeast) {
        return None;
    }
    let rival = twin(report, own, side)?.series(metric)?;
    lookup::ratio(own.series(metric)?, rival)
}

impl Change {
    /// The relative change of the median: 0.1 is 10 % more.
    pub(super) fn part(&self) -> Option<f64> {
        let old = self.old.median()?;
        let new = self.new.median()?;
        // Both medians may be zero or infinite.
        if old == new { Some(0.0) } else { Some(new / old - 1.0) }
    }

    /// Returns `None` if the difference is within the noise.
    fn is_for_the_better(&self) -> Option<bool> {
        let part = self.part()?;
        if part.abs() <= threshold(self.metric) || !self.is_apart() {
            return None;
        }
        Some((part > 0.0) == (self.metric.better() == Better::Higher))
    }

    /// Whether the gap between the ranges is clear. It must be as wide as the wider range, or a
    /// tenth of the median, or the medians must be far apart. A gap alone proves little: in two
    /// similar runs, every hundredth figure has one.
    fn is_apart(&self) -> bool {
        let range = |series: &Series| Some((series.min()?, series.max()?));
        let (Some(old), Some(new), Some(median)) =
            (range(&self.old), range(&self.new), self.old.median())
        else {
            return false;
        };
        let gap = (new.0 - old.1).max(old.0 - new.1);
        let wider = (old.1 - old.0).max(new.1 - new.0);
        let is_far = self
            .part()
            .is_some_and(|part| part + 1.0 >= CLEAR_FACTOR || part + 1.0 <= CLEAR_FACTOR.recip());
        gap > 0.0 && (gap >= wider || gap >= median.abs() * CLEAR_GAP || is_far)
    }
}
