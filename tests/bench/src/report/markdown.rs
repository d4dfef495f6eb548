//! Writes the report as Markdown.

use std::fmt::Write as _;

use super::{
    Report, columns,
    table::{self, Cell, Table},
    verdict, words,
};

/// The whole report as Markdown.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut text = head(report);
    text.push_str("## The stores\n\n");
    push_table(&mut text, &table::stores(report));
    text.push_str("## At a glance\n\n");
    push_table(&mut text, &table::glance(report));
    for scenario in report.scenarios() {
        let _ = write!(
            text,
            "## {}\n\n{}\n\n",
            words::title(scenario),
            escaped(words::explanation(scenario))
        );
        if let Some(classic) = words::classic(scenario) {
            let _ = write!(text, "Classic: {}\n\n", escaped(classic));
        }
        if let Some(floor) = words::floor(scenario) {
            let _ = write!(text, "Bare driver: {}\n\n", escaped(floor));
        }
        push_table(&mut text, &columns::scenario(report, scenario));
    }
    push_verdict(&mut text, report);
    text
}

fn head(report: &Report) -> String {
    let mut text = format!("# Locks compared: lockkit {}\n\n", escaped(&report.lockkit));
    if let Some(why) = words::too_short(report) {
        let _ = write!(text, "**{why}**\n\n");
    }
    let _ = write!(
        text,
        "* Start: {}\n* Host: {}\n* {}\n\nTo repeat it:\n\n    {}\n\n",
        escaped(&report.started_at),
        escaped(&words::host(report)),
        escaped(&words::rounds(report)),
        one_line(&report.command)
    );
    text.push_str(
        "Figures are medians of the rounds, with the smallest and largest round in parentheses. \
         Ratios are calculated round by round, so effects of the machine on both sides cancel \
         out.\n\n",
    );
    for note in words::NOTES {
        let _ = writeln!(text, "* {}", escaped(note));
    }
    text.push('\n');
    text
}

fn push_table(text: &mut String, table: &Table) {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(table.headings.iter().map(|heading| escaped(heading)).collect()));
    text.push_str(&line(table.headings.iter().map(|_| "---".into()).collect()));
    for row in &table.rows {
        text.push_str(&line(row.iter().map(cell).collect()));
    }
    text.push('\n');
    for (index, note) in table.notes.iter().enumerate() {
        let _ = writeln!(text, "* \\[{}\\] {}", index + 1, escaped(note));
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
}

fn cell(cell: &Cell) -> String {
    let mut text = escaped(&cell.text);
    if let Some(detail) = &cell.detail {
        let _ = write!(text, " ({})", escaped(detail));
    }
    if let Some(note) = cell.note {
        let _ = write!(text, " \\[{}\\]", note + 1);
    }
    text
}

fn push_verdict(text: &mut String, report: &Report) {
    text.push_str("## Verdict\n\n");
    for answer in verdict::answers(report) {
        let _ = write!(text, "### {}\n\n", escaped(&answer.need));
        for paragraph in answer.measure.iter().chain(&answer.text) {
            let _ = write!(text, "{}\n\n", escaped(paragraph));
        }
        for line in answer.figures.iter() {
            let _ = writeln!(text, "* {}", escaped(line));
        }
        for line in answer.cautions.iter() {
            let _ = writeln!(text, "* Caution: {}", escaped(line));
        }
        if !answer.figures.is_empty() || !answer.cautions.is_empty() {
            text.push('\n');
        }
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The text, escaped so that Markdown finds no markup in it.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        if "\\`*_[]<>|#~&!$@".contains(c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Scenario, Verdict, html, sample};

    #[test]
    fn servers_and_urls_cannot_write_markup() {
        let mut report = sample::report();
        let evil = "x | **b** <script>\n# H ![a](b) `c`";
        report.stores[0].version = evil.into();
        report.stores[0].url = evil.into();
        report.stores[0].guarantee.text = evil.into();
        report.stores[0].settings[0].value = evil.into();
        report.command = evil.into();
        report.host.cpu = evil.into();
        report.outcomes[0].verdict = Verdict::Failed { reason: evil.into() };
        let text = markdown(&report);
        let command = text.lines().find(|line| line.starts_with("    ")).unwrap();
        let rest = text.replace(command, "");
        for bad in [" | **b", " <script", "\n# H", "![a]", " `c`"] {
            assert!(!rest.contains(bad), "{bad}");
        }
        assert!(rest.contains(r"x \| \*\*b\*\* \<script\> \# H \!\[a\](b) \`c\`"));
        assert!(command.contains("<script> # H"), "code is shown as it is, in one line");
    }

    #[test]
    fn every_table_is_rectangular() {
        let text = markdown(&sample::report());
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| line.starts_with('|'))) {
            assert_eq!(columns(pair[0]), columns(pair[1]), "{}\n{}", pair[0], pair[1]);
        }
    }

    #[test]
    fn the_order_is_head_stores_scenarios_verdict() {
        let report = sample::report();
        let text = markdown(&report);
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle}"));
        let mut places = vec![at(&report.command), at("\n## The stores")];
        places.extend(
            report.scenarios().into_iter().map(|s| at(&format!("\n## {}\n", words::title(s)))),
        );
        places.push(at("\n## Verdict"));
        assert!(places.is_sorted(), "{places:?}");
        assert!(report.scenarios().contains(&Scenario::Recovery));
    }

    #[test]
    fn the_report_explains_the_rivals_and_the_figures() {
        let report = sample::report();
        let text = markdown(&report);
        for scenario in report.scenarios() {
            let (_, section) =
                text.split_once(&format!("\n## {}\n", words::title(scenario))).unwrap();
            let section = section.split("\n## ").next().unwrap();
            for (ratio, words) in
                [("÷ classic", "\nClassic: "), ("÷ bare driver", "\nBare driver: ")]
            {
                assert!(!section.contains(ratio) || section.contains(words), "{scenario:?}");
            }
        }
        assert!(words::NOTES.iter().all(|note| text.contains(&escaped(note))));
    }

    #[test]
    fn a_short_run_has_one_warning() {
        let long = sample::report();
        let quick = Report { is_quick: true, ..long.clone() };
        let mut two_rounds = Report { rounds: 2, ..long.clone() };
        for outcome in &mut two_rounds.outcomes {
            let Verdict::Measured { figures, .. } = &mut outcome.verdict else { continue };
            figures.values_mut().for_each(|series| series.0.truncate(2));
        }
        for (report, times) in [(long, 0), (quick, 1), (two_rounds, 1)] {
            for text in [markdown(&report), html(&report)] {
                assert_eq!(text.matches("too short").count(), times, "{text}");
                assert_eq!(text.matches("3 rounds or more").count(), times, "{text}");
                assert!(!text.contains("<p></p>"), "{text}");
            }
        }
    }
}
