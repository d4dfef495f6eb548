//! Histories written by hand: of each rule one that is broken, and what is nearly so and right.

mod ambiguity;
mod belief;
pub(crate) mod builder;
mod exclusion;
mod figures;
mod leaks;
mod loss;
mod property;
mod register;
mod renewal;
mod takeover;
mod tokens;
mod waiting;
