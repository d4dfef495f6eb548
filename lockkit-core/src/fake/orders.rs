//! What a test orders: faults, latency, and answers that the store would not give by itself.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use crate::{
    error::ErrorKind,
    spi::{Inspection, Lease},
};

/// A request that a claim or a backend can make, or what else the core calls.
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
    /// A probe, a diagnosis, or a question for names.
    Other,
    RaiseToken,
    Transfer,
    Release,
    WriteNote,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails for certain, before anything is done.
    Fail(ErrorKind),
    /// It never comes back; nothing is done.
    Hang,
    /// It is applied, and never comes back.
    HangAfter,
    /// It is applied, and its reply is lost.
    LoseReply,
    /// Nothing goes wrong.
    Pass,
    /// The backend has a bug.
    Panic,
    /// Its sender panics after it was applied.
    PanicAfter,
    /// It is applied at once, and answered late.
    SlowReply(Duration),
    /// It is applied late.
    SlowRequest(Duration),
}

impl Fault {
    /// The store is out of reach.
    pub const DOWN: Self = Self::Fail(ErrorKind::Unavailable);
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) latency: Duration,
    /// Locks whose name starts with "dead" get no answer to a renewal.
    pub(super) dead_shard: bool,
    /// What a grant or a renewal answers instead of the lease that it has.
    pub(super) lease: Option<Lease>,
    /// What an inspection answers instead of what is there.
    pub(super) shown: Option<Inspection>,
    /// For the next requests of a sort, one each.
    pub(super) once: HashMap<Op, VecDeque<Fault>>,
    /// For all requests of a sort.
    pub(super) always: HashMap<Op, Fault>,
    /// For all other requests.
    pub(super) everything: Option<Fault>,
}

impl Orders {
    /// What the next request of this sort meets.
    pub(super) fn next(&mut self, op: Op) -> Fault {
        let once = self.once.get_mut(&op).and_then(VecDeque::pop_front);
        once.or(self.always.get(&op).copied()).or(self.everything).unwrap_or(Fault::Pass)
    }
}
