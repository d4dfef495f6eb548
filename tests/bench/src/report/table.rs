//! Builds the tables of a report, before they become Markdown or HTML.

use super::{
    Metric, Outcome, Report, Scenario, Series, Side, Store, Verdict, lookup, numbers, words,
};

/// All texts are plain: the code that renders the table escapes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// The reasons why cells are empty; a cell's note counts from 0.
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// The range that is shown behind the text.
    pub(super) detail: Option<String>,
    pub(super) note: Option<usize>,
}

impl Cell {
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    fn nothing() -> Self {
        Self::of("–")
    }

    fn series(metric: Metric, series: Option<&Series>) -> Self {
        match series.and_then(|series| numbers::median_and_range(metric, series)) {
            Some((text, range)) => Self { text, detail: Some(range), note: None },
            None => Self::nothing(),
        }
    }

    fn ratio(series: Option<&Series>) -> Self {
        let shown = series
            .and_then(|series| Some((series.median()?, series.min()?, series.max()?)))
            .map(|(median, min, max)| {
                (numbers::three(median), numbers::three(min), numbers::three(max))
            });
        match shown {
            Some((text, min, max)) => {
                Self { text, detail: Some(format!("{min}–{max}")), note: None }
            }
            None => Self::nothing(),
        }
    }
}

impl Table {
    fn note(&mut self, note: String) -> usize {
        let known = self.notes.iter().position(|other| *other == note);
        known.unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        })
    }
}

/// The metrics in the order of the columns.
const METRICS: [Metric; 13] = [
    Metric::GrantsPerSecond,
    Metric::HandOffP50Us,
    Metric::HandOffP99Us,
    Metric::RecoveryMs,
    Metric::IdleRequestsPerSecond,
    Metric::WaitP50Us,
    Metric::WaitP99Us,
    Metric::WaitMaxUs,
    Metric::RequestsPerGrant,
    Metric::MostOverLeast,
    Metric::BytesPerLock,
    Metric::CpuPercent,
    Metric::LeaseMs,
];

/// The metrics of a scenario that at least one store has.
pub(super) fn metrics(report: &Report, scenario: Scenario) -> Vec<Metric> {
    let of_scenario: Vec<_> =
        report.outcomes.iter().filter(|outcome| outcome.scenario == scenario).collect();
    let has =
        |metric| of_scenario.iter().any(|o| o.side == Side::Lockkit && o.series(metric).is_some());
    METRICS.into_iter().filter(|metric| has(*metric)).collect()
}

