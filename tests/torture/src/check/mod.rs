//! The checker: finds the broken promises in a history.
//!
//! It needs no search, because owners and tokens are unique: each rule is one pass over the records
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
mod leaks;
mod loss;
mod register;
mod renewal;
mod takeover;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod waiting;

/// Finds the broken promises in `records` of a store that is held to `terms`. The records come in
/// order of time.
///
/// The verdict shows the first violations of each rule in full and counts the others.
///
/// If the history never heals a fault, the fault ended where it began if it hit no process of ours.
/// Otherwise it lasts until that process has died. Three kinds of faults have rules of their own:
///
/// * A kind that contains `stop` leaves its victim without a chance to renew.
/// * `weather` loses and delays single requests all along. It excuses its effects, but puts no
///   bound off.
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

/// The promises that the store is held to.
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
    /// How much later than the end of a lease the loss signal may come.
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
    /// (a) Two claims have one token or one owner, or a token is not above an earlier one. Earlier
    /// tokens are those known before the request, or before its holder was known to hold (C2, C4).
    Tokens,
    /// (a) The register took a token below one that it had taken (C4), or refused a holder that
    /// held (C1).
    Register,
    /// (b) Two holders hold what only one of them can hold, or more permits are held than exist
    /// (C1, C3).
    Exclusion,
    /// (c) A name stayed taken for too long after its holder had died (C9).
    Takeover,
    /// (d) A request never ended, or ended after its bound (C8), or a claim is still waiting in the
    /// store (C6).
    Waiting,
    /// (e) Something was left in the store or in a process (C6).
    Leaks,
    /// (f) A claim that was undone or freed, by its answer, was applied or held (C5, C7).
    Ambiguity,
    /// (g) A holder that listened got no loss signal, or got it late, or after another owner had
    /// the lock (C3).
    Loss,
    /// A holder believed longer than its answers or its request allow, or the records of a process
    /// are not consistent (C3).
    Belief,
    /// A live holder lost its lock, or its locker did not renew it, without a cause (C10, C7, C1).
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
    /// The broken rule.
    pub rule: Rule,
    /// The lock, if the violation is about one lock.
    pub lock: Option<Lock>,
    /// The violation in a sentence, with the claims and tokens.
    pub what: String,
    /// The fewest records that explain it, in order of time.
    pub slice: Vec<Record>,
    /// Set if the documentation allows this after the fault at that time: the words of the
    /// documentation.
    pub documented: Option<String>,
}

/// The figures of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that won.
    pub grants: u64,
    /// Holds that ended without a release by the holder.
    pub losses: u64,
    /// Requests and releases whose outcome was unknown.
    pub unknown: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Futures and guards that were dropped.
    pub dropped: u64,
    /// Writes that the register took.
    pub accepted: u64,
    /// Writes that the register refused, because their holders were late.
    pub refused: u64,
    /// Deaths for which the history shows whether another claim followed in time.
    pub takeovers: u64,
    /// Documented violations, with those that the verdict only counts.
    pub documented: u64,
    /// How often each kind of fault happened.
    pub faults: BTreeMap<String, u64>,
    /// For each kind of fault, how long it took until a lock that had been held or waited for was
    /// granted again. The time counts from the end of a fault that lasts, and from the fault itself
    /// where nothing is healed.
    pub recoveries: BTreeMap<String, Vec<Duration>>,
}

/// The checker's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Broken promises, the earliest first.
    pub violations: Vec<Violation>,
    /// Weaker than the contract, as the store's documentation says.
    pub documented: Vec<Violation>,
    /// The figures of the history.
    pub figures: Figures,
}
