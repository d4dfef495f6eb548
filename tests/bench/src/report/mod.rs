//! The results of a run, shown as JSON, Markdown and one HTML page.

mod columns;
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

/// The name of the [`Setting`] that the run measures itself: the time to the server and back.
pub(crate) const ROUND_TRIP: &str = "round trip";

pub use self::{
    compare::{Comparison, compare},
    html::{html, picture},
    markdown::markdown,
    model::{
        Better, Case, Curve, Guarantee, GuaranteeClass, Host, Metric, Outcome, Report, SCHEMA,
        Scenario, Series, Setting, Side, Store, Verdict,
    },
};
