//! Builds the table of a scenario: lockkit's figures, and the figures of its rivals.

use super::{
    Metric, Outcome, Report, Scenario, Side, Store, lookup,
    table::{Cell, Table, reason},
    words,
};

/// The metrics in the order of the columns.
const METRICS: [Metric; 15] = [
    Metric::GrantsPerSecond,
    Metric::HandOffP50Us,
    Metric::HandOffP99Us,
    Metric::RecoveryMs,
    Metric::IdleRequestsPerSecond,
    Metric::WaitP50Us,
    Metric::WaitP99Us,
    Metric::WaitMaxUs,
    Metric::RequestsPerGrant,
    Metric::ClientCpuUs,
    Metric::ServerCpuUs,
    Metric::MostOverLeast,
    Metric::BytesPerLock,
    Metric::CpuPercent,
    Metric::LeaseMs,
];

/// Whether the rivals' figures are shown too, without a ratio.
const fn is_of_rivals_too(metric: Metric) -> bool {
    matches!(metric, Metric::MostOverLeast | Metric::ClientCpuUs | Metric::ServerCpuUs)
}

/// The metrics of a scenario that at least one store has.
fn metrics(report: &Report, scenario: Scenario) -> Vec<Metric> {
    let of_scenario: Vec<_> =
        report.outcomes.iter().filter(|outcome| outcome.scenario == scenario).collect();
    let has =
        |metric| of_scenario.iter().any(|o| o.side == Side::Lockkit && o.series(metric).is_some());
    METRICS.into_iter().filter(|metric| has(*metric)).collect()
}

/// The metric to compare with the rivals: the first that lockkit and a rival have.
fn compared(report: &Report, scenario: Scenario) -> Option<Metric> {
    metrics(report, scenario)
        .into_iter()
        .find(|metric| Side::RIVALS.into_iter().any(|side| has(report, scenario, side, *metric)))
}

fn has(report: &Report, scenario: Scenario, side: Side, metric: Metric) -> bool {
    report.outcomes.iter().any(|outcome| {
        outcome.scenario == scenario && outcome.side == side && outcome.series(metric).is_some()
    })
}

/// The figure of one column.
#[derive(Clone, Copy)]
enum Column {
    Own(Metric),
    /// A rival's figure. The flag says whether a note explains why it is missing.
    Rival(Side, Metric, bool),
    /// lockkit's figure, divided by the rival's.
    Ratio(Side, Metric),
}

impl Column {
    fn heading(self) -> String {
        match self {
            Self::Own(metric) => words::metric(metric).into(),
            Self::Rival(side, _, true) => words::side(side).into(),
            Self::Rival(side, metric, false) => {
                format!("{} of {}", words::metric(metric), words::side(side))
            }
            Self::Ratio(side, _) => format!("÷ {}", words::side(side)),
        }
    }
}

/// The columns of a scenario. Each rival's figure and the ratio to it follow the compared figure.
/// Each rival's fairness follows lockkit's fairness.
fn columns(report: &Report, scenario: Scenario) -> Vec<Column> {
    let compared = compared(report, scenario);
    let was_run = |side| report.outcomes.iter().any(|o| o.scenario == scenario && o.side == side);
    let mut columns = Vec::new();
    for metric in metrics(report, scenario) {
        columns.push(Column::Own(metric));
        for side in Side::RIVALS {
            if Some(metric) == compared && was_run(side) {
                columns.extend([Column::Rival(side, metric, true), Column::Ratio(side, metric)]);
            } else if is_of_rivals_too(metric) && has(report, scenario, side, metric) {
                columns.push(Column::Rival(side, metric, false));
            }
        }
    }
    columns
}

