//! The contract of lockkit as a test suite.
//!
//! Some cases check each promise, C1 to C14. A store describes itself by a [`Store`] and a
//! [`Harness`]. Its capabilities choose the cases, so a store can't be tested for less than it
//! claims. A case that needs a missing hook is listed as not applicable, with the reason. Each case
//! ends with the leak oracle: the store is empty, and the process has no more open files and tasks
//! than before.
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
//!   [`Harness::close`] must end everything that the harness opens: otherwise the oracle reports a
//!   leak.
//! * Write [`Harness::expire_now`] and [`Harness::leaks`] without the backend, because a backend
//!   can't check itself.
//! * A store behind a socket puts the [`proxy`] in between, and claims [`Hook::Wire`]. Without that
//!   hook, no case checks a request that arrives after its sender has given up: write a test for
//!   it.
//! * Cases run side by side, because a case waits most of its time. A case that pauses, fills or
//!   restarts the store has the store to itself.
//!
//! # Where a case fails
//! Its name begins with the number of the promise. The text says what the case saw, and ends with
//! `catches:` and the wrong implementation that the case was made for.
//! `cargo test --test conformance -- --exact redis::c2_…` runs the case alone.
//!
//! These texts have these causes:
//!
//! * `left in the store`: a release removes less than the attempt wrote. Or [`Harness::leaks`]
//!   lists a row that may remain.
//! * `… open files are left`, `… tasks are left`: a connection, thread or task outlives the
//!   backend's `close`, or a dropped future.
//! * `it hangs`: a call never ends, or a runtime is blocked. A client that blocks needs a thread of
//!   its own.
//! * `the longest stall was …`: a lease was lost although neither machine nor store paused for
//!   long. The renewal fails or does nothing.
//! * `… did not happen within …`: the machine is busy, if `LOCKKIT_TEST_SLACK` helps. Otherwise a
//!   poll, or a `takeover_delay`, promises too much.
//!
//! A case that can't run is listed as not applicable, with the missing capability or hook.
//!
//! # Environment
//! * `LOCKKIT_TEST_SLACK`: how much later than promised an event may happen on a busy machine,
//!   `500ms` or `3x` the default of 6 s.
//! * `LOCKKIT_TEST_CANCELLATIONS`: how often the cancellation storms cancel, 2,000 by default.

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
    harness::{BoxError, Faults, Harness, Hook, Link, Store, free_all},
    runner::{Locks, main, main_covering_all, main_on_one_lock, run_case},
    stall::StallMeter,
    wait::override_slack,
    witness::{Stay, Witness},
};
