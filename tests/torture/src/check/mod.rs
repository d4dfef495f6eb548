//! The checker: finds the broken promises in a history.
//!
//! It needs no search, because owners and tokens are unique. Each rule is one pass over the records
//! in order of time.

use std::{collections::BTreeMap, fmt, time::Duration};

use lockkit::spi::{Descriptor, LeaseScope};
use serde::{Deserialize, Serialize};

use crate::history::{Lock, Record};

pub(crate) use self::index::op_of;
use self::{findings::Findings, index::Index};

mod ambiguity;
mod belief;
mod exclusion;
mod figures;
mod findings;
mod index;
mod late;
mod leaks;
mod loss;
mod register;
mod renewal;
mod takeover;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod waiting;

/// Finds the broken promises in `records` of a store with these `terms`. The records are in order
/// of time.
///
/// The verdict shows the first violations of each rule in full and counts the others.
///
/// If the history contains no end of a fault, and the fault hit no process of ours, it ended where
/// it began. If it hit a process of ours, it lasts until that process has died. Three kinds of
/// faults have special rules:
///
/// * A kind that contains `stop` leaves its victim no time to renew.
/// * `weather` loses and delays single requests all the time. It excuses its effects, but extends
///   no bound.
/// * `link-slow` leaves lockers time to renew, unless their leases belong to sessions or
///   connections.
#[must_use]
pub fn check(records: &[Record], terms: &Terms) -> Verdict {
    let index = Index::of(records, terms);
    let mut findings = Findings::new(&index);
    tokens::check(&index, &mut findings);
    register::check(&index, &mut findings);
    exclusion::check(&index, &mut findings);
    let takeovers = takeover::check(&index, &mut findings);
    waiting::check(&index, &mut findings);
    leaks::check(&index, &mut findings);
    ambiguity::check(&index, &mut findings);
    belief::check(&index, &mut findings);
    renewal::check(&index, &mut findings);
    loss::check(&index, &mut findings);
    let figures = Figures { takeovers, documented: findings.documented(), ..figures::of(&index) };
    let (violations, documented) = findings.told();
    Verdict { violations, documented, figures }
}

/// The promises that the store must keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Whether its leases end with a connection, and not only with their time.
    pub connection_bound: bool,
    /// Whether a holder can lose its lock with its session or its connection, even if no other
    /// owner can have it then.
    pub ends_with_links: bool,
    /// Whether a failover can lose an answered request, also a release.
    pub async_failover: bool,
    /// The δ of C9.
    pub takeover_delay: Duration,
    /// The time that a busy machine needs beyond the bounds of the contract.
    pub slack: Duration,
    /// The time from the end of a lease in which the loss signal must come.
    #[serde(default)]
    pub told_within: Duration,
}

impl Terms {
    /// The promises of a store, by its descriptor.
    #[must_use]
    pub fn of(descriptor: &Descriptor, slack: Duration) -> Self {
        let exceptions = descriptor.exceptions;
        Self {
            // Without a lease, a killed holder's locks end with it at once.
            connection_bound: exceptions.connection_bound || exceptions.no_lease,
            ends_with_links: descriptor.lease_scope != LeaseScope::Claim,
            async_failover: exceptions.async_failover,
            takeover_delay: descriptor.takeover_delay,
            slack,
            told_within: slack,
        }
    }
}

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// (a) Two claims have one token or one owner, or a token is not above an earlier token.
    /// Earlier tokens were known before the request, or before its holder was known to hold (C2,
    /// C4).
    Tokens,
    /// (a) The register accepted a token below an earlier accepted token (C4), or refused a holder
    /// that held (C1).
    Register,
    /// (b) An exclusive holder holds at the same time as another holder, or the permits in use
    /// exceed the limit (C1, C3).
    Exclusion,
    /// (c) A lock stayed taken for too long after its holder had died (C9).
    Takeover,
    /// (d) A request never ended, or ended after its bound (C8), or a claim is still waiting in the
    /// store (C6).
    Waiting,
    /// (e) The store or a process has leftovers (C6).
    Leaks,
    /// (f) An answer says that a claim was undone or freed, but the store applied or kept it (C5,
    /// C7).
    Ambiguity,
    /// (g) A holder that listened got no loss signal, or got it late, or after another owner had
    /// the lock (C3).
    Loss,
    /// A holder believed that it held for longer than its answers or its request allow, or the
    /// records of a process are not consistent (C3).
    Belief,
    /// A live holder lost its lock, or its locker did not renew it, without a cause (C10, C7, C1).
    Renewal,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "(a) tokens rise (C4, C2)",
            Self::Register => "(a) the register refuses only old tokens (C4, C1)",
            Self::Exclusion => "(b) exclusion (C1, C3)",
            Self::Takeover => "(c) another process gets a dead holder's lock in time (C9)",
            Self::Waiting => "(d) every wait ends (C8, C6)",
            Self::Leaks => "(e) no leftovers (C6)",
            Self::Ambiguity => "(f) an undone claim is not in the store (C5, C7)",
            Self::Loss => "(g) the loss signal comes in time (C3)",
            Self::Belief => "a holder knows how long it holds (C3)",
            Self::Renewal => "a live holder keeps its lock (C10, C7)",
        })
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// The lock, if the violation is about one lock.
    pub lock: Option<Lock>,
    /// The violation in a sentence, with the claims and tokens.
    pub what: String,
    /// The fewest records that explain it, in order of time.
    pub slice: Vec<Record>,
    /// The words of the documentation, if it allows this after the fault at that time.
    pub documented: Option<String>,
}

/// The figures of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that got the lock.
    pub grants: u64,
    /// Holds that ended without a release by the holder.
    pub losses: u64,
    /// Requests and releases whose outcome was unknown.
    pub unknown: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Futures and guards that were dropped.
    pub dropped: u64,
    /// Writes that the register accepted.
    pub accepted: u64,
    /// Writes that the register refused, because their holders were late.
    pub refused: u64,
    /// Deaths for which the history shows whether another claim followed in time.
    pub takeovers: u64,
    /// Documented violations, including those that the verdict only counts.
    pub documented: u64,
    /// The number of faults of each kind.
    pub faults: BTreeMap<String, u64>,
    /// For each kind of fault, the time until the next grant of a lock that had a holder or a
    /// waiter. The time counts from the end of a fault that lasts, or else from the fault itself.
    pub recoveries: BTreeMap<String, Vec<Duration>>,
}

/// The checker's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Broken promises, in order of time.
    pub violations: Vec<Violation>,
    /// Violations that the store's documentation allows.
    pub documented: Vec<Violation>,
    /// The figures of the history.
    pub figures: Figures,
}
