//! Defines the answers to a call for a slot.

use std::time::SystemTime;

use crate::{error::Error, token::FencingToken};

/// One run of the work for a slot, as the note beside the lock shows it. Its times are by the
/// store's clock, so the times of runs on different hosts can be compared. The runner only measures
/// how long the work takes.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceRun {
    /// The slot.
    pub slot: u64,
    /// The fencing token under which the work ran. A later run has a larger token.
    pub token: FencingToken,
    /// The [label](crate::LockOptions::with_label) of the runner, if it has one.
    pub label: Option<String>,
    /// When the run began.
    pub begun: SystemTime,
    /// When the work was done. `None` if no record says so: the work still runs, it failed, or its
    /// runner died or lost the lock.
    pub finished: Option<SystemTime>,
}

/// The answer of [`Once::run`](crate::Once::run).
#[must_use = "the work may have failed, or may not have run"]
#[derive(Debug)]
pub enum OnceOutcome<T, E> {
    /// The work ran now, and the slot is finished.
    Ran {
        /// The output of the work.
        output: T,
        /// As the work got it: a run that began before and that no record shows as finished.
        earlier: Option<OnceRun>,
    },
    /// The work ran now, and returned an error. The slot stays open: the next caller runs it again,
    /// at once if it waits already.
    Failed {
        /// The error of the work.
        error: E,
        /// As the work got it: a run that began before and that no record shows as finished.
        earlier: Option<OnceRun>,
    },
    /// The work ran now, but the store did not confirm the record of its end. If the outcome of
    /// `error` is [unknown](Error::is_outcome_unknown), the slot may be finished: the next call for
    /// it answers `Done`, or runs it again. Otherwise this run did not finish the slot.
    Unrecorded {
        /// The output of the work.
        output: T,
        /// As the work got it: a run that began before and that no record shows as finished.
        earlier: Option<OnceRun>,
        /// Why there is no record.
        error: Error,
    },
    /// This run finished the slot before.
    Done(OnceRun),
    /// This run of a later slot has begun before, or is finished. So the slot is finished, or no
    /// caller runs it any more. The later slot may be open: to be sure, ask for that slot next.
    Passed(OnceRun),
    /// Another caller held the lock until the bound on waiting had passed. The run is the last one
    /// that has begun and is not finished, if the note shows one. It may be of an older slot, or
    /// have failed.
    Busy(Option<OnceRun>),
}