/// All figures of a scenario.
pub(super) fn scenario(report: &Report, scenario: Scenario) -> Table {
    let columns = columns(report, scenario);
    let mut table = Table { headings: vec!["case".into(), "store".into()], ..Table::default() };
    table.headings.extend(columns.iter().map(|column| column.heading()));
    for case in report.cases(scenario) {
        for store in &report.stores {
            let outcome = |side| report.outcome(scenario, case, &store.id, side);
            let own = outcome(Side::Lockkit);
            if own.is_none() && Side::RIVALS.into_iter().all(|side| outcome(side).is_none()) {
                continue;
            }
            let mut name = Cell::of(&store.id);
            name.note =
                own.and_then(reason).map(|reason| table.note(format!("{}: {reason}", store.id)));
            let mut row = vec![Cell::of(words::case(case)), name];
            for column in &columns {
                row.push(cell(&mut table, *column, store, outcome));
            }
            table.rows.push(row);
        }
    }
    table
}

fn cell<'a>(
    table: &mut Table,
    column: Column,
    store: &Store,
    outcome: impl Fn(Side) -> Option<&'a Outcome>,
) -> Cell {
    let figures = |side, metric| outcome(side).and_then(|outcome| outcome.series(metric));
    match column {
        Column::Own(metric) => Cell::series(metric, figures(Side::Lockkit, metric)),
        Column::Rival(side, metric, explains) => {
            let mut cell = Cell::series(metric, figures(side, metric));
            let why = outcome(side).filter(|_| explains).and_then(reason);
            cell.note = why
                .map(|reason| table.note(format!("{}, {}: {reason}", store.id, words::side(side))));
            cell
        }
        Column::Ratio(side, metric) => {
            let both = figures(Side::Lockkit, metric).zip(figures(side, metric));
            Cell::ratio(both.and_then(|(own, rival)| lookup::ratio(own, rival)).as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Verdict, sample};

    #[test]
    fn a_row_has_a_cell_for_each_heading() {
        let report = sample::report();
        for kind in report.scenarios() {
            let table = scenario(&report, kind);
            assert!(!table.rows.is_empty(), "{kind:?}");
            for row in &table.rows {
                assert_eq!(row.len(), table.headings.len(), "{kind:?}");
            }
        }
    }

    #[test]
    fn the_ratio_follows_its_floor_and_is_the_median_of_rounds() {
        let report = sample::tiny([10.0, 10.0, 60.0], [20.0, 10.0, 20.0]);
        let table = scenario(&report, Scenario::OwnNames);
        let at = table.headings.iter().position(|heading| heading == "÷ bare driver").unwrap();
        // The ratio of the medians would be 10 ÷ 20, which is another value.
        assert_eq!(
            table.rows[0][at],
            Cell { text: "1.00".into(), detail: Some("0.500–3.00".into()), note: None }
        );
        assert_eq!(table.rows[0][at - 1].text, "20.0/s");
    }

    /// A user compares with the lock that needs no library, so its ratio comes first.
    #[test]
    fn the_ratio_to_the_classic_comes_first() {
        let report = sample::report();
        let of = |scenario_: Scenario| {
            let headings = scenario(&report, scenario_).headings;
            headings.into_iter().filter(|heading| heading.starts_with('÷')).collect::<Vec<_>>()
        };
        let all = ["÷ classic", "÷ bare driver", "÷ rslock"];
        for compared in [Scenario::Uncontended, Scenario::OwnNames, Scenario::HotName] {
            assert_eq!(of(compared), all, "{compared:?}");
        }
        assert_eq!(of(Scenario::Zipf), ["÷ bare driver"]);
        let hot = scenario(&report, Scenario::HotName);
        assert!(hot.headings.contains(&"most ÷ least of classic".into()), "{:?}", hot.headings);
    }

    #[test]
    fn a_missing_figure_is_explained_once() {
        let mut report = sample::tiny([1.0; 3], [1.0; 3]);
        for outcome in &mut report.outcomes {
            outcome.verdict = Verdict::Failed { reason: "no route".into() };
        }
        let table = scenario(&report, Scenario::OwnNames);
        assert_eq!(table.notes, ["only: failed: no route"]);
        assert_eq!(table.rows[0][1].note, Some(0));
    }
}
