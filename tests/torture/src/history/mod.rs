//! What happened, step by step: each process writes a line before it goes on.
//!
//! All processes of a machine read the same clock, which counts from boot, so that their lines can
//! be put in order.

mod reader;
mod writer;

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{reader::read, writer::Writer};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Nanoseconds of the clock that all processes share.
    pub at: u64,
    /// Whose line it is.
    pub process: u32,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The number of the register, which is a process of its own.
pub const REGISTER: u32 = u32::MAX;
/// The number of whoever does the faults and starts the processes.
pub const DIRECTOR: u32 = u32::MAX - 1;

/// One claim on one lock, from its request to its end. It is the claim's label in the store, too,
/// so that whoever inspects the lock can tell whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// The process that asks.
    pub process: u32,
    /// Its number there.
    pub number: u64,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}.{}", self.process, self.number)
    }
}

/// The text is no [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the number of a claim: those look like p3.17")]
pub struct ParseOpError;

impl FromStr for Op {
    type Err = ParseOpError;

    fn from_str(text: &str) -> Result<Self, ParseOpError> {
        let (process, number) =
            text.strip_prefix('p').and_then(|text| text.split_once('.')).ok_or(ParseOpError)?;
        let process = process.parse().map_err(|_| ParseOpError)?;
        Ok(Self { process, number: number.parse().map_err(|_| ParseOpError)? })
    }
}

impl Serialize for Op {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which lock. The same text in two kinds is two locks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lock {
    /// `Locker::mutex`.
    Mutex(String),
    /// `Locker::rw_lock`.
    RwLock(String),
    /// `Locker::semaphore`.
    Semaphore {
        /// Its name.
        name: String,
        /// How many permits there are.
        limit: u32,
    },
}

/// How it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A mutex, or the write side.
    Exclusive,
    /// The read side.
    Shared,
    /// So many permits.
    Permits(u32),
}

/// Who renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Renewal {
    /// The locker.
    Auto,
    /// The task itself, if at all.
    Manual,
}

/// How long the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Patience {
    /// `try_lock`.
    No,
    /// `lock_timeout`.
    For(Duration),
    /// `lock`, and drops the future after so long.
    UntilDropped(Duration),
    /// `lock`, without a bound.
    Unbounded,
}

/// Why no lock came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Somebody else has it.
    Busy,
    /// The bound on waiting passed.
    TimedOut,
    /// The future was dropped.
    Cancelled,
    /// An error that says that nothing was done.
    Failed(String),
    /// An error whose outcome is unknown.
    Unknown(String),
}

/// How a hold ended, by what its holder was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// `Released::Freed`.
    Freed,
    /// `Released::NotHeld`.
    NotHeld,
    /// An error whose outcome is unknown: the lease ends it.
    Unknown(String),
    /// An error that says that nothing was done.
    Failed(String),
    /// The guard was dropped, and nobody is told anything.
    Dropped,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A process has connected and begins. The first line of each.
    Begins {
        /// What the store calls itself.
        backend: String,
    },
    /// A request, before it is sent.
    Asks {
        /// The claim.
        op: Op,
        /// On this lock.
        lock: Lock,
        /// In this way.
        mode: Mode,
        /// For this lease.
        ttl: Duration,
        /// Renewed by whom.
        renewal: Renewal,
        /// Waiting so long.
        patience: Patience,
        /// Who holds it for no longer than this, if so.
        max_hold: Option<Duration>,
    },
    /// The request won. `at` is after the answer.
    Granted {
        /// The claim.
        op: Op,
        /// Its owner in the store.
        owner: String,
        /// Its token.
        token: u64,
        /// Until when it is held without another renewal, on the common clock.
        until: u64,
    },
    /// The request did not win.
    Refused {
        /// The claim.
        op: Op,
        /// Why.
        why: Refusal,
    },
    /// The holder knew at `at` that it holds, and until when without another renewal.
    Holds {
        /// The claim.
        op: Op,
        /// On the common clock.
        until: u64,
    },
    /// From here on the holder listens for its loss, until it is told or begins to release.
    Listens {
        /// The claim.
        op: Op,
    },
    /// It was told, whether or not it had asked before.
    Told {
        /// The claim.
        op: Op,
        /// Why.
        reason: String,
    },
    /// A process that takes locks got no turn for so long before `at`, by what it measures itself.
    Stalled {
        /// How long.
        lasted: Duration,
    },
    /// The holder knows that it holds no more, other than by its own doing.
    Lost {
        /// The claim.
        op: Op,
        /// Why, if it was told.
        reason: Option<String>,
    },
    /// A renewal by hand, before it is sent.
    Renews {
        /// The claim.
        op: Op,
        /// For another lease than the first one.
        lease: Option<Duration>,
    },
    /// It was answered; a success is followed by [`Holds`](Self::Holds).
    Renewed {
        /// The claim.
        op: Op,
        /// What it said, if it did not succeed.
        error: Option<String>,
    },
    /// The holder begins to give the lock back: from here on it doesn't believe any more.
    Releases {
        /// The claim.
        op: Op,
    },
    /// And that is how it ended.
    Released {
        /// The claim.
        op: Op,
        /// As it was told.
        outcome: Outcome,
    },
    /// A holder is about to write to the register.
    Writes {
        /// The claim.
        op: Op,
        /// Without having asked whether it still holds: a careless one.
        careless: bool,
    },
    /// It was answered.
    Written {
        /// The claim.
        op: Op,
        /// Whether the register took it.
        accepted: bool,
    },
    /// By the register: a write arrived, and was compared.
    Compared {
        /// The claim.
        op: Op,
        /// What was written to.
        lock: Lock,
        /// Its token.
        token: u64,
        /// The largest one before.
        largest: u64,
        /// Whether it was taken.
        accepted: bool,
    },
    /// Somebody looked at a lock. `at` is when it asked.
    Seen {
        /// At this one.
        lock: Lock,
        /// When the answer was there.
        answered: u64,
        /// Who had it.
        holders: Vec<Holder>,
        /// How many waited, if the store knows.
        waiters: Option<u64>,
    },
    /// By the store itself, where that is a part of the test: it granted this. Never written by a
    /// process.
    Applied {
        /// The claim.
        op: Op,
        /// Its token.
        token: u64,
    },
    /// By the store itself: nothing of the grant is left.
    Gone {
        /// The claim.
        op: Op,
    },
    /// The director begins a fault.
    Strikes {
        /// Its number, from 1.
        fault: u32,
        /// What it is, such as `kill-holder`.
        kind: String,
        /// Whom it hits: a process, a server, a link.
        target: String,
        /// The process it hits, if it is one of ours.
        victim: Option<u32>,
        /// What the store's documentation gives up because of it: exclusion, until the leases of
        /// that time are over.
        weakens: Option<String>,
    },
    /// It is over: healed, gone on, or started again. A fault that leaves nothing to heal ends
    /// where it begins.
    Heals {
        /// Its number.
        fault: u32,
    },
    /// The director saw a process end, whatever ended it.
    Died {
        /// Its number.
        victim: u32,
    },
    /// A process was told to end, has given back all, and has counted what is left of it.
    Ends {
        /// Tasks of its runtime beyond those before it connected.
        tasks: u64,
        /// Open files beyond those before it connected.
        files: u64,
    },
    /// After all had ended, something was still in the store.
    Leaks {
        /// What.
        what: String,
    },
}

/// Somebody who has a lock, as the store tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The claim, by its label.
    pub op: Option<Op>,
    /// Its token.
    pub token: Option<u64>,
    /// How it holds.
    pub mode: Mode,
}
