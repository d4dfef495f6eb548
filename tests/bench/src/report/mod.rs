//! What was measured, and how it is shown: as JSON, Markdown and one HTML page.

mod compare;
mod html;
mod json;
mod lookup;
mod markdown;
mod model;
mod numbers;
#[cfg(test)]
mod sample;
mod table;
mod verdict;
mod words;

/// What a [`Setting`] is called that is measured and not set: how far away the server is.
pub(crate) const ROUND_TRIP: &str = "round trip";

pub use self::{
    compare::{Comparison, compare},
    html::html,
    markdown::markdown,
    model::{
        Better, Case, Curve, Guarantee, GuaranteeClass, Host, Metric, Outcome, Report, SCHEMA,
        Scenario, Series, Setting, Side, Store, Verdict,
    },
};
