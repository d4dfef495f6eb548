//! Tables for people.

use std::time::{Duration, UNIX_EPOCH};

use crate::{
    error::Result,
    output::{self, plain},
};

/// Rows of words, below a heading.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(heading: [&str; N]) -> Self {
        Self { rows: vec![heading.map(str::to_owned)] }
    }

    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| if cell.is_empty() { "-".to_owned() } else { plain(&cell) }));
    }

    /// Writes the table to standard output; writes nothing if it has no rows.
    pub(crate) fn print(&self) -> Result<()> {
        self.print_with(|_, line| line)
    }

    /// As [`print`](Self::print), but `paint` makes each line below the heading from the row's
    /// first word and the line.
    pub(crate) fn print_with(&self, paint: impl Fn(&str, String) -> String) -> Result<()> {
        if self.rows.len() < 2 {
            return Ok(());
        }
        let mut lines = self.lines();
        lines.by_ref().take(1).try_for_each(output::line)?;
        let words = self.rows.iter().skip(1).filter_map(|row| row.first());
        words.zip(lines).try_for_each(|(word, line)| output::line(paint(word, line)))
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        self.rows.iter().map(move |row| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
    }
}

/// A duration in two units at most, such as 3m12s.
pub(crate) fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let days = seconds / 86_400;
    let hours = seconds / 3_600 % 24;
    let minutes = seconds / 60 % 60;
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// A moment, from milliseconds since 1970, in UTC.
pub(crate) fn moment(unix_ms: u64) -> String {
    // A later date has five digits in its year, and humantime panics.
    let last = 253_402_300_799_000;
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(unix_ms.min(last)))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_word_and_move_no_cursor() {
        let mut table = Table::new(["NAME", "LEFT"]);
        table.row(["é\u{1b}[2J-long".to_owned(), String::new()]);
        assert_eq!(
            table.lines().collect::<Vec<_>>(),
            ["NAME       LEFT", "é?[2J-long  -"]
                .map(|line| { line.replace("NAME       LEFT", "NAME        LEFT") })
        );
    }

    #[test]
    fn durations_are_brief() {
        for (ms, text) in [
            (0, "0.0s"),
            (1_350, "1.3s"),
            (59_999, "59s"),
            (192_000, "3m12s"),
            (3_600_000, "1h00m"),
            (360_000_000, "4d04h"),
        ] {
            assert_eq!(brief(Duration::from_millis(ms)), text);
        }
        assert_eq!(moment(u64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
    }
}
