//! Keeps the output of failed tests, to print it again at the end of a long run.

use std::fmt;

/// The limit for each part, so that a test with endless output does not hide the others.
const MOST_LINES: usize = 200;

/// The "failures:" parts of the output of many test programs.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    lines: Vec<String>,
    /// The number of lines in the current part.
    read: Option<usize>,
}

impl Failures {
    /// Reads one line of output. Ignores the lines before "failures:" and after the closing line.
    pub(crate) fn read(&mut self, line: &str) {
        match &mut self.read {
            None if line == "failures:" => self.read = Some(0),
            None => {}
            Some(_) if line.starts_with("test result: ") => self.read = None,
            Some(read) => {
                *read += 1;
                if *read <= MOST_LINES {
                    self.lines.push(line.to_owned());
                }
            }
        }
    }

    /// Ends the current part, because the program has ended, perhaps without a closing line.
    pub(crate) fn end_of_output(&mut self) {
        self.read = None;
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Failures {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.read(line));
        failures
    }

    #[test]
    fn keeps_only_the_output_of_failed_tests() {
        let failures = read(
            "test a ... ok\ntest b ... FAILED\n\nfailures:\n---- b ----\nwhy\nfailures:\n    b\n\
                             test result: FAILED. 1 passed; 1 failed\ntest result: ok. 1 \
                             passed\nnoise\n",
        );
        assert_eq!(failures.to_string(), "---- b ----\nwhy\nfailures:\n    b\n");
        assert_eq!(read("test a ... ok\ntest result: ok. 1 passed; 0 failed\n").to_string(), "");
    }

    #[test]
    fn a_test_that_never_stops_printing_leaves_room_for_the_next() {
        let endless = "noise\n".repeat(10 * MOST_LINES);
        let mut failures = read(&format!("failures:\n{endless}"));
        failures.end_of_output();
        "between\nfailures:\nwhy\n".lines().for_each(|line| failures.read(line));
        let said = failures.to_string();
        assert_eq!(said.lines().count(), MOST_LINES + 1);
        assert!(said.ends_with("noise\nwhy\n"));
    }
}
