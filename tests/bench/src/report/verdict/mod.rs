//! Says in plain words which store fits which need, and claims no more than the figures prove.

mod families;
mod needs;
mod rank;

use super::{GuaranteeClass, Report, Store};

/// A need, and this run's answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Such as `Lowest latency`.
    pub(super) need: String,
    /// The figure that answers it, such as `wait p50: 1 task, 1 name`.
    pub(super) measure: Option<String>,
    /// The answer, in paragraphs.
    pub(super) text: Vec<String>,
    /// The [`Store::id`]s that the answer recommends.
    pub(super) named: Vec<String>,
    /// The figures that support the answer.
    pub(super) figures: Vec<String>,
    /// The faults that may break the promises of the recommended stores.
    pub(super) cautions: Vec<String>,
}

/// The verdict, need by need.
pub(super) fn answers(report: &Report) -> Vec<Answer> {
    let mut answers: Vec<_> =
        needs::NEEDS.iter().filter_map(|need| needs::answer(report, need)).collect();
    answers.insert(answers.len().min(3), needs::failover(report));
    answers.extend(families::answers(report));
    answers
}

/// A warning about a store, if there is one.
fn caution(store: &Store) -> Option<String> {
    let class = store.guarantee.class;
    let is_weak = class < GuaranteeClass::OneDurableServer;
    is_weak.then(|| format!("{} is {class}: {}", store.id, store.guarantee.text))
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests;
