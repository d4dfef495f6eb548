//! Decides whose turn it is, only from the names of the nodes in a lock's folder. The layout is
//! Curator's: its InterProcessMutex and InterProcessReadWriteLock wait in the same queue as
//! lockkit's claims.
//!
//! | name | role |
//! |---|---|
//! | `_c_<id>-lock-<sequence>` | exclusive |
//! | `_c_<id>-__READ__<sequence>` | shared |
//! | `_c_<id>-__WRIT__<sequence>` | exclusive, in a read/write lock |
//! | `_c_<id>-permits-<count>of<limit>-<sequence>` | some of a number of permits |
//!
//! The server gives each node a number of its own, with one exception. A Java thread may take the
//! read lock while it holds the write lock. Curator 5.5 and later then give the reader's node the
//! number of the writer's node (CURATOR-621). Such a reader is ahead of all present waiters.
//! Each node of a semaphore contains the limit. So claims with different limits detect each other,
//! and an idle name needs no record.

use std::num::NonZeroU32;

use lockkit_core::{Kind, spi::Mode};

use crate::version;

/// With more holders than this, the first waiter for permits watches the whole folder.
const MOST_WATCHES: usize = 16;

/// The access that a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Lock,
    Permits { count: NonZeroU32, limit: NonZeroU32 },
    Read,
    Write,
}

impl Role {
    /// The role of a claim, or `None` for a mode that this kind does not support.
    pub(crate) fn of(kind: Kind, mode: Mode) -> Option<Self> {
        match (kind, mode) {
            (Kind::Election | Kind::Mutex, Mode::Exclusive) => Some(Self::Lock),
            (Kind::RwLock, Mode::Exclusive) => Some(Self::Write),
            (Kind::RwLock, Mode::Shared) => Some(Self::Read),
            (Kind::Semaphore, Mode::Permits { count, limit }) => {
                Some(Self::Permits { count, limit })
            }
            _ => None,
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Lock | Self::Write => Mode::Exclusive,
            Self::Read => Mode::Shared,
            Self::Permits { count, limit } => Mode::Permits { count, limit },
        }
    }

    /// The prefix to which the server appends the sequence number.
    pub(crate) fn stem(self, id: &str) -> String {
        match self {
            Self::Lock => format!("_c_{id}-lock-"),
            Self::Read => format!("_c_{id}-__READ__"),
            Self::Write => format!("_c_{id}-__WRIT__"),
            Self::Permits { count, limit } => format!("_c_{id}-permits-{count}of{limit}-"),
        }
    }

    fn belongs_to(self, kind: Kind) -> bool {
        match self {
            Self::Lock => matches!(kind, Kind::Election | Kind::Mutex),
            Self::Read | Self::Write => kind == Kind::RwLock,
            Self::Permits { .. } => kind == Kind::Semaphore,
        }
    }
}

/// A node in a lock's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) role: Role,
    sequence: i32,
}

impl Member {
    fn parse(name: String) -> Result<Self, String> {
        // This check comes first, because a later layout may have node names that look like ours.
        if version::is_newer_name(&name) {
            return Err(name);
        }
        match parse(&name) {
            Some((role, sequence)) => Ok(Self { name, role, sequence }),
            None => Err(name),
        }
    }
}

fn parse(name: &str) -> Option<(Role, i32)> {
    for (marker, role) in
        [("lock-", Role::Lock), ("__READ__", Role::Read), ("__WRIT__", Role::Write)]
    {
        if let Some((_, number)) = name.rsplit_once(marker) {
            return Some((role, sequence(number)?));
        }
    }
    let (_, permits) = name.rsplit_once("-permits-")?;
    let (role, number) = permits.split_once('-')?;
    let (count, limit) = role.split_once("of")?;
    let count = positive(count)?;
    let limit = positive(limit)?;
    // A node with a count above the limit would never be granted, and would block all nodes behind
    // it.
    (count <= limit).then_some(())?;
    Some((Role::Permits { count, limit }, sequence(number)?))
}

/// Parses a number without a sign and without leading zeros.
fn positive(digits: &str) -> Option<NonZeroU32> {
    if digits.starts_with(['+', '0']) { None } else { digits.parse().ok() }
}

/// Parses a number in the server's form, `%010d`: ten digits, with a sign after an overflow of the
/// server's counter.
fn sequence(digits: &str) -> Option<i32> {
    let is_long = digits.len() == 11 && digits.starts_with('-') && !digits.starts_with("-0");
    let is_written_so = (digits.len() == 10 || is_long) && !digits.starts_with('+');
    // A negative zero is not valid either.
    let number = digits.parse().ok().filter(|number| *number != 0 || !digits.starts_with('-'));
    number.filter(|_| is_written_so)
}

/// All nodes in a folder, in the order of the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Queue(Vec<Member>);

/// The result of a read of the queue for one of its members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The member holds the lock.
    Granted,
    /// The member is not in the queue.
    Missing,
    /// A semaphore node ahead of the member has another limit.
    Disagrees { limit: NonZeroU32 },
    /// The member has to wait. Nothing changes for it until the obstacle changes.
    After(Obstacle),
}

