//! Draws curves on two axes.

use std::ops::Range;

use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::{
        ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
        types::RangedCoordf64,
    },
    drawing::IntoDrawingArea,
    element::{PathElement, Polygon, Text},
    series::LineSeries,
    style::{Color, IntoFont, RGBColor, TRANSPARENT, TextStyle},
};

use super::palette;

const WIDTH: u32 = 820;
const HEIGHT: u32 = 380;

/// The x position of the lines' names.
const LABELS: i32 = 650;

/// The least vertical distance between two names.
const LABEL_HEIGHT: i32 = 20;

/// An axis from its first tick to its last.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) range: (f64, f64),
    pub(super) ticks: Vec<(f64, String)>,
}

/// One store's results, in the coordinates of the axes.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) store: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// The points that get the mark of the store.
    pub(super) marked: Vec<(f64, f64)>,
    /// The ranges of the rounds, as `(x, low, high)`.
    pub(super) ranges: Vec<(f64, f64, f64)>,
}

type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The content of an SVG of [`size`]. Returns `None` if there is nothing to draw.
pub(super) fn draw(x: &Axis, y: &Axis, lines: &[Line]) -> Option<String> {
    let mut svg = String::new();
    try_draw(&mut svg, x, y, lines).ok()?;
    // The root element of the drawing has a fixed size; the page adds a root that fits.
    let start = svg.find('>')? + 1;
    let end = svg.rfind("</svg>")?;
    svg.get(start..end).map(str::to_owned)
}

pub(super) const fn size() -> (u32, u32) {
    (WIDTH, HEIGHT)
}

fn try_draw(svg: &mut String, x: &Axis, y: &Axis, lines: &[Line]) -> Drawn {
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let ink = colour(palette::INK);
    let grid = colour(palette::GRID);
    let mut chart = ChartBuilder::on(&root)
        .margin_top(12)
        .margin_left(4)
        .margin_right(182)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .bold_line_style(grid.stroke_width(1))
        .light_line_style(TRANSPARENT)
        .axis_style(grid.stroke_width(1))
        .label_style(words(16, ink))
        .axis_desc_style(words(16, ink))
        .x_desc(&x.name)
        .y_desc(&y.name)
        .draw()?;
    for line in lines {
        let style = colour(palette::light(line.store)).stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
    }
    let mut ends = Vec::new();
    for line in lines {
        let own = colour(palette::light(line.store));
        for (x, low, high) in &line.ranges {
            let (at, low) = chart.backend_coord(&(*x, *low));
            let (_, high) = chart.backend_coord(&(*x, *high));
            root.draw(&PathElement::new(vec![(at, low), (at, high)], own.stroke_width(1)))?;
            for end in [low, high] {
                root.draw(&PathElement::new(
                    vec![(at - 4, end), (at + 4, end)],
                    own.stroke_width(1),
                ))?;
            }
        }
        for point in &line.marked {
            root.draw(&mark(chart.backend_coord(point), line.store))?;
        }
        if let Some(last) = line.points.last() {
            ends.push((chart.backend_coord(last), line));
        }
    }
    for (end, label, line) in spread(ends) {
        let own = colour(palette::light(line.store));
        root.draw(&PathElement::new(vec![end, (LABELS - 8, label)], own.stroke_width(1)))?;
        root.draw(&mark((LABELS, label), line.store))?;
        root.draw(&Text::new(line.name.clone(), (LABELS + 12, label - 6), words(16, ink)))?;
    }
    root.present()?;
    Ok(())
}

/// Shows the ticks that the axis names, with their labels.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            vec![]
        } else {
            self.ticks.iter().map(|(at, _)| *at).collect()
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        let near = self.ticks.iter().find(|(at, _)| (at - value).abs() < 1e-9);
        near.map_or_else(String::new, |(_, name)| name.clone())
    }
}

fn mark(at: (i32, i32), store: usize) -> Polygon<(i32, i32)> {
    let corners: Vec<_> = palette::shape(store).iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    Polygon::new(corners, colour(palette::light(store)).filled())
}

fn words(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

/// Places the names beside the ends of their lines, as near as there is room.
fn spread<T>(mut ends: Vec<((i32, i32), T)>) -> Vec<((i32, i32), i32, T)> {
    ends.sort_by_key(|((_, y), _)| *y);
    let mut labels: Vec<i32> = Vec::new();
    for ((_, y), _) in &ends {
        let free = labels.last().map_or(*y, |last| last + LABEL_HEIGHT);
        labels.push((*y).max(free));
    }
    // A name that was pushed below the bottom moves up again, and pushes the others.
    let mut lowest = i32::try_from(HEIGHT).unwrap_or(i32::MAX) - 60;
    for label in labels.iter_mut().rev() {
        *label = (*label).min(lowest);
        lowest = *label - LABEL_HEIGHT;
    }
    ends.into_iter().zip(labels).map(|((end, line), label)| (end, label, line)).collect()
}

fn colour(hex: &str) -> RGBColor {
    let part = |at: usize| {
        hex.get(at..at + 2).and_then(|part| u8::from_str_radix(part, 16).ok()).unwrap_or(0)
    };
    RGBColor(part(1), part(3), part(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap_and_stay_in_the_picture() {
        for ends in [vec![10, 10, 10], vec![300, 310, 319, 320], vec![5, 100, 101, 200]] {
            let placed = spread(ends.iter().map(|y| ((0, *y), ())).collect());
            let labels: Vec<_> = placed.iter().map(|(_, label, ())| *label).collect();
            assert!(labels.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_HEIGHT), "{labels:?}");
            assert!(labels.iter().all(|label| (0..=320).contains(label)), "{labels:?}");
        }
        let alone = spread(vec![((0, 77), ())]);
        assert_eq!(alone[0].1, 77, "a name is beside its line if there is room");
    }
}
