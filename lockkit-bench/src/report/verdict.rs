//! Which store for which need.

use super::Report;

/// A need, and what this run says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) need: String,
    pub(super) text: String,
    pub(super) figures: Vec<String>,
    pub(super) cautions: Vec<String>,
}

pub(super) fn answers(_report: &Report) -> Vec<Answer> {
    Vec::new()
}
