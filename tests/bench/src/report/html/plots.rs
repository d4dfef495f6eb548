//! Chooses the lines and axes of each plot.

use std::collections::BTreeSet;

use super::lines::{Axis, Line};
use crate::report::{Case, Metric, Report, Scenario, Series, Side};

/// The percentiles that get a tick and marks.
const PERCENTILES: [(f64, &str); 7] = [
    (0.0, "0"),
    (50.0, "50th"),
    (90.0, "90th"),
    (99.0, "99th"),
    (99.9, "99.9th"),
    (99.99, "99.99th"),
    (99.999, "99.999th"),
];

/// Plots how long waits were, over all grants of a case.
pub(super) fn percentiles(
    report: &Report,
    scenario: Scenario,
    case: &Case,
) -> Option<(Axis, Axis, Vec<Line>)> {
    let mut lines = Vec::new();
    let mut end: f64 = 1.0;
    for (index, store) in report.stores.iter().enumerate() {
        let outcome = report.outcome(scenario, case, &store.id, Side::Lockkit);
        let Some(curve) = outcome.and_then(|outcome| outcome.curve()) else { continue };
        let last = f64::from(u32::try_from(curve.count).unwrap_or(u32::MAX)).max(2.0).log10();
        let place = |percentile: f64| -(1.0 - percentile / 100.0).max(0.0).log10();
        let drawn = curve.points.iter().filter(|[_, us]| *us > 0.0 && us.is_finite());
        let points: Vec<_> =
            drawn.map(|[percentile, us]| (place(*percentile).min(last), us.log10())).collect();
        let marked = PERCENTILES.iter().filter_map(|(percentile, _)| {
            let x = place(*percentile);
            points.iter().copied().find(|point| point.0 >= x - 1e-9 && point.0 <= x + 0.02)
        });
        end = end.max(last.min(5.3));
        let points: Vec<_> = points.iter().copied().filter(|(x, _)| *x <= 5.3).collect();
        lines.push(Line {
            name: store.id.clone(),
            store: index,
            marked: marked.collect(),
            points,
            ranges: vec![],
        });
    }
    let y = times("wait", &lines)?;
    let ticks =
        PERCENTILES.iter().map(|(p, name)| (-(1.0 - p / 100.0).log10(), (*name).to_owned()));
    let ticks = ticks.filter(|(at, _)| *at <= end).collect();
    let x = Axis { name: "percentile of all grants".into(), range: (0.0, end), ticks };
    Some((x, y, lines))
}

/// Plots a duration against the number of tasks.
pub(super) fn by_tasks(
    report: &Report,
    scenario: Scenario,
    metric: Metric,
) -> Option<(Axis, Axis, Vec<Line>)> {
    let mut cases: Vec<_> = report
        .cases(scenario)
        .into_iter()
        .filter_map(|case| Some((f64::from(case.tasks?), case)))
        .collect();
    cases.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let counts: BTreeSet<_> = cases.iter().filter_map(|(_, case)| case.tasks).collect();
    // A second case of the same number would put two values at one place.
    if counts.len() < 2 || counts.len() != cases.len() {
        return None;
    }
    let mut lines = Vec::new();
    for (index, store) in report.stores.iter().enumerate() {
        let found: Vec<_> = (cases.iter())
            .filter_map(|(tasks, case)| {
                place(tasks.log10(), report.own(scenario, case, store, metric)?)
            })
            .collect();
        if found.is_empty() {
            continue;
        }
        let points: Vec<_> = found.iter().map(|(point, _)| *point).collect();
        let ranges = found.iter().map(|(_, range)| *range).collect();
        lines.push(Line {
            name: store.id.clone(),
            store: index,
            marked: points.clone(),
            points,
            ranges,
        });
    }
    let y = times("from release to grant", &lines)?;
    let ticks: Vec<_> =
        counts.iter().map(|count| (f64::from(*count).log10(), count.to_string())).collect();
    let first = ticks.first()?.0;
    let last = ticks.last()?.0;
    let x =
        Axis { name: "tasks that want the name".into(), range: (first - 0.06, last + 0.06), ticks };
    Some((x, y, lines))
}

type Place = ((f64, f64), (f64, f64, f64));

fn place(x: f64, series: &Series) -> Option<Place> {
    let logarithm = |value: f64| (value > 0.0 && value.is_finite()).then(|| value.log10());
    let low = logarithm(series.min()?)?;
    let high = logarithm(series.max()?)?;
    Some(((x, logarithm(series.median()?)?), (x, low, high)))
}

/// A logarithmic axis of microseconds that holds all lines; `None` if there are none.
fn times(name: &str, lines: &[Line]) -> Option<Axis> {
    let points = || lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y));
    let ends = || {
        lines.iter().flat_map(|line| line.ranges.iter().flat_map(|(_, low, high)| [*low, *high]))
    };
    let low = points().chain(ends()).min_by(f64::total_cmp)?;
    let high = points().chain(ends()).max_by(f64::total_cmp)?;
    let range = (low - 0.08, high + 0.08);
    let steps: &[f64] = if range.1 - range.0 < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    for decade in -3..=9 {
        for step in steps {
            let us = step * 10_f64.powi(decade);
            let at = us.log10();
            if range.0 <= at && at <= range.1 {
                ticks.push((at, round(us)));
            }
        }
    }
    Some(Axis { name: name.into(), range, ticks })
}

/// A round number of microseconds, in its unit.
fn round(us: f64) -> String {
    let (size, unit) = match us {
        us if us >= 1e6 => (1e6, "s"),
        us if us >= 1e3 => (1e3, "ms"),
        us if us >= 1.0 => (1.0, "µs"),
        _ => (1e-3, "ns"),
    };
    format!("{:.0} {unit}", us / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn ticks_are_round_and_inside() {
        let line = |low: f64, high: f64| Line {
            name: String::new(),
            store: 0,
            points: vec![(0.0, low.log10()), (1.0, high.log10())],
            marked: vec![],
            ranges: vec![],
        };
        let names = |low, high| {
            times("", &[line(low, high)])
                .unwrap()
                .ticks
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(90.0, 2_100.0), ["100 µs", "200 µs", "500 µs", "1 ms", "2 ms"]);
        assert_eq!(
            names(0.5, 2_000_000.0),
            ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert!(times("", &[]).is_none());
    }

    /// The 100th percentile is infinitely far out on this scale. It is drawn at the place of the
    /// slowest of this many grants.
    #[test]
    fn the_slowest_grant_is_at_the_end_of_its_line() {
        let report = sample::report();
        let case = report.cases(Scenario::Uncontended)[0];
        let (x, _, lines) = percentiles(&report, Scenario::Uncontended, case).unwrap();
        assert_eq!(lines.len(), 5);
        let last = lines[0].points.last().unwrap().0;
        assert!((last - 60_000_f64.log10()).abs() < 1e-9, "{last}");
        assert!(x.range.1 >= last);
        assert_eq!(x.name, "percentile of all grants");
        let ticks: Vec<_> = x.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(ticks, ["0", "50th", "90th", "99th", "99.9th", "99.99th"]);
    }

    #[test]
    fn hand_off_is_drawn_over_tasks() {
        let (x, _, lines) =
            by_tasks(&sample::report(), Scenario::HandOff, Metric::HandOffP50Us).unwrap();
        assert_eq!(
            x.ticks.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(),
            ["2", "8", "64", "256"]
        );
        assert!(lines.iter().all(|line| line.points.len() == 4 && line.ranges.len() == 4));
    }
}