/// The metric to compare with the rivals: the first that lockkit and a rival have.
pub(super) fn compared(report: &Report, scenario: Scenario) -> Option<Metric> {
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

/// The columns of a scenario: behind the compared figure, each rival's figure with the ratio to it,
/// and behind the fairness, that of each rival.
fn columns(report: &Report, scenario: Scenario) -> Vec<Column> {
    let compared = compared(report, scenario);
    let was_run = |side| report.outcomes.iter().any(|o| o.scenario == scenario && o.side == side);
    let mut columns = Vec::new();
    for metric in metrics(report, scenario) {
        columns.push(Column::Own(metric));
        for side in Side::RIVALS {
            if Some(metric) == compared && was_run(side) {
                columns.extend([Column::Rival(side, metric, true), Column::Ratio(side, metric)]);
            } else if metric == Metric::MostOverLeast && has(report, scenario, side, metric) {
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

/// The reason why an outcome has no figures.
pub(super) fn reason(outcome: &Outcome) -> Option<String> {
    match &outcome.verdict {
        Verdict::Measured { .. } => None,
        Verdict::NotApplicable { reason } => Some(format!("not applicable: {reason}")),
        Verdict::Failed { reason } => Some(format!("failed: {reason}")),
    }
}

/// The reason why a figure is missing, in a case that was measured or in one that was not.
pub(super) fn absence(outcome: &Outcome, metric: Metric) -> Option<String> {
    let lacks = || outcome.series(metric).is_none();
    reason(outcome)
        .or_else(|| lacks().then(|| format!("measured without this: {}", words::lack(metric))))
}

/// The table of the stores, with the guarantee of a lock on each.
pub(super) fn stores(report: &Report) -> Table {
    let yes = |yes: bool| Cell::of(if yes { "yes" } else { "no" });
    let mut table = Table {
        headings: [
            "store",
            "version",
            "guarantee",
            "what that means",
            "in order",
            "told when next",
            "settings",
        ]
        .map(String::from)
        .to_vec(),
        ..Table::default()
    };
    for store in &report.stores {
        let settings: Vec<_> = store
            .settings
            .iter()
            .map(|s| format!("{} = {} ({})", s.name, s.value, s.meaning))
            .collect();
        table.rows.push(vec![
            Cell { text: store.id.clone(), detail: Some(store.url.clone()), note: None },
            Cell::of(words::product(store)),
            Cell::of(store.guarantee.class.to_string()),
            Cell::of(&store.guarantee.text),
            yes(store.is_fair),
            yes(store.is_pushed),
            Cell::of(if settings.is_empty() { "not told".into() } else { settings.join("; ") }),
        ]);
    }
    table
}

/// The figures that matter for most decisions.
const GLANCE: [(&str, Scenario, Metric); 7] = [
    ("wait, nobody else", Scenario::Uncontended, Metric::WaitP50Us),
    ("many names", Scenario::OwnNames, Metric::GrantsPerSecond),
    ("one hot name", Scenario::HotName, Metric::GrantsPerSecond),
    ("its p99 wait", Scenario::HotName, Metric::WaitP99Us),
    ("its most ÷ least", Scenario::HotName, Metric::MostOverLeast),
    ("recovery", Scenario::Recovery, Metric::RecoveryMs),
    ("idle locks", Scenario::IdleLocks, Metric::IdleRequestsPerSecond),
];

/// One row for each store, with the typical case of each scenario.
pub(super) fn glance(report: &Report) -> Table {
    let cases = GLANCE.iter().filter_map(|(heading, scenario, metric)| {
        Some((*heading, *scenario, *metric, report.typical(*scenario, *metric)?))
    });
    let cases: Vec<_> = cases.collect();
    let mut table =
        Table { headings: vec!["store".into(), "guarantee".into()], ..Table::default() };
    table.headings.extend(cases.iter().map(|(heading, ..)| (*heading).to_owned()));
    for store in &report.stores {
        let mut row = vec![Cell::of(&store.id), Cell::of(store.guarantee.class.to_string())];
        for (_, scenario, metric, case) in &cases {
            let mut cell = Cell::series(*metric, report.own(*scenario, case, store, *metric));
            let outcome = report.outcome(*scenario, case, &store.id, Side::Lockkit);
            let why = outcome.and_then(|outcome| absence(outcome, *metric));
            cell.note = why
                .map(|why| table.note(format!("{}, {}: {why}", store.id, words::title(*scenario))));
            row.push(cell);
        }
        table.rows.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

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
        let table = stores(&report);
        assert!(table.rows.iter().all(|row| row.len() == table.headings.len()));
    }

    #[test]
    fn the_ratio_stands_behind_its_floor_and_is_the_median_of_rounds() {
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
    fn the_ratio_to_the_classic_comes_before_those_to_the_bare_driver_and_to_a_peer() {
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
    fn a_glance_says_why_a_figure_is_missing() {
        let mut report = sample::tiny([1.0; 3], [1.0; 3]);
        let mut other = sample::store("other", "Redis", crate::report::GuaranteeClass::Volatile);
        other.version = "7".into();
        report.stores.push(other);
        let verdict = Verdict::Failed { reason: "no route".into() };
        report.outcomes.push(Outcome {
            store: "other".into(),
            verdict,
            ..report.outcomes[0].clone()
        });
        let table = glance(&report);
        assert_eq!(table.notes, ["other, Many names, one task each: failed: no route"]);
        assert_eq!(table.rows[1][2].note, Some(0));
    }

    #[test]
    fn what_is_missing_says_why_once() {
        let mut report = sample::tiny([1.0; 3], [1.0; 3]);
        for outcome in &mut report.outcomes {
            outcome.verdict = Verdict::Failed { reason: "no route".into() };
        }
        let table = scenario(&report, Scenario::OwnNames);
        assert_eq!(table.notes, ["only: failed: no route"]);
        assert_eq!(table.rows[0][1].note, Some(0));
    }
}
