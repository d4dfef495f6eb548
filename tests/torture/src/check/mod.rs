//! The checker: from what was written down it tells which promises were broken.
//!
//! No search is needed, because owners and tokens are unique: each rule is one pass over the
//! records in order of time.

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
mod leaks;
mod loss;
mod register;
mod renewal;
mod takeover;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod waiting;

/// Tells what was broken in `records`, which come in order of their time, of a store that is held
/// to `terms`.
///
/// Of each rule the first violations are told whole and the others counted. A fault that the
/// history never heals ended where it began, if it hit no process of ours; else it lasts until that
/// process has died. One whose kind says `stop` leaves its victim without a chance to renew; one
/// whose kind is `weather` says that requests got lost or late all along, one here and one there,
/// which excuses what it did and puts nothing off; and one whose kind is `link-slow` leaves lockers
/// time to renew, unless their leases are those of sessions or connections.
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

/// What the store is held to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Its leases end with a connection, and not only with their time.
    pub connection_bound: bool,
    /// A holder can lose its lock with its session or its connection, whether others get it then or
    /// not.
    pub ends_with_links: bool,
    /// A failover can lose what it has answered: a release, too.
    pub async_failover: bool,
    /// The δ of C9.
    pub takeover_delay: Duration,
    /// What a busy machine needs more than the bounds of the contract.
    pub slack: Duration,
    /// By so much later than the end of a lease its holder may be told.
    #[serde(default)]
    pub told_within: Duration,
}

impl Terms {
    /// What a store promises of itself.
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
    /// (a) A token or an owner was given twice, or a token is not above one that was known before
    /// it was asked for, or before its holder was known to hold (C2, C4).
    Tokens,
    /// (a) The register took a token below one that it had taken (C4), or refused one whose holder
    /// held (C1).
    Register,
    /// (b) Two hold what only one can, or more permits than there are (C1, C3).
    Exclusion,
    /// (c) A name stayed taken for too long after its holder had died (C9).
    Takeover,
    /// (d) A request never ended, or ended after its bound (C8), or somebody is still waiting in
    /// the store (C6).
    Waiting,
    /// (e) Something was left: in the store, or in a process (C6).
    Leaks,
    /// (f) What was said to be undone or freed was done or held (C5, C7).
    Ambiguity,
    /// (g) Who listened was not told that its lease had ended, or late: after another had the lock,
    /// too (C3).
    Loss,
    /// A holder believed past what it was told or asked for, or a process wrote what makes no sense
    /// (C3).
    Belief,
    /// A live holder was not left what it had, or its locker did not renew it, without a cause
    /// (C10, C7, C1).
    Renewal,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens => "(a) tokens rise (C4, C2)",
            Self::Register => "(a) the register refuses the past and nobody else (C4, C1)",
            Self::Exclusion => "(b) exclusion (C1, C3)",
            Self::Takeover => "(c) a dead holder is followed in time (C9)",
            Self::Waiting => "(d) every wait ends (C8, C6)",
            Self::Leaks => "(e) nothing is left (C6)",
            Self::Ambiguity => "(f) unknown is not failed (C5, C7)",
            Self::Loss => "(g) a loss is told in time (C3)",
            Self::Belief => "holders know (C3)",
            Self::Renewal => "a live holder keeps its lock (C10, C7)",
        })
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// On which lock, if it is about one.
    pub lock: Option<Lock>,
    /// What was wrong, in a sentence with the claims and tokens.
    pub what: String,
    /// The fewest records that explain it, in order of time.
    pub slice: Vec<Record>,
    /// The documentation says that this may happen after the fault that was at work then: its
    /// words.
    pub documented: Option<String>,
}

/// What there was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that won.
    pub grants: u64,
    /// Holds that ended other than by the holder's doing.
    pub losses: u64,
    /// Requests and releases whose outcome was unknown.
    pub unknown: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Futures and guards that were dropped.
    pub dropped: u64,
    /// Writes that the register took.
    pub accepted: u64,
    /// Writes that it refused: of holders that were late.
    pub refused: u64,
    /// Deaths of which it could be told whether somebody followed in time.
    pub takeovers: u64,
    /// What was weaker than exclusion, and is documented to be: also what the verdict only counts.
    pub documented: u64,
    /// How often each kind of fault was done.
    pub faults: BTreeMap<String, u64>,
    /// By kind of fault: how long it took until somebody was granted what had been held or waited
    /// for. From the end of a fault that lasts, from the fault itself where nothing is healed.
    pub recoveries: BTreeMap<String, Vec<Duration>>,
}

/// The checker's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Broken promises, the earliest first.
    pub violations: Vec<Violation>,
    /// What was weaker than exclusion, and is documented to be.
    pub documented: Vec<Violation>,
    /// What there was.
    pub figures: Figures,
}
