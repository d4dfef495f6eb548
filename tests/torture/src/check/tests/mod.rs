//! Histories written by hand: for each rule one that breaks it, and one that nearly does.

mod ambiguity;
mod belief;
pub(crate) mod builder;
mod corruption;
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
