//! Adds up the closing lines of many test programs.

use std::{fmt, ops::AddAssign};

/// The number of tests with each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Reads one line of output, and ignores it if it is not a closing line.
    pub(crate) fn read(&mut self, line: &str) {
        let Some((_verdict, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.skipped += count,
                _ => {}
            }
        }
    }

    /// The number of tests that ran.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "total: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_closing_lines_and_nothing_else() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished \
             in 0.00s",
            "",
            "test result: FAILED. 20 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; \
             finished in 1.25s",
            "note: 99 passed; 99 failed",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 23, failed: 2, skipped: 1 });
        assert_eq!(tally.ran(), 25);
        assert_eq!(tally.to_string(), "total: 23 passed, 2 failed, 1 skipped");
    }
}
