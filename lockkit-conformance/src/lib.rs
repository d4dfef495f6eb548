//! The contract of lockkit as a test suite.
//!
//! Each promise, C1 to C14, is checked by some cases. A store describes itself by a [`Store`] and a [`Harness`]; its
//! capabilities choose the cases, so that it can't be tested for less than it claims. A case that needs a hook which
//! the harness lacks is listed as not applicable, with the reason. Each case ends with the leak oracle: the store is
//! empty, and the process has no more open files and tasks than before.
//!
//! The test file of a backend, with `harness = false` in its `[[test]]` section:
//!
//! ```no_run
//! use std::{process::ExitCode, sync::Arc};
//!
//! fn main() -> ExitCode {
//!     lockkit_conformance::main([Arc::new(lockkit_conformance::stores::MemoryStore::new()) as _])
//! }
//! ```
//!
//! # Environment
//! * `LOCKKIT_TEST_SLACK`: how much later than promised a thing may happen on a busy machine, `500ms` or `3x` the
//!   default of 2 s.
//! * `LOCKKIT_TEST_CANCELLATIONS`: how often the cancellation storms cancel, 5,000 by default.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::unwrap_used, reason = "a panic is how a case fails")]

mod case;
mod cases;
mod doomed;
mod env;
mod execute;
pub mod faulty;
mod harness;
mod lanes;
mod lock;
mod oracle;
pub mod proxy;
mod runner;
pub mod stores;
mod wait;
mod witness;

pub use self::{
    case::Case,
    cases::all as all_cases,
    harness::{BoxError, Faults, Harness, Hook, Link, Store},
    lanes::in_lanes,
    runner::{main, main_covering_all, main_on_one_lock, run_case},
    wait::override_slack,
};
