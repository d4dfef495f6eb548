//! Draws bars: one row for each store, with the range of the rounds. The bars of the rivals are
//! under lockkit's bar.

use maud::{Markup, html};

use super::palette;
use crate::report::{
    Case, GuaranteeClass, Metric, Report, Scenario, Series, Side, lookup, numbers, table, words,
};

/// The part of a style sheet that bars need, beside the palette.
pub(super) const STYLE: &str = include_str!("bars.css");

pub(super) const WIDTH: f64 = 820.0;
/// The x position where bars begin.
const LEFT: f64 = 180.0;
/// The length of the longest bar. The text after the bar needs the remaining width.
const LENGTH: f64 = 370.0;
const BAR: f64 = 18.0;
const RIVAL: f64 = 8.0;
/// The distance between two rivals' bars, with room for the text after a bar.
const STEP: f64 = 14.0;
/// The number of characters of a name that fit in front of the bars.
const NAME: usize = 20;

struct Row<'a> {
    name: &'a str,
    store: usize,
    /// Whether the store serves one host only. The other stores set the scale.
    is_aside: bool,
    own: Option<&'a Series>,
    rivals: Vec<(Side, &'a Series)>,
    missing: String,
}

/// The bars of a case, and their height. Returns `None` if no store has the figure.
pub(super) fn draw(
    report: &Report,
    scenario: Scenario,
    case: &Case,
    metric: Metric,
    title: &str,
) -> Option<(Markup, f64)> {
    let rows: Vec<_> = rows(report, scenario, case, metric);
    let scale = scale(&rows)?;
    let mut top = 4.0;
    let mut drawn = Vec::new();
    for row in &rows {
        drawn.push((top, row));
        top += BAR + STEP + row.rivals.iter().map(|_| STEP).sum::<f64>();
    }
    let bars = html! {
        svg.bars viewBox=(format!("0 0 {WIDTH} {top}")) role="img" aria-label=(title) {
            title { (title) }
            @for (top, row) in &drawn { (draw_row(row, *top, scale, metric)) }
            line.axis x1=(LEFT) x2=(LEFT) y1="0" y2=(top) {}
        }
    };
    Some((bars, top))
}

fn rows<'a>(report: &'a Report, scenario: Scenario, case: &Case, metric: Metric) -> Vec<Row<'a>> {
    let stores = report.stores.iter().enumerate();
    let rows = stores.filter_map(|(index, store)| {
        let outcome = report.outcome(scenario, case, &store.id, Side::Lockkit)?;
        let rivals = Side::RIVALS.into_iter().filter_map(|side| {
            Some((side, report.series(scenario, case, &store.id, side, metric)?))
        });
        Some(Row {
            name: &store.id,
            store: index,
            is_aside: store.guarantee.class <= GuaranteeClass::Host,
            own: outcome.series(metric),
            rivals: rivals.collect(),
            missing: table::reason(outcome).unwrap_or_else(|| "not measured".into()),
        })
    });
    rows.collect()
}

/// The largest value that the bars have to show.
fn scale(rows: &[Row<'_>]) -> Option<f64> {
    let largest = |is_meant: &dyn Fn(&&Row<'_>) -> bool| {
        let meant = || rows.iter().filter(is_meant);
        let rivals = meant().flat_map(|row| row.rivals.iter().map(|(_, rival)| *rival));
        let series = meant().filter_map(|row| row.own).chain(rivals);
        series.filter_map(Series::max).filter(|max| max.is_finite()).max_by(f64::total_cmp)
    };
    largest(&|row| !row.is_aside).or_else(|| largest(&|_| true))
}

fn draw_row(row: &Row<'_>, top: f64, scale: f64, metric: Metric) -> Markup {
    let middle = top + BAR / 2.0;
    html! {
        g class=(palette::class(row.store)) {
            polygon.mark points=(corners(row.store, 10.0, middle)) {}
            text x="24" y=(middle + 5.0) { (shortened(row.name)) title { (row.name) } }
            @match row.own {
                Some(own) => (draw_bar(own, "own", (top, BAR), scale, metric)),
                None => text.muted x=(LEFT + 8.0) y=(middle + 5.0) { (kind(&row.missing)) title { (row.missing) } },
            }
            @for (top, (side, rival)) in tops(top + BAR + 2.0).zip(&row.rivals) {
                (draw_bar(rival, "floor", (top, RIVAL), scale, metric))
                text.small x=(place(rival.max(), scale) + 10.0) y=(top + RIVAL + 2.0) { (beside(row.own, *side, rival, metric)) }
            }
        }
    }
}

/// The tops of the rivals' bars.
fn tops(first: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), |top| Some(top + STEP))
}

