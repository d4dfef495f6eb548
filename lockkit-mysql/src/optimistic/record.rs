//! What is asked of the tables about one lock, and what they answer.

use std::time::Duration;

use lockkit_core::{Kind, spi::Mode};

/// One request of one claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) label: &'a str,
    pub(crate) lease_us: u64,
    /// The server's time after which it does nothing.
    pub(crate) not_after_us: u64,
    /// Whoever asks will wait.
    pub(crate) waits: bool,
    /// The client that asks, as those know it who look for others that wait.
    pub(crate) client: u64,
}

/// The owner that a lock is transferred from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predecessor<'a> {
    pub(crate) owner: &'a str,
    pub(crate) tokens: TokenRange,
}

/// The least and the largest that the token of a hold can be: they differ after a request to raise
/// it that got no answer.
pub(crate) type TokenRange = (u64, u64);

/// The answer to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferAnswer {
    /// To the new owner, with this token.
    Granted(u64),
    /// It was freed, as another client waits for it.
    Freed,
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Somebody else has it: for so long, if that is known.
    Busy {
        left: Option<Duration>,
    },
    Granted {
        token: u64,
    },
    /// Somebody is at work on the row. It did nothing, and does not know who has the lock.
    Locked,
    /// It came after its not-after time, or to a server that is no primary, and did nothing. It
    /// does not know who has the lock either.
    Late,
    /// Others use the semaphore with another limit.
    Mismatch {
        limit: u32,
    },
}

/// Who has a lock, as a waiter wants to know it.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Changes with each grant.
    pub(crate) version: u64,
    pub(crate) now_us: u64,
    pub(crate) holders: Vec<Seen>,
    /// Somebody waits, and will say so again by then: a writer, before whom no reader shall come,
    /// or a client that is to have its turn.
    pub(crate) wanted: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) exclusive: bool,
    pub(crate) permits: u32,
    pub(crate) left: Duration,
}

impl Answer {
    /// Whether it tells who has the lock.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self, Self::Locked | Self::Late)
    }
}

impl Look {
    /// Whether somebody who wants it in this mode would get it now.
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

    /// Whether readers have it.
    pub(crate) fn is_read(&self) -> bool {
        self.holders.iter().any(|seen| !seen.exclusive)
    }

    /// Whether nobody has it, and readers don't get it either, for a writer that waits.
    pub(crate) fn is_kept_for_a_writer(&self) -> bool {
        self.holders.is_empty() && !self.wanted.is_zero()
    }

    /// Adds somebody who is about to get it.
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

/// Where a lock of this kind, held in this mode, is kept.
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
