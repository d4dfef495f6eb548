//! A violation as a picture.

mod rows;

use maud::{Markup, PreEscaped, html};

use self::rows::{Mark, Row, Scene, Sign, Span, lock_of};
use crate::{check::Violation, history::Record};

/// The width of the picture, and the margins beside the time axis.
const WIDTH: u32 = 1080;
const LEFT: u32 = 190;
const RIGHT: u32 = 28;
/// The height of a row, and of a line of text.
const ROW: u32 = 46;
const LINE: u32 = 18;
/// The longest line of a heading, in letters, and the most lines.
const LETTERS: usize = 138;
const LINES: usize = 6;

const STYLE: &str = "
svg { --paper: #fff; --ink: #1c2330; --soft: #667085; --rule: #e4e7ec; --ask: #98a2b3; --hold: #2f6fde; --bad: #d92d20; --good: #12805c; --fault: #f79009; }
@media (prefers-color-scheme: dark) { svg { --paper: #12161f; --ink: #e6e9f0; --soft: #98a2b3; --rule: #293041; --ask: #667085; --hold: #6ea0ff; --bad: #ff7a70; --good: #3ecf9b; --fault: #fdb022; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.head { font-size: 16px; font-weight: 600; }
.soft { font-size: 11.5px; fill: var(--soft); }
.paper { fill: var(--paper); }
.rule { stroke: var(--rule); }
.ask { stroke: var(--ask); stroke-width: 3; }
.hold { fill: var(--hold); }
.believe { fill: url(#hatch); stroke: var(--hold); stroke-opacity: .7; }
.hatch { stroke: var(--hold); stroke-width: 2.2; stroke-opacity: .6; }
.clash { fill: var(--bad); fill-opacity: .16; stroke: var(--bad); stroke-opacity: .8; }
.fault { fill: var(--fault); fill-opacity: .14; }
.strike { stroke: var(--fault); stroke-width: 1.5; stroke-dasharray: 4 3; }
.fault-text { font-size: 11.5px; fill: var(--fault); }
.taken { fill: var(--good); stroke: var(--paper); }
.refused { stroke: var(--bad); stroke-width: 2.5; fill: none; }
.end { stroke: var(--ink); stroke-width: 2; }
.halo { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
";

/// The violation as a self-contained SVG, drawn from all records of its claims. Each claim has a
/// row with its request, its hold, its belief and its writes. The picture also shows the faults of
/// that time. Its times are the times of [`markdown`](super::markdown()).
#[must_use]
pub fn timeline(violation: &Violation, records: &[Record]) -> String {
    let scene = Scene::of(violation, records);
    let heading = wrapped(&violation.what);
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    // The lanes below the heading name the faults.
    let lanes = count(scene.bands.len().clamp(1, 4));
    let top = 58 + LINE * count(heading.len());
    let first = top + LINE * lanes + 6;
    let bottom = first + ROW * count(scene.rows.len().max(1));
    let height = bottom + 76;
    let plot = Plot { scene: &scene, top, first, bottom, lanes };
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={"0 0 " (WIDTH) " " (height)} width=(WIDTH) height=(height)
            role="img" aria-label=(plain(&violation.what)) {
            style { (PreEscaped(STYLE)) }
            defs {
                pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    line class="hatch" x1="0" y1="0" x2="0" y2="7" {}
                }
                clipPath id="time" {
                    rect x=(LEFT) y="0" width=(WIDTH - LEFT - RIGHT) height=(height) {}
                }
            }
            rect class="paper" width="100%" height="100%" {}
            text class="head" x="20" y="30" {
                (violation.rule) " · " (plain(&lock_of(violation.lock.as_ref())))
            }
            @for (number, line) in (0..).zip(&heading) {
                text x="20" y=(52 + LINE * number) { (line) }
            }
            (plot.axis())
            (plot.faults())
            (plot.clash())
            @for (number, row) in (0..).zip(&scene.rows) { (plot.row(number, row)) }
            (plot.legend(height))
        }
    };
    picture.into_string()
}

struct Plot<'s> {
    scene: &'s Scene,
    top: u32,
    first: u32,
    bottom: u32,
    lanes: u32,
}

impl Plot<'_> {
    /// The position of an instant, within the drawn range.
    fn x(&self, at: u64) -> f64 {
        let (from, to) = self.scene.window;
        let at = at.clamp(from, to) - from;
        let width = u128::from((WIDTH - LEFT - RIGHT) * 100);
        let x = u128::from(at) * width / u128::from((to - from).max(1));
        f64::from(LEFT) + f64::from(u32::try_from(x).unwrap_or(u32::MAX)) / 100.0
    }

    /// The position and the width of a bar, which is always wide enough to see.
    fn bar(&self, (from, to): Span) -> (f64, f64) {
        let x = self.x(from);
        (x, (self.x(to) - x).max(1.5))
    }

    fn is_drawn(&self, at: u64) -> bool {
        let (from, to) = self.scene.window;
        (from..=to).contains(&at)
    }

    fn axis(&self) -> Markup {
        let (ticks, places) = self.ticks();
        html! {
            @for (at, ms) in ticks {
                line class="rule" x1=(self.x(at)) x2=(self.x(at)) y1=(self.top) y2=(self.bottom) {}
                text class="soft" x=(self.x(at)) y=(self.bottom + 16) text-anchor="middle" { (format!("{ms:.places$}")) }
            }
            line class="rule" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(self.bottom) y2=(self.bottom) {}
            text class="soft" x=(LEFT - 12) y=(self.bottom + 16) text-anchor="end" { "ms" }
        }
    }

    /// Round instants in milliseconds from zero, and the number of decimal places.
    fn ticks(&self) -> (Vec<(u64, f64)>, usize) {
        let (from, to) = self.scene.window;
        let zero = i128::from(self.scene.zero);
        let (from, to) = (i128::from(from) - zero, i128::from(to) - zero);
        let steps = (0..17).flat_map(|power| [1, 2, 5].map(|factor| factor * 10_i128.pow(power)));
        let step = steps.into_iter().find(|step| (to - from) / step <= 10).unwrap_or(i128::MAX);
        let places = [1_000_000, 100_000, 10_000, 1000]
            .iter()
            .position(|unit| step % unit == 0)
            .unwrap_or(6);
        let mut ticks = Vec::new();
        let mut at = from.div_euclid(step) * step;
        while at <= to {
            if let (true, Ok(place), Ok(micros)) =
                (at >= from, u64::try_from(at + zero), i32::try_from(at / 1000))
            {
                ticks.push((place, f64::from(micros) / 1000.0));
            }
            at += step;
        }
        (ticks, places)
    }

    fn faults(&self) -> Markup {
        html! {
            @for (lane, band) in (0..self.lanes).cycle().zip(&self.scene.bands) {
                @let (x, width) = self.bar(band.span);
                rect class="fault" x=(x) y=(self.top) width=(width) height=(self.bottom - self.top) {}
                @if self.is_drawn(band.span.0) {
                    line class="strike" x1=(x) x2=(x) y1=(self.top) y2=(self.bottom) {}
                }
                // Near the right edge the picture would cut off the text.
                @let right = x > f64::from(WIDTH) * 0.75;
                text class="fault-text halo" x=(if right { x - 5.0 } else { x + 5.0 }) y=(self.top + 13 + LINE * lane)
                    text-anchor=(if right { "end" } else { "start" }) { (plain(&band.what)) }
            }
        }
    }

    fn clash(&self) -> Markup {
        html! {
            @if let Some(span) = self.scene.clash {
                @let (x, width) = self.bar(span);
                rect class="clash" x=(x) y=(self.first) width=(width) height=(self.bottom - self.first) {}
            }
        }
    }

    fn row(&self, number: u32, row: &Row) -> Markup {
        let y = self.first + ROW * number;
        let middle = y + ROW / 2;
        html! {
            text x=(LEFT - 14) y=(middle - 2) text-anchor="end" { (plain(&row.label)) }
            text class="soft" x=(LEFT - 14) y=(middle + 13) text-anchor="end" { (plain(&row.detail)) }
            line class="rule" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y + ROW) y2=(y + ROW) {}
            g clip-path="url(#time)" {
                @if let Some((from, to)) = row.asked {
                    line class="ask" x1=(self.x(from)) x2=(self.x(to).max(self.x(from) + 1.5)) y1=(middle) y2=(middle) {}
                }
                @for (class, span) in [("believe", row.believed), ("hold", row.held)] {
                    @if let Some(span) = span {
                        @let (x, width) = self.bar(span);
                        rect class=(class) x=(x) y=(middle - 10) width=(width) height="20" rx="3" {}
                    }
                }
            }
            @for mark in row.marks.iter().filter(|mark| self.is_drawn(mark.at)) { (self.mark(mark, middle)) }
            @for (x, what) in self.captions(row) {
                // Near the right edge the picture would cut off the text.
                @let right = x > f64::from(WIDTH) * 0.8;
                text class="soft halo" x=(if right { x - 5.0 } else { x + 5.0 }) y=(middle + 21)
                    text-anchor=(if right { "end" } else { "start" }) { (what) }
            }
        }
    }

    fn mark(&self, mark: &Mark, y: u32) -> Markup {
        let x = self.x(mark.at);
        let y = f64::from(y);
        html! {
            g {
                title { (plain(&mark.what)) }
                @match mark.sign {
                    Sign::Taken => path class="taken" d=(format!("M{x} {} l5 9 h-10 z", y - 19.0)) {},
                    Sign::Refused => path class="refused" d=(format!("M{} {} l8 8 m0 -8 l-8 8", x - 4.0, y - 19.0)) {},
                    Sign::End => line class="end" x1=(x) x2=(x) y1=(y - 11.0) y2=(y + 11.0) {},
                }
            }
        }
    }

    /// The captions of the ends in a row. Ends that are near to each other share one caption.
    fn captions(&self, row: &Row) -> Vec<(f64, String)> {
        let mut captions: Vec<(f64, String)> = Vec::new();
        let ends = row.marks.iter().filter(|mark| mark.sign == Sign::End && self.is_drawn(mark.at));
        for mark in ends {
            let x = self.x(mark.at);
            let what = plain(&mark.what);
            match captions.last_mut() {
                Some((before, caption)) if x < *before + 90.0 => {
                    caption.push_str(", ");
                    caption.push_str(&what);
                }
                _ => captions.push((x, what)),
            }
        }
        captions
    }

    fn legend(&self, height: u32) -> Markup {
        let y = height - 22;
        let others = self.scene.others;
        html! {
            line class="ask" x1="20" x2="44" y1=(y - 4) y2=(y - 4) {}
            text class="soft" x="50" y=(y) { "asks" }
            rect class="hold" x="96" y=(y - 11) width="24" height="13" rx="3" {}
            text class="soft" x="126" y=(y) { "proven hold" }
            rect class="believe" x="224" y=(y - 11) width="24" height="13" rx="3" {}
            text class="soft" x="254" y=(y) { "held by its own belief" }
            path class="taken" d=(format!("M420 {} l5 9 h-10 z", y - 10)) {}
            text class="soft" x="432" y=(y) { "write accepted" }
            path class="refused" d=(format!("M520 {} l8 8 m0 -8 l-8 8", y - 9)) {}
            text class="soft" x="536" y=(y) { "write refused" }
            rect class="fault" x="630" y=(y - 11) width="24" height="13" {}
            text class="soft" x="660" y=(y) { "fault" }
            @if self.scene.clash.is_some() {
                rect class="clash" x="710" y=(y - 11) width="24" height="13" {}
                text class="soft" x="740" y=(y) { "too many holders" }
            }
            @if others > 0 { text class="soft" x=(WIDTH - RIGHT) y=(y) text-anchor="end" { (others) " more claims" } }
        }
    }
}

/// Replaces characters that XML can't contain.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Lines of a heading.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in plain(text).split_whitespace() {
        let count = lines.len();
        let Some(last) = lines.last_mut() else { break };
        if last.chars().count() + word.chars().count() < LETTERS || last.is_empty() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        } else if count == LINES {
            last.push('…');
            break;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
