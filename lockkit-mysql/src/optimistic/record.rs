//! The requests about one lock, and the answers to them.

use std::time::Duration;

use lockkit_core::{Kind, LockName, spi::Mode};

/// One request of one claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a str,
    pub(crate) label: &'a str,
    pub(crate) lease_us: u64,
    /// The server's time after which the request does nothing.
    pub(crate) not_after_us: u64,
    /// The client that asks, by the number under which other clients see it wait.
    pub(crate) client: u64,
}

/// The owner that a lock is transferred from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predecessor<'a> {
    pub(crate) owner: &'a str,
    pub(crate) tokens: TokenRange,
}

/// The least and the largest value that the token of a hold can have. They differ after an
/// unanswered request to raise it.
pub(crate) type TokenRange = (u64, u64);

/// The answer to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferAnswer {
    /// The new owner has the lock, with this token.
    Granted(u64),
    /// The lock was freed, because another client waits for it.
    Freed,
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Another owner has the lock: for so long, if that is known.
    Busy {
        left: Option<Duration>,
    },
    Granted {
        token: u64,
    },
    /// Another transaction is at work on the row. The attempt did nothing, and its answer does not
    /// say who has the lock.
    Locked,
    /// The attempt came after its not-after time, or to a server that is no primary, and did
    /// nothing. Its answer does not say who has the lock.
    Late,
    /// Other claims use the semaphore with another limit.
    Mismatch {
        limit: u32,
    },
}

/// The state of a lock, as a waiter needs it.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// The version changes with each grant.
    pub(crate) version: u64,
    pub(crate) now_us: u64,
    pub(crate) holders: Vec<Seen>,
    /// The permits of a semaphore.
    pub(crate) limit: u32,
    /// How long the record lasts that a client waits; that client renews it before. The client is a
    /// writer that no reader may overtake, or a client that is to have its turn.
    pub(crate) wanted: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) exclusive: bool,
    pub(crate) permits: u32,
    pub(crate) left: Duration,
}

impl LockRequest<'_> {
    pub(crate) fn kind(&self) -> &'static str {
        self.name.kind().as_str()
    }
}

impl Answer {
    /// Whether the answer says who has the lock.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self, Self::Locked | Self::Late)
    }
}

impl Look {
    /// Whether a claim in this mode would get the lock now.
    pub(crate) fn fits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => {
                self.wanted.is_zero() && self.holders.iter().all(|seen| !seen.exclusive)
            }
            Mode::Permits { count, limit } => {
                let used: u64 = self.holders.iter().map(|seen| u64::from(seen.permits)).sum();
                used + u64::from(count.get()) <= u64::from(limit.get())
            }
            _ => self.holders.is_empty(),
        }
    }

    /// Whether readers have the lock.
    pub(crate) fn is_read(&self) -> bool {
        self.holders.iter().any(|seen| !seen.exclusive)
    }

    /// Whether the lock has no holder, and readers do not get it because a writer waits.
    pub(crate) fn is_kept_for_a_writer(&self) -> bool {
        self.holders.is_empty() && !self.wanted.is_zero()
    }

    /// Adds a claim that is about to get the lock.
    pub(crate) fn add(&mut self, mode: Mode) {
        let permits = if let Mode::Permits { count, .. } = mode { count.get() } else { 1 };
        self.holders.push(Seen {
            exclusive: mode == Mode::Exclusive,
            permits,
            left: Duration::MAX,
        });
    }

    /// When the first lease ends.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.holders.iter().map(|seen| seen.left).min()
    }
}

/// Where the store keeps a lock of this kind and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In its own row.
    Row,
    /// In a row for each holder.
    Holders(Mode),
}

impl Form {
    /// `None` if there is no such lock.
    pub(crate) fn of(kind: Kind, mode: Mode) -> Option<Self> {
        match (kind, mode) {
            (Kind::Mutex | Kind::Election, Mode::Exclusive) => Some(Self::Row),
            (Kind::RwLock, Mode::Exclusive | Mode::Shared)
            | (Kind::Semaphore, Mode::Permits { .. }) => Some(Self::Holders(mode)),
            _ => None,
        }
    }
}
