//! Compares two reports, and finds the figures that got worse beyond the noise.

mod changes;
mod circumstances;
mod text;

use super::{Case, Metric, Report, Scenario, Series, Side};

/// The differences between two reports.
///
/// A figure of lockkit has changed if two things are true. First, no round of one report comes near
/// a round of the other. Second, the medians differ by more than 5 % (2 % for the counted requests
/// per grant). A regression needs five rounds in both reports. The slowest wait and the memory for
/// a lock are never a regression, because chance decides them. Where both reports have
/// the figure of the same rival too, the comparison uses the ratios to it, because they depend less
/// on the machine. The classic comes first, because it stays the same when lockkit's requests
/// change.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The reason why the two reports cannot be compared, if there is one.
    incomparable: Option<String>,
    /// The circumstances that differ between the two reports.
    warnings: Vec<String>,
    worse: Vec<Change>,
    better: Vec<Change>,
    /// Changes beyond the noise, in figures that prove little by themselves.
    noisy: Vec<Change>,
    /// Changes that look real, but have too few rounds to prove it.
    untold: Vec<Change>,
    /// Figures of the old report that the new run tried to measure and could not.
    lost: Vec<String>,
    /// Figures of the old report that the new run did not try, or could not measure.
    not_compared: Vec<String>,
    /// Figures that only the new report has.
    gained: Vec<String>,
    /// How many figures were compared.
    compared: usize,
    /// How many figures had too few rounds to be compared; their apparent changes are in `untold`.
    too_few_rounds: usize,
}

/// A figure that differs.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    scenario: Scenario,
    case: Case,
    store: String,
    metric: Metric,
    /// The side that the series are ratios to, if they are.
    over: Option<Side>,
    old: Series,
    new: Series,
}

/// The figures that got worse from the old report to the new one, those that got better, and those
/// that are missing.
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
    /// Whether a figure got worse, or can no longer be measured.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        !self.worse.is_empty() || !self.lost.is_empty()
    }

    /// Whether any figure was compared, or can no longer be measured.
    #[must_use]
    pub fn is_comparable(&self) -> bool {
        self.incomparable.is_none() && (self.compared > 0 || self.is_regression())
    }
}

#[cfg(test)]
mod tests;
