//! Computes the names that GitHub gives to headings, for links to them.

use std::collections::HashMap;

/// Names the headings of one file, in their order.
#[derive(Debug, Default)]
pub(super) struct Anchors(HashMap<String, usize>);

impl Anchors {
    /// The name of the next heading. If several headings have the same text, all except the first
    /// get a number.
    pub(super) fn next(&mut self, heading: &str) -> String {
        let name = slug(heading);
        let seen = self.0.entry(name.clone()).or_default();
        let number = *seen;
        *seen += 1;
        if number == 0 { name } else { format!("{name}-{number}") }
    }
}

/// Keeps letters and digits of any script in lower case, `_` and `-`. A blank becomes `-`, and all
/// other characters are removed.
fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    };
    heading.trim().to_lowercase().chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_named_as_github_does() {
        let mut anchors = Anchors::default();
        for (heading, anchor) in [
            ("The server's clock", "the-servers-clock"),
            ("wait_replicas", "wait_replicas"),
            ("GC pauses & clocks: what, then?", "gc-pauses--clocks-what-then"),
            ("The server's clock", "the-servers-clock-1"),
            ("它安全吗？", "它安全吗"),
            ("Read/write – again", "readwrite--again"),
        ] {
            assert_eq!(anchors.next(heading), anchor);
        }
    }
}
