//! The contract of lockkit as a test suite.
//!
//! Each promise, C1 to C14, is checked by some cases. A store describes itself by a [`Store`] and a
//! [`Harness`]; its capabilities choose the cases, so that it can't be tested for less than it
//! claims. A case that needs a hook which the harness lacks is listed as not applicable, with the
//! reason. Each case ends with the leak oracle: the store is empty, and the process has no more
//! open files and tasks than before.
//!
//! The test file of a backend, with `harness = false` in its `[[test]]` section:
//!
//! ```no_run
//! use std::{process::ExitCode, sync::Arc};
//!
//! use lockkit_conformance::{Store, stores::MemoryStore};
//!
//! fn main() -> ExitCode {
//!     let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//!     lockkit_conformance::main([store])
//! }
//! ```
//!
//! # A store of your own
//! * [`Store`] and [`Harness`] are implemented under `#[async_trait::async_trait]`, from the crate
//!   of that name. The page `docs/write-a-backend.md` of lockkit's repository shows both for a
//!   SQLite file.
//! * A harness has data of its own: a folder, a database, or a random prefix on a shared server.
//!   What it opens, it ends in [`Harness::close`]: the oracle would take it for a leak.
//! * [`Harness::expire_now`] and [`Harness::leaks`] are best written without the backend, which
//!   would else vouch for itself.
//! * A store behind a socket puts the [`proxy`] in between, and claims [`Hook::Wire`]. Without that
//!   hook, nothing checks a request that arrives after its sender has given up: write a test for
//!   it.
//! * Cases run side by side, as most of a case is waiting. One that pauses, fills or restarts the
//!   store is alone with it.
//!
//! # Where a case fails
//! Its name begins with the number of the promise. The text says what was seen, and ends with
//! `catches:` and the wrong implementation that the case was made for.
//! `cargo test --test conformance -- --exact redis::c2_…` runs it alone.
//!
//! | text | look for |
//! |---|---|
//! | `left in the store` | a release that takes out less than the attempt wrote; a row that [`Harness::leaks`] should pass over |
//! | `… open files are left`, `… tasks are left` | a connection, thread or task that outlives the backend's `close`, or a dropped future |
//! | `it hangs` | a call that never ends, or a runtime that is blocked: a client that blocks needs a thread of its own |
//! | `the longest stall was …` | a lease that was lost although neither machine nor store stood still for long: a renewal that fails or does nothing |
//! | `… did not happen within …` | a busy machine, if `LOCKKIT_TEST_SLACK` helps; else a poll, or a `takeover_delay`, that promises too much |
//!
//! A case that can't run is listed as not applicable, with what is missing: a capability, or a
//! hook.
//!
//! # Environment
//! * `LOCKKIT_TEST_SLACK`: how much later than promised a thing may happen on a busy machine,
//!   `500ms` or `3x` the default of 6 s.
//! * `LOCKKIT_TEST_CANCELLATIONS`: how often the cancellation storms cancel, 5,000 by default.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::unwrap_used, reason = "a panic is how a case fails")]

mod admin;
mod answers;
mod case;
mod cases;
mod doomed;
mod env;
mod execute;
pub mod faulty;
mod harness;
mod judge;
mod lock;
#[doc(hidden)]
pub mod mutant;
mod oracle;
mod pinger;
pub mod proxy;
mod runner;
mod stall;
pub mod stores;
mod wait;
mod witness;

pub use self::{
    case::Case,
    cases::all as all_cases,
    harness::{BoxError, Faults, Harness, Hook, Link, Store},
    runner::{Locks, main, main_covering_all, main_on_one_lock, run_case},
    stall::StallMeter,
    wait::override_slack,
    witness::{Stay, Witness},
};
