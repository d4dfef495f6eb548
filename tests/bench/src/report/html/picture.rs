//! Draws one case as a separate file, for pages that cannot use the style sheet of the report.

use maud::{PreEscaped, html};

use super::{bars, palette};
use crate::report::{Metric, Report, Scenario, words};

/// The space around the bars.
const MARGIN: f64 = 20.0;
/// The space above the bars, for the title.
const HEAD: f64 = 50.0;

/// The grants of tasks with one name each, as an SVG file. Returns `None` if no store has this
/// figure.
#[must_use]
pub fn picture(report: &Report) -> Option<String> {
    let scenario = Scenario::OwnNames;
    let metric = Metric::GrantsPerSecond;
    let case = report.typical(scenario, metric)?;
    let title = format!("Grants per second: {}", words::case(case));
    let (bars, height) = bars::draw(report, scenario, case, metric, &title)?;
    let width = bars::WIDTH + 2.0 * MARGIN;
    let all = HEAD + height + MARGIN;
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {all}")) width=(width) height=(all) {
            style { (PreEscaped(bars::STYLE)) (PreEscaped(palette::css())) }
            rect fill="#ffffff" style="fill:var(--paper)" width=(width) height=(all) rx="8" {}
            g.bars {
                text x=(MARGIN + 10.0) y="32" { (title) " " tspan.muted { "– longer is better" } }
            }
            svg x=(MARGIN) y=(HEAD) width=(bars::WIDTH) height=(height) { (bars) }
        }
    };
    Some(svg.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_picture_has_all_stores_and_no_external_references() {
        let report = sample::report();
        let svg = picture(&report).unwrap();
        assert!(svg.starts_with("<svg xmlns="), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        for forbidden in ["<script", "url(", "@import", "href=", "NaN"] {
            assert!(!svg.contains(forbidden), "{forbidden}");
        }
        assert!(svg.contains("prefers-color-scheme:dark"), "two sets of colours");
        for store in &report.stores {
            assert!(svg.contains(&store.id), "{}", store.id);
        }
    }

    #[test]
    fn without_figures_there_is_no_picture() {
        let mut report = sample::report();
        report.outcomes.retain(|outcome| outcome.scenario != Scenario::OwnNames);
        assert_eq!(picture(&report), None);
    }
}