/// The nodes that a waiter watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Once this node is gone, the waiter holds the lock. A writer never has this obstacle: a
    /// reader may take the place of a Java writer, so the writer has to list again.
    Last(String),
    /// Once this node is gone or changed, the waiter reads the queue again.
    Next(String),
    /// Any of these nodes.
    Any(Vec<String>),
    /// Any node in the folder, because there are too many to watch one by one.
    Folder,
}

impl Queue {
    /// Sorts the children of a lock's folder.
    ///
    /// # Errors
    /// The name of a node that does not belong to a lock of this kind.
    pub(crate) fn new(kind: Kind, children: Vec<String>) -> Result<Self, String> {
        let mut members = children.into_iter().map(Member::parse).collect::<Result<Vec<_>, _>>()?;
        if let Some(stranger) = members.iter().find(|member| !member.role.belongs_to(kind)) {
            return Err(stranger.name.clone());
        }
        // The counter may overflow. So the numbers are compared by their distance from a common
        // base, in one direction.
        if let Some(base) = members.first().map(|member| member.sequence) {
            // A reader with a writer's number comes after that writer.
            members.sort_by_key(|member| {
                (member.sequence.wrapping_sub(base), member.role == Role::Read)
            });
        }
        Ok(Self(members))
    }

    /// The turn of the member with this name.
    pub(crate) fn turn(&self, name: &str) -> Turn {
        match self.0.iter().position(|member| member.name == name) {
            Some(at) => turn(&self.0[..at], self.0[at].role),
            None => Turn::Missing,
        }
    }

    /// Whether the member with this name is the last of the queue.
    pub(crate) fn is_last(&self, name: &str) -> bool {
        self.0.last().is_some_and(|member| member.name == name)
    }

    /// The turn that a new member at the end of the queue would have.
    pub(crate) fn turn_of_next(&self, role: Role) -> Turn {
        turn(&self.0, role)
    }

    /// The members that hold the lock now, and the number of waiters.
    pub(crate) fn holders(&self) -> (&[Member], usize) {
        let Some(first) = self.0.first() else { return (&[], 0) };
        let holders = match first.role {
            Role::Lock => 1,
            // The read lock that the same Java thread has taken counts, too.
            Role::Write => {
                self.0.iter().take_while(|member| member.sequence == first.sequence).count()
            }
            Role::Read => self.0.iter().take_while(|member| member.role == Role::Read).count(),
            Role::Permits { limit, .. } => {
                let mut taken = 0;
                self.0
                    .iter()
                    .take_while(|member| {
                        taken += weight(member);
                        taken <= u64::from(limit.get())
                    })
                    .count()
            }
        };
        let (holders, waiters) = self.0.split_at(holders);
        (holders, waiters.len())
    }
}

fn turn(ahead: &[Member], role: Role) -> Turn {
    match role {
        Role::Lock | Role::Write => match ahead {
            [] => Turn::Granted,
            [only] if role == Role::Lock => Turn::After(Obstacle::Last(only.name.clone())),
            [.., next] => Turn::After(Obstacle::Next(next.name.clone())),
        },
        Role::Read => {
            let mut writers = ahead.iter().rev().filter(|member| member.role == Role::Write);
            match (writers.next(), writers.next()) {
                (None, _) => Turn::Granted,
                (Some(last), None) => Turn::After(Obstacle::Last(last.name.clone())),
                // Not the first writer: its end would wake every reader once per writer.
                (Some(nearest), Some(_)) => Turn::After(Obstacle::Next(nearest.name.clone())),
            }
        }
        Role::Permits { count, limit } => turn_for_permits(ahead, count, limit),
    }
}

/// Strictly first come, first served: a claim is granted if all members up to it fit in together.
fn turn_for_permits(ahead: &[Member], count: NonZeroU32, limit: NonZeroU32) -> Turn {
    for other in ahead {
        match other.role {
            Role::Permits { limit: theirs, .. } if theirs != limit => {
                return Turn::Disagrees { limit: theirs };
            }
            _ => {}
        }
    }
    let limit = u64::from(limit.get());
    let before = ahead.iter().map(weight).sum::<u64>();
    if before + u64::from(count.get()) <= limit {
        return Turn::Granted;
    }
    match ahead {
        // The member ahead waits as well, and its node changes when that ends.
        [.., next] if before > limit => Turn::After(Obstacle::Next(next.name.clone())),
        holders if holders.len() <= MOST_WATCHES => {
            Turn::After(Obstacle::Any(holders.iter().map(|member| member.name.clone()).collect()))
        }
        _ => Turn::After(Obstacle::Folder),
    }
}

fn weight(member: &Member) -> u64 {
    match member.role {
        Role::Permits { count, .. } => count.get().into(),
        Role::Lock | Role::Read | Role::Write => 1,
    }
}

#[cfg(test)]
mod tests;
