//! Builds the page. The answer comes first, then the reasons.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{bars, figures, palette};
use crate::report::{
    Report, Scenario, columns,
    table::{self, Cell, Table},
    verdict::{self, Answer},
    words,
};

/// The whole report as one HTML page.
#[must_use]
pub fn html(report: &Report) -> String {
    let scenarios = report.scenarios();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(report))
            body {
                main {
                    (top(report))
                    (verdict(report))
                    section #glance {
                        h2 { "At a glance" }
                        (render(&table::glance(report), report))
                    }
                    section #stores {
                        h2 { "The stores" }
                        p {
                            "A fast lock is useless if two holders are possible. This table shows \
                             the guarantee of each store with its present settings."
                        }
                        (render(&table::stores(report), report))
                    }
                    (how_to_read())
                    @for scenario in &scenarios { (section(report, *scenario)) }
                    (foot(report))
                }
            }
        }
    };
    page.into_string()
}

fn head(report: &Report) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
            title { "Locks compared: lockkit " (report.lockkit) }
            style { (PreEscaped(bars::STYLE)) (PreEscaped(include_str!("style.css"))) (PreEscaped(palette::css())) }
        }
    }
}

fn top(report: &Report) -> Markup {
    html! {
        header {
            h1 { "Which store should hold your locks?" }
            p.muted {
                "Measured with lockkit " (report.lockkit) ", from " (report.started_at) " on "
                (report.host.cpu) " (" (report.host.cores) " cores). " (words::rounds(report)) "."
            }
            ul.legend {
                @for (index, store) in report.stores.iter().enumerate() {
                    li class=(palette::class(index)) { (mark(index)) b { (store.id) } " \
                        " span.muted { (words::product(store)) } }
                }
            }
            @if let Some(why) = words::too_short(report) { p.warning role="note" { (why) } }
        }
    }
}

fn verdict(report: &Report) -> Markup {
    html! {
        section #verdict {
            h2 { "The best store for each need" }
            div.cards { @for answer in verdict::answers(report) { (card(&answer, report)) } }
        }
    }
}

fn card(answer: &Answer, report: &Report) -> Markup {
    html! {
        article {
            h3 { (answer.need) }
            @if let Some(measure) = &answer.measure { p class="muted measure" { (measure) } }
            @if !answer.named.is_empty() {
                p.named {
                    @for (index, store) in report.stores.iter().enumerate().filter(|(_, s)| answer.named.contains(&s.id)) {
                        span class=(format!("chip {}", palette::class(index))) { (mark(index)) (store.id) }
                    }
                }
            }
            @for paragraph in &answer.text { p { (paragraph) } }
            @for caution in &answer.cautions { p.caution { b { "Caution: " } (caution) } }
            @if !answer.figures.is_empty() {
                details open[answer.text.is_empty()] {
                    summary { "The figures behind this answer" }
                    ul { @for figure in &answer.figures { li { (figure) } } }
                }
            }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        section #reading {
            h2 { "How to read this" }
            ul {
                li {
                    "Each figure is the median of the rounds. The range after it, and the thin \
                     line on a bar, show the smallest and the largest round. In each round all \
                     stores had a turn, so a slow minute of the machine affects all of them."
                }
                li {
                    "If the ranges of two stores overlap, this run does not prove which store is \
                     better, and the report names no winner."
                }
                li {
                    "The filled bar is lockkit. The outlined bars below it are its rivals. The "
                    b { "classic" }
                    " comes first. The ratio is lockkit's figure divided by the rival's. The \
                     difference to the " b { "bare driver" } " is the cost of lockkit."
                }
                @for note in words::NOTES { li { (note) } }
                li {
                    "Half of all waits are shorter than " b { "p50" }
                    ", and 99 of 100 waits are shorter than " b { "p99" }
                    ". A store with a good p50 and a bad p99 is fast for most waiters and very \
                     slow for some."
                }
                li {
                    b { "Most ÷ least" }
                    " compares the task that got the lock most often with the task that got it \
                     least often: 1 is fair."
                }
                li {
                    "A slanted gap in a bar means that the bar is far longer than the picture. \
                     Such locks are for one process, and cannot replace the other stores."
                }
            }
        }
    }
}

fn section(report: &Report, scenario: Scenario) -> Markup {
    html! {
        section {
            h2 { (words::title(scenario)) }
            p { (words::explanation(scenario)) }
            @if let Some(classic) = words::classic(scenario) { p.muted { "Classic: " (classic) } }
            @if let Some(floor) = words::floor(scenario) { p.muted { "Bare driver: " (floor) } }
            (figures::of(report, scenario))
            details {
                summary { "All figures: " (words::title(scenario)) }
                (render(&columns::scenario(report, scenario), report))
            }
        }
    }
}

fn foot(report: &Report) -> Markup {
    html! {
        section #repeat {
            h2 { "This run" }
            p { (words::host(report)) "." }
            p { "To repeat it:" }
            div.scroll { pre { code { (report.command) } } }
        }
    }
}

fn render(table: &Table, report: &Report) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { @for heading in &table.headings { th scope="col" { (heading) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for cell in row { td { (render_cell(cell, report)) } } }
                    }
                }
            }
        }
        @if !table.notes.is_empty() {
            ol.notes { @for note in &table.notes { li { (note) } } }
        }
    }
}

fn render_cell(cell: &Cell, report: &Report) -> Markup {
    let store = report.stores.iter().position(|store| store.id == cell.text);
    html! {
        @match store {
            Some(index) => span class=(format!("store \
                {}", palette::class(index))) { (mark(index)) (cell.text) },
            None => (cell.text),
        }
        @if let Some(note) = cell.note { sup { "[" (note + 1) "]" } }
        @if let Some(detail) = &cell.detail { span.detail { (detail) } }
    }
}

fn mark(store: usize) -> Markup {
    html! {
        svg.mark viewBox="0 0 16 \
            16" aria-hidden="true" { polygon.mark points=(bars::corners(store, 8.0, 8.0)) {} }
    }
}
