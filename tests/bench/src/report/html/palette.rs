//! Gives each store the same colour and shape in all pictures. Colour-blind readers can distinguish
//! the colours (after Okabe and Ito), which contrast with their background. The shapes help readers
//! who see no colours at all.

use std::fmt::Write as _;

/// The colours on a light background. Drawings contain them too, and the style sheet replaces them
/// there.
const LIGHT: [&str; 8] =
    ["#0072B2", "#C84E00", "#00805C", "#A3478A", "#8F6400", "#3D3D9E", "#8A1F2E", "#5A6570"];

/// The colours on a dark background.
const DARK: [&str; 8] =
    ["#5AB4F0", "#FF8A4C", "#3FD0A4", "#F09AD0", "#F0C040", "#A6A6FF", "#FF8F9C", "#C3CAD2"];

/// The outlines of marks, around their centre.
const SHAPES: [&[(i32, i32)]; 8] = [
    &[(5, 2), (2, 5), (-2, 5), (-5, 2), (-5, -2), (-2, -5), (2, -5), (5, -2)],
    &[(0, -6), (6, 5), (-6, 5)],
    &[(5, 5), (-5, 5), (-5, -5), (5, -5)],
    &[(0, -7), (7, 0), (0, 7), (-7, 0)],
    &[(0, 6), (6, -5), (-6, -5)],
    &[
        (2, 6),
        (-2, 6),
        (-2, 2),
        (-6, 2),
        (-6, -2),
        (-2, -2),
        (-2, -6),
        (2, -6),
        (2, -2),
        (6, -2),
        (6, 2),
        (2, 2),
    ],
    &[(-6, 0), (5, -6), (5, 6)],
    &[(6, 0), (-5, -6), (-5, 6)],
];

/// The colour of axes and words in drawings.
pub(super) const INK: &str = "#1B1B1B";

/// The colour of the grid's lines.
pub(super) const GRID: &str = "#D8D8D8";

pub(super) fn light(store: usize) -> &'static str {
    LIGHT[store % LIGHT.len()]
}

pub(super) fn shape(store: usize) -> &'static [(i32, i32)] {
    SHAPES[store % SHAPES.len()]
}

/// The style class of a store's colour.
pub(super) fn class(store: usize) -> String {
    format!("s{}", store % LIGHT.len())
}

/// The part of the style sheet with the colours of stores.
pub(super) fn css() -> String {
    let mut css = String::new();
    let variables = |colours: &[&str]| {
        colours
            .iter()
            .enumerate()
            .fold(String::new(), |css, (index, colour)| format!("{css}--c{index}:{colour};"))
    };
    let _ = writeln!(css, ":root{{{}}}", variables(&LIGHT));
    let _ = writeln!(css, "@media (prefers-color-scheme:dark){{:root{{{}}}}}", variables(&DARK));
    for (index, colour) in LIGHT.iter().enumerate() {
        let _ = writeln!(css, ".s{index}{{--c:var(--c{index})}}");
        let _ = writeln!(css, "svg [stroke=\"{colour}\"]{{stroke:var(--c{index})}}");
        let _ = writeln!(css, "svg [fill=\"{colour}\"]{{fill:var(--c{index})}}");
    }
    for (colour, variable) in [(INK, "ink"), (GRID, "line")] {
        let _ = writeln!(css, "svg [stroke=\"{colour}\"]{{stroke:var(--{variable})}}");
        let _ = writeln!(css, "svg [fill=\"{colour}\"]{{fill:var(--{variable})}}");
    }
    css
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Relative luminance as WCAG defines it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let one = luminance(one);
        let other = luminance(other);
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn colours_stand_out_from_both_backgrounds() {
        for colour in LIGHT {
            assert!(contrast(colour, "#FFFFFF") >= 4.5, "{colour}");
        }
        for colour in DARK {
            assert!(contrast(colour, "#1A1D21") >= 4.5, "{colour}");
        }
    }

    #[test]
    fn no_two_stores_look_the_same() {
        let distinct = |of: &dyn Fn(usize) -> String| (0..8).map(of).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(&|store| light(store).to_owned()), 8);
        assert_eq!(distinct(&|store| DARK[store].to_owned()), 8);
        assert_eq!(distinct(&|store| format!("{:?}", shape(store))), 8);
    }
}
