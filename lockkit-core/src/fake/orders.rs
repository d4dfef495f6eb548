//! Holds the orders of a test: faults, latency, and answers that the store would not give by
//! itself.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use crate::{
    error::ErrorKind,
    spi::{Inspection, Lease},
};

/// A request of a claim or a backend, or another call of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Attachment,
    Attempt,
    Changed,
    Close,
    Extend,
    ForceRelease,
    GuardDropped,
    Inspect,
    KeepAlive,
    /// A probe, a diagnosis, or a question for names or the time.
    Other,
    RaiseToken,
    ReadNote,
    Transfer,
    Release,
    WriteNote,
}

/// The fault that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request fails for certain, before anything is done.
    Fail(ErrorKind),
    /// The request never returns, and nothing is done.
    Hang,
    /// The request is applied, and never returns.
    HangAfter,
    /// The request is applied, and its reply is lost.
    LoseReply,
    /// The request meets no fault.
    Pass,
    /// The request panics before it is applied.
    Panic,
    /// The request panics after it was applied.
    PanicAfter,
    /// The request is applied at once, and its answer comes late.
    SlowReply(Duration),
    /// The request is applied late.
    SlowRequest(Duration),
}

impl Fault {
    /// The store can't be reached.
    pub const DOWN: Self = Self::Fail(ErrorKind::Unavailable);
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) latency: Duration,
    /// Whether renewals of locks whose name starts with "dead" get no answer.
    pub(super) dead_shard: bool,
    /// The lease that a grant or a renewal reports instead of the real one.
    pub(super) lease: Option<Lease>,
    /// The answer that an inspection gives instead of the real one.
    pub(super) shown: Option<Inspection>,
    /// One fault for each of the next requests of a sort.
    pub(super) once: HashMap<Op, VecDeque<Fault>>,
    /// The fault of all requests of a sort.
    pub(super) always: HashMap<Op, Fault>,
    /// The fault of all other requests.
    pub(super) everything: Option<Fault>,
}

impl Orders {
    /// Takes the fault of the next request of this sort.
    pub(super) fn next(&mut self, op: Op) -> Fault {
        let once = self.once.get_mut(&op).and_then(VecDeque::pop_front);
        once.or(self.always.get(&op).copied()).or(self.everything).unwrap_or(Fault::Pass)
    }
}
