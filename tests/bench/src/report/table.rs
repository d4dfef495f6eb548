//! The tables of a report, before they become Markdown or HTML, and the tables of the stores.

use super::{Metric, Outcome, Report, Scenario, Series, Side, Verdict, numbers, words};

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

    pub(super) fn series(metric: Metric, series: Option<&Series>) -> Self {
        match series.and_then(|series| numbers::median_and_range(metric, series)) {
            Some((text, range)) => Self { text, detail: Some(range), note: None },
            None => Self::nothing(),
        }
    }

    pub(super) fn ratio(series: Option<&Series>) -> Self {
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
    pub(super) fn note(&mut self, note: String) -> usize {
        let known = self.notes.iter().position(|other| *other == note);
        known.unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        })
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

/// The reason why a figure is missing, in a measured or an unmeasured case.
pub(super) fn absence(outcome: &Outcome, metric: Metric) -> Option<String> {
    let lacks = || outcome.series(metric).is_none();
    reason(outcome).or_else(|| {
        lacks().then(|| format!("measured without this figure: {}", words::lack(metric)))
    })
}

/// The table of the stores, with the guarantee of a lock on each.
pub(super) fn stores(report: &Report) -> Table {
    let yes = |yes: bool| Cell::of(if yes { "yes" } else { "no" });
    let mut table = Table {
        headings: ["store", "version", "guarantee", "meaning", "in order", "notified", "settings"]
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
            Cell::of(if settings.is_empty() { "not reported".into() } else { settings.join("; ") }),
        ]);
    }
    table
}

/// The figures that matter for most decisions.
const GLANCE: [(&str, Scenario, Metric); 7] = [
    ("wait, no contention", Scenario::Uncontended, Metric::WaitP50Us),
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
        let table = stores(&sample::report());
        assert!(table.rows.iter().all(|row| row.len() == table.headings.len()));
    }

    #[test]
    fn the_summary_explains_a_missing_figure() {
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
}
