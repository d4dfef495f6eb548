//! Two reports: what became worse, beyond the noise that both have seen.

mod changes;
mod circumstances;
mod text;

use super::{Case, Metric, Report, Scenario, Series};

/// What differs between two reports.
///
/// A figure of lockkit has changed if no round of one report comes near the other's, and the
/// medians differ by more than 5 % (requests for each grant, which are counted: 2 %). It takes five
/// rounds in both to call it a regression, and the slowest wait and the memory for a lock, which
/// chance decides, never are one. Where both reports have the bare driver's figure too, the ratios
/// to that are compared, as they don't depend on the machine as much.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Why nothing can be said, if so.
    incomparable: Option<String>,
    /// What makes the two less alike than they should be.
    warnings: Vec<String>,
    worse: Vec<Change>,
    better: Vec<Change>,
    /// Beyond the noise, in figures that say little by themselves.
    noisy: Vec<Change>,
    /// Beyond the noise, as far as a few rounds can tell.
    untold: Vec<Change>,
    /// What the old report has and the new one tried and could not do.
    lost: Vec<String>,
    /// What the old report has and the new one did not try, or could not tell.
    not_compared: Vec<String>,
    /// What only the new report has.
    gained: Vec<String>,
    /// How many figures were compared.
    compared: usize,
    /// How many were not, for want of rounds; what they seem to say is in `untold`.
    too_few_rounds: usize,
}

/// A figure that differs.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    scenario: Scenario,
    case: Case,
    store: String,
    metric: Metric,
    /// The series are ratios to the bare driver.
    is_ratio: bool,
    old: Series,
    new: Series,
}

/// What became worse from the old report to the new one, what better, and what is missing.
#[must_use]
pub fn compare(old: &Report, new: &Report) -> Comparison {
    let mut comparison = Comparison {
        incomparable: None,
        warnings: circumstances::differences(old, new),
        worse: Vec::new(),
        better: Vec::new(),
        noisy: Vec::new(),
        untold: Vec::new(),
        lost: Vec::new(),
        not_compared: Vec::new(),
        gained: Vec::new(),
        compared: 0,
        too_few_rounds: 0,
    };
    comparison.incomparable = circumstances::incomparable(old, new);
    if comparison.incomparable.is_none() {
        changes::collect(&mut comparison, old, new);
    }
    comparison
}

impl Comparison {
    /// Something became worse, or can't be done any more.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        !self.worse.is_empty() || !self.lost.is_empty()
    }

    /// Something was compared, or can't be done any more.
    #[must_use]
    pub fn is_comparable(&self) -> bool {
        self.incomparable.is_none() && (self.compared > 0 || self.is_regression())
    }
}

#[cfg(test)]
mod tests;