fn draw_bar(
    series: &Series,
    class: &str,
    (top, height): (f64, f64),
    scale: f64,
    metric: Metric,
) -> Markup {
    let at = |value| place(value, scale);
    let low = at(series.min());
    let end = at(series.median());
    let high = at(series.max());
    let is_cut = series.median().is_some_and(|median| median > scale);
    let middle = top + height / 2.0;
    html! {
        rect class=(class) x=(LEFT) y=(top) width=(end - LEFT) height=(height) {
            title { (numbers::with_range(metric, series)) }
        }
        @if is_cut {
            polygon.cut points=(gap(end - 16.0, top, height)) {}
        } @else {
            path.whisker d=(format!("M{low} {middle}H{high}M{low} {0}V{1}M{high} {0}V{1}", middle - 4.0, middle + 4.0)) {}
        }
        @if class == "own" {
            text.value x=(end.max(high) + 10.0) y=(middle + 5.0) { (numbers::with_range(metric, series)) }
        }
    }
}

/// The x position of a value.
fn place(value: Option<f64>, scale: f64) -> f64 {
    let part = value.unwrap_or(0.0) / scale;
    LEFT + LENGTH * if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
}

/// The text for a rival's value, and for lockkit's value divided by it.
fn beside(own: Option<&Series>, side: Side, rival: &Series, metric: Metric) -> String {
    let value =
        rival.median().map_or_else(String::new, |median| numbers::shown(metric, median).text());
    let side = words::side(side);
    let ratio = own.and_then(|own| lookup::ratio(own, rival)).and_then(|ratio| ratio.median());
    match ratio {
        Some(ratio) => format!("{side} {value}, ratio {}", numbers::three(ratio)),
        None => format!("{side} {value}"),
    }
}

fn kind(reason: &str) -> &str {
    reason.split(':').next().unwrap_or(reason)
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME {
        name.into()
    } else {
        name.chars().take(NAME - 1).chain(['…']).collect()
    }
}

/// The outline of a store's mark around a point.
pub(super) fn corners(store: usize, x: f64, y: f64) -> String {
    let corner = |(dx, dy): &(i32, i32)| format!("{},{}", x + f64::from(*dx), y + f64::from(*dy));
    palette::shape(store).iter().map(corner).collect::<Vec<_>>().join(" ")
}

/// A slanted gap in a bar that continues beyond the picture.
fn gap(x: f64, top: f64, height: f64) -> String {
    let bottom = top + height;
    format!("{},{top} {},{top} {},{bottom} {},{bottom}", x, x + 6.0, x, x - 6.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn drawn(report: &Report, scenario: Scenario, metric: Metric) -> String {
        let case = report.typical(scenario, metric).unwrap();
        draw(report, scenario, case, metric, "the title").unwrap().0.into_string()
    }

    /// Memory locks are a hundred times as fast, so all other bars would look alike.
    #[test]
    fn a_store_of_one_process_does_not_set_the_scale() {
        let svg = drawn(&sample::report(), Scenario::OwnNames, Metric::GrantsPerSecond);
        assert_eq!(svg.matches("class=\"cut\"").count(), 1);
        let widths: Vec<f64> = svg
            .split("<rect class=\"own\"")
            .skip(1)
            .map(|rest| {
                rest.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
            })
            .collect();
        assert_eq!(widths.len(), 5);
        assert_eq!(widths[0], LENGTH, "the one that is cut");
        assert!(widths[1] > 0.8 * LENGTH && widths[1] < LENGTH, "{widths:?}");
        assert!(
            (widths[1] / widths[2] - 42_000.0 / 9_000.0).abs() < 0.1,
            "in proportion: {widths:?}"
        );
    }

    #[test]
    fn a_case_without_a_figure_has_a_row_with_the_cause() {
        let svg = drawn(&sample::report(), Scenario::Semaphore, Metric::GrantsPerSecond);
        assert!(svg.contains("failed<title>failed: could not take"), "{svg}");
    }

    #[test]
    fn nothing_and_infinity_are_drawn_inside_the_picture() {
        let mut report = sample::tiny([0.0; 3], [0.0; 3]);
        assert!(!drawn(&report, Scenario::OwnNames, Metric::GrantsPerSecond).contains("NaN"));
        report = sample::tiny([1.0, f64::INFINITY, f64::INFINITY], [1.0; 3]);
        let svg = drawn(&report, Scenario::OwnNames, Metric::GrantsPerSecond);
        assert!(!svg.contains("inf") && !svg.contains("NaN"), "{svg}");
    }
}
