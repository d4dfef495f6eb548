//! Figure by figure.

use super::{Change, Comparison};
use crate::report::{Better, Metric, Outcome, Report, Series, Side, Verdict, lookup, table, words};

/// With fewer rounds than these nothing is known about the noise.
const MIN_ROUNDS: usize = 3;

/// By how much medians have to differ.
const fn threshold(metric: Metric) -> f64 {
    match metric {
        Metric::RequestsPerGrant => 0.02,
        _ => 0.05,
    }
}

pub(super) fn collect(comparison: &mut Comparison, old: &Report, new: &Report) {
    for before in own(old) {
        let after = twin(new, before, Side::Lockkit);
        match (&before.verdict, after) {
            (Verdict::Measured { .. }, Some(after)) if table::reason(after).is_none() => {
                figures(comparison, (old, before), (new, after));
            }
            (Verdict::Measured { .. }, after) => {
                let reason = after.and_then(table::reason).unwrap_or_else(|| "not in the new report".into());
                comparison.lost.push(format!("{}: {reason}", name(before)));
            }
            (_, Some(after)) if table::reason(after).is_none() => {
                comparison.gained.push(format!("{}: measured now, and not before", name(after)));
            }
            _ => {}
        }
    }
    let is_new = |after: &&Outcome| twin(old, after, Side::Lockkit).is_none();
    comparison
        .gained
        .extend(own(new).filter(is_new).map(|after| format!("{}: not in the old report", name(after))));
}

fn own(report: &Report) -> impl Iterator<Item = &Outcome> {
    report.outcomes.iter().filter(|outcome| outcome.side == Side::Lockkit)
}

fn twin<'a>(report: &'a Report, of: &Outcome, side: Side) -> Option<&'a Outcome> {
    report.outcome(of.scenario, &of.case, &of.store, side)
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
            comparison.lost.push(format!("{}: no {} any more", name(before), words::metric(metric)));
            continue;
        };
        let ratios = relative(old, before, metric).zip(relative(new, after, metric));
        let is_ratio = ratios.is_some();
        let (was, is) = ratios.unwrap_or_else(|| (was.clone(), is.clone()));
        if was.0.len().min(is.0.len()) < MIN_ROUNDS {
            comparison.too_few_rounds += 1;
            continue;
        }
        comparison.compared += 1;
        let change = Change {
            scenario: before.scenario,
            case: before.case.clone(),
            store: before.store.clone(),
            metric,
            is_ratio,
            old: was,
            new: is,
        };
        match change.is_for_the_better() {
            Some(true) => comparison.better.push(change),
            Some(false) => comparison.worse.push(change),
            None => {}
        }
    }
}

/// The ratio to the bare driver. Requests are counted exactly whatever the machine does, and need none.
fn relative(report: &Report, own: &Outcome, metric: Metric) -> Option<Series> {
    if metric == Metric::RequestsPerGrant {
        return None;
    }
    let floor = twin(report, own, Side::Floor)?.series(metric)?;
    lookup::ratio(own.series(metric)?, floor)
}

impl Change {
    /// By how much the median changed: 0.1 is 10 % more.
    pub(super) fn part(&self) -> Option<f64> {
        let (old, new) = (self.old.median()?, self.new.median()?);
        // Both may be nothing, or without end.
        if old == new { Some(0.0) } else { Some(new / old - 1.0) }
    }

    /// `None` if there is nothing beyond noise.
    fn is_for_the_better(&self) -> Option<bool> {
        let part = self.part()?;
        if self.old.overlaps(&self.new) || part.abs() <= threshold(self.metric) {
            return None;
        }
        Some((part > 0.0) == (self.metric.better() == Better::Higher))
    }
}
