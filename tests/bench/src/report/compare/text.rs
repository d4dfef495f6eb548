//! Shows a comparison on the terminal.

use std::fmt;

use super::{Change, Comparison};
use crate::report::{Series, numbers, words};

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {}", plain(warning))?;
        }
        if let Some(reason) = &self.incomparable {
            return writeln!(f, "The reports can't be compared: {}.", plain(reason));
        }
        changes(f, "Worse", &self.worse)?;
        lines(f, "Lost", &self.lost)?;
        changes(f, "Better", &self.better)?;
        lines(f, "New", &self.gained)?;
        changes(f, "Changed, but decided by chance", &self.noisy)?;
        changes(f, "Too few rounds to decide", &self.untold)?;
        lines(f, "Not compared", &self.not_compared)?;
        match self.too_few_rounds {
            0 => {}
            1 => writeln!(f, "1 figure has fewer than 5 rounds, and does not count.")?,
            few => writeln!(f, "{few} figures have fewer than 5 rounds, and do not count.")?,
        }
        if !self.is_comparable() {
            return writeln!(f, "No figure could be compared.");
        }
        let worse = self.worse.len();
        let lost = self.lost.len();
        let better = self.better.len();
        let verdict = if self.is_regression() { "REGRESSION" } else { "No regression" };
        writeln!(
            f,
            "{verdict}: of {} figures, {worse} are worse, {better} are better and {lost} are lost.",
            self.compared
        )?;
        if worse > 0 {
            f.write_str(
                "A few figures look worse by chance. Measure both again: only a real change \
                 appears again.\n",
            )?;
        }
        Ok(())
    }
}

fn changes(f: &mut fmt::Formatter<'_>, heading: &str, changes: &[Change]) -> fmt::Result {
    let text: Vec<_> = changes.iter().map(change).collect();
    lines(f, heading, &text)
}

fn lines(f: &mut fmt::Formatter<'_>, heading: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "{heading}:")?;
    for line in lines {
        writeln!(f, "  {}", plain(line))?;
    }
    writeln!(f)
}

fn change(change: &Change) -> String {
    let part = match change.part() {
        Some(part) if part.is_finite() => format!("{:+.1}%", part * 100.0),
        _ => "from nothing".into(),
    };
    let old = value(change, &change.old);
    let new = value(change, &change.new);
    let what = change.over.map_or_else(String::new, |side| format!(" ÷ {}", words::side(side)));
    format!(
        "{}, {}, {}: {}{what} {old} -> {new}, {part}",
        change.store,
        words::title(change.scenario),
        words::case(&change.case),
        words::metric(change.metric),
    )
}

fn value(change: &Change, series: &Series) -> String {
    if change.over.is_none() {
        return numbers::with_range(change.metric, series);
    }
    let three = |value: Option<f64>| value.map_or_else(|| "?".into(), numbers::three);
    format!("{} ({}–{})", three(series.median()), three(series.min()), three(series.max()))
}

/// Removes control characters, because a server's text must not move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
