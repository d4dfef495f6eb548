//! Chooses the pictures of a scenario.

use maud::{Markup, PreEscaped, html};

use super::{
    bars,
    lines::{self, Axis, Line},
    plots,
};
use crate::report::{Better, Case, Metric, Report, Scenario, words};

/// Up to this number of cases, the page has a picture of each case. With more cases, only the table
/// has all of them.
const MOST: usize = 4;

/// All pictures of a scenario, in the order of the page.
pub(super) fn of(report: &Report, scenario: Scenario) -> Markup {
    let bars = |metric, about| all_bars(report, scenario, metric, about);
    let cases = report.cases(scenario).len();
    html! {
        @if cases > MOST && scenario != Scenario::HandOff {
            p.muted { "The picture shows one of " (cases) " cases. The table below has all cases." }
        }
        @match scenario {
            Scenario::HandOff => (hand_off(report)),
            Scenario::IdleLocks => {
                (bars(Metric::IdleRequestsPerSecond, "Requests per second to the server"))
                (bars(Metric::BytesPerLock, "Memory of this process for each lock"))
                (bars(Metric::CpuPercent, "Processor time of this process, in percent of one core"))
            },
            Scenario::Recovery => (bars(Metric::RecoveryMs, "From the death of the holder to the next grant")),
            Scenario::OpenLoop => (all_curves(report, scenario)),
            _ => {
                (bars(Metric::GrantsPerSecond, "Grants per second"))
                @if matches!(scenario, Scenario::Uncontended | Scenario::HotName) { (all_curves(report, scenario)) }
                @if scenario == Scenario::HotName {
                    (bars(Metric::MostOverLeast, "Fairness: most ÷ least grants of a task"))
                }
                @if matches!(scenario, Scenario::HotName | Scenario::Crowd) {
                    (bars(Metric::RequestsPerGrant, "Requests to the server for each grant with its release"))
                }
            },
        }
    }
}

/// The cases to draw: all cases if there are few, or else the typical case.
fn drawn(report: &Report, scenario: Scenario, metric: Metric) -> Vec<&Case> {
    let cases = report.cases(scenario);
    if cases.len() <= MOST { cases } else { report.typical(scenario, metric).into_iter().collect() }
}

fn all_bars(report: &Report, scenario: Scenario, metric: Metric, about: &str) -> Markup {
    let wish = match metric.better() {
        Better::Higher => "longer is better",
        Better::Lower => "shorter is better",
    };
    html! {
        @for case in drawn(report, scenario, metric) {
            @let title = format!("{about}: {}", words::case(case));
            @if let Some((svg, _)) = bars::draw(report, scenario, case, metric, &title) {
                (figure(&html! { (title) " " span.wish { (wish) } }, &svg))
            }
        }
    }
}

fn all_curves(report: &Report, scenario: Scenario) -> Markup {
    html! {
        @for case in drawn(report, scenario, Metric::WaitP50Us) {
            @if let Some(plot) = plots::percentiles(report, scenario, case) {
                (plotted(&format!("The wait for a lock: {}", words::case(case)), &plot))
            }
        }
    }
}

fn hand_off(report: &Report) -> Markup {
    let metric = Metric::HandOffP50Us;
    match plots::by_tasks(report, Scenario::HandOff, metric) {
        Some(plot) => plotted("From one task's release to the next task's grant (median)", &plot),
        None => all_bars(
            report,
            Scenario::HandOff,
            metric,
            "From one task's release to the next task's grant (median)",
        ),
    }
}

fn plotted(title: &str, (x, y, drawn): &(Axis, Axis, Vec<Line>)) -> Markup {
    let (width, height) = lines::size();
    let svg = lines::draw(x, y, drawn);
    html! {
        @if let Some(svg) = svg {
            (figure(&html! { (title) " " span.wish { "lower is better; the scale is logarithmic" } }, &html! {
                svg.lines viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(title) {
                    title { (title) }
                    (PreEscaped(svg))
                }
            }))
        }
    }
}

fn figure(caption: &Markup, svg: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (caption) }
            div.scroll tabindex="0" { (svg) }
        }
    }
}
