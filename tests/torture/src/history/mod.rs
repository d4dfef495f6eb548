//! The history of a run, step by step: each process writes a record before it continues.
//!
//! All processes of a machine read the same clock, which counts from boot, so their records can be
//! put in order.

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
    /// The process that wrote the record.
    pub process: u32,
    /// The step that happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The number of the register, which is a separate process.
pub const REGISTER: u32 = u32::MAX;
/// The number of the director, which starts the processes and causes the faults.
pub const DIRECTOR: u32 = u32::MAX - 1;

/// One claim on one lock, from its request to its end. Its text is also the claim's label in the
/// store, so that a look at the lock shows the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// The process that asks.
    pub process: u32,
    /// The number of the claim in that process.
    pub number: u64,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}.{}", self.process, self.number)
    }
}

/// The text is not an [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the number of a claim, such as p3.17")]
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

/// A lock. The same name in two kinds means two locks.
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
        /// The number of permits.
        limit: u32,
    },
}

/// The way in which a claim holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A mutex, or the write side.
    Exclusive,
    /// The read side.
    Shared,
    /// This many permits.
    Permits(u32),
}

/// The side that renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Renewal {
    /// The locker.
    Auto,
    /// The task itself, if it renews at all.
    Manual,
}

/// The time for which the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Patience {
    /// `try_lock`.
    No,
    /// `lock_timeout`.
    For(Duration),
    /// `lock`, whose future is dropped after this time.
    UntilDropped(Duration),
    /// `lock`, without a bound.
    Unbounded,
}

/// The reason why a request got no lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Another owner has the lock.
    Busy,
    /// The bound on waiting passed.
    TimedOut,
    /// The future was dropped.
    Cancelled,
    /// An error that says that the store applied nothing.
    Failed(String),
    /// An error whose outcome is unknown.
    Unknown(String),
}

/// The end of a hold, as its holder learned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// `Released::Freed`.
    Freed,
    /// `Released::NotHeld`.
    NotHeld,
    /// An error whose outcome is unknown: the lease ends the hold.
    Unknown(String),
    /// An error that says that the store applied nothing.
    Failed(String),
    /// The guard was dropped: the holder learns no outcome.
    Dropped,
}

/// One step of a process, of the store, or of the director.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The process has connected and begins. This is the first record of each process.
    Begins {
        /// The store's name for itself.
        backend: String,
    },
    /// A request, before it is sent.
    Asks {
        /// The claim.
        op: Op,
        /// The requested lock.
        lock: Lock,
        /// The requested mode.
        mode: Mode,
        /// The requested lease.
        ttl: Duration,
        /// The side that renews the lease.
        renewal: Renewal,
        /// How long the caller waits.
        patience: Patience,
        /// The longest hold, if there is a limit.
        max_hold: Option<Duration>,
    },
    /// The request got the lock. `at` is after the answer.
    Granted {
        /// The claim.
        op: Op,
        /// Its owner in the store.
        owner: String,
        /// The token of the grant.
        token: u64,
        /// When the hold ends without another renewal, on the common clock.
        until: u64,
    },
    /// The request got no lock.
    Refused {
        /// The claim.
        op: Op,
        /// The reason why the request got no lock.
        why: Refusal,
    },
    /// The holder knew at `at` that it held, and when the hold ends without another renewal.
    Holds {
        /// The claim.
        op: Op,
        /// When the hold ends, on the common clock.
        until: u64,
    },
    /// The holder begins to listen for its loss, until the loss signal comes or the release begins.
    Listens {
        /// The claim.
        op: Op,
    },
    /// The loss signal came, even if the holder had noticed its loss before.
    Told {
        /// The claim.
        op: Op,
        /// The reason for the loss.
        reason: String,
    },
    /// A process that takes locks measured that it got no processor time for this long before `at`.
    Stalled {
        /// The time without processor time.
        lasted: Duration,
    },
    /// The holder knows that it no longer holds, for another reason than its own release.
    Lost {
        /// The claim.
        op: Op,
        /// The reason for the loss, if the holder knows it.
        reason: Option<String>,
    },
    /// A renewal by hand, before it is sent.
    Renews {
        /// The claim.
        op: Op,
        /// Set if the renewal asks for another lease than the first one.
        lease: Option<Duration>,
    },
    /// The renewal has its answer. [`Holds`](Self::Holds) follows a success.
    Renewed {
        /// The claim.
        op: Op,
        /// The error, if the renewal did not succeed.
        error: Option<String>,
    },
    /// The holder begins to release the lock. From here on it does not believe that it holds.
    Releases {
        /// The claim.
        op: Op,
    },
    /// The release has ended.
    Released {
        /// The claim.
        op: Op,
        /// The outcome, as the holder learned it.
        outcome: Outcome,
    },
    /// A holder is about to write to the register.
    Writes {
        /// The claim.
        op: Op,
        /// Whether the holder did not check that it still holds.
        careless: bool,
    },
    /// The register has answered the write.
    Written {
        /// The claim.
        op: Op,
        /// Whether the register accepted it.
        accepted: bool,
    },
    /// The register writes this: it compared the token of a write.
    Compared {
        /// The claim.
        op: Op,
        /// The lock that the write is about.
        lock: Lock,
        /// The token of the write.
        token: u64,
        /// The largest token before.
        largest: u64,
        /// Whether the register accepted the write.
        accepted: bool,
    },
    /// A process looked at a lock. `at` is the time of its request.
    Seen {
        /// The lock.
        lock: Lock,
        /// The time of the answer.
        answered: u64,
        /// The holders of the lock.
        holders: Vec<Holder>,
        /// The number of waiters, if the store knows it.
        waiters: Option<u64>,
    },
    /// The store itself writes this, if the store is a part of the test: it granted this claim. No
    /// process writes this.
    Applied {
        /// The claim.
        op: Op,
        /// The token of the grant.
        token: u64,
    },
    /// The store itself writes this: it contains nothing of the grant any more.
    Gone {
        /// The claim.
        op: Op,
    },
    /// The director begins a fault.
    Strikes {
        /// The number of the fault, from 1.
        fault: u32,
        /// The kind of the fault, such as `kill-holder`.
        kind: String,
        /// The target of the fault: a process, a server, or a link.
        target: String,
        /// The process that the fault hits, if it is a process of ours.
        victim: Option<u32>,
        /// The words of the store's documentation, if it says that the fault may break exclusion.
        /// Exclusion is weaker until the leases of that time are over.
        weakens: Option<String>,
    },
    /// The fault is over: the director healed it, or continued or replaced the process. A fault
    /// that needs no heal ends where it begins.
    Heals {
        /// The number of the fault.
        fault: u32,
    },
    /// The director saw that a process had ended, for any reason.
    Died {
        /// The number of the process.
        victim: u32,
    },
    /// A process got the order to end, released its locks, and counted its remaining tasks and
    /// files.
    Ends {
        /// Tasks of its runtime beyond those before it connected.
        tasks: u64,
        /// Open files beyond those before it connected.
        files: u64,
    },
    /// After all processes had ended, the store still contained a leftover.
    Leaks {
        /// The leftover.
        what: String,
    },
}

/// A holder of a lock, as the store reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The claim, by its label.
    pub op: Option<Op>,
    /// The token of the grant.
    pub token: Option<u64>,
    /// The mode of the hold.
    pub mode: Mode,
}
