//! Collects the findings of the rules. It reports a limited number of each rule in full, counts the
//! others, and keeps documented ones apart.

use std::collections::BTreeMap;

use super::{
    Rule, Violation,
    index::{Fault, Index, Place, nanos},
};
use crate::history::{Lock, Op, Record};

/// The number of findings of a rule that the report contains in full.
const TOLD: usize = 20;

/// The violations so far.
pub(super) struct Findings<'a, 'i> {
    index: &'i Index<'a>,
    of: BTreeMap<(Rule, bool), Found>,
}

#[derive(Default)]
struct Found {
    told: Vec<(u64, Violation)>,
    others: u64,
}

/// One finding of a rule.
pub(super) struct Finding<'f> {
    pub(super) rule: Rule,
    /// The first moment of the finding.
    pub(super) at: u64,
    pub(super) lock: Option<&'f Lock>,
    pub(super) what: String,
    /// The records that explain it.
    pub(super) slice: Vec<Option<Place>>,
    /// The holds that a fault which weakens exclusion may have lost. Empty if no fault excuses the
    /// finding.
    pub(super) losable: Vec<Op>,
}

impl<'a, 'i> Findings<'a, 'i> {
    pub(super) fn new(index: &'i Index<'a>) -> Self {
        Self { index, of: BTreeMap::new() }
    }

    /// The fault after which the store's documentation allows the finding at that instant. A
    /// process asked for one of those holds before the end of the fault, so the fault may have
    /// lost it.
    fn weakened(&self, at: u64, losable: &[Op]) -> Option<&'i Fault<'a>> {
        let after = self.index.aftermath();
        let slack = nanos(self.index.terms.slack);
        self.index.faults.iter().rfind(|fault| {
            let loses = |op: &Op| {
                let before = |to: u64| {
                    self.index.claim(op).is_some_and(|claim| {
                        let granted = claim.granted.map_or(0, |granted| self.index.at(granted));
                        // The answer may be recorded a little later than the grant in the store.
                        self.index.at(claim.asks) <= to && granted <= to.saturating_add(slack)
                    })
                };
                fault.victim.is_none_or(|victim| victim == op.process) && before(fault.to)
            };
            fault.weakens.is_some()
                && fault.from <= at
                && at <= fault.to.saturating_add(after)
                && losable.iter().any(loses)
        })
    }

    /// Whether the rule already has enough findings in full. If so, this counts the finding.
    pub(super) fn only_counts(&mut self, rule: Rule, at: u64, losable: &[Op]) -> bool {
        let documented = self.weakened(at, losable).is_some();
        let found = self.of.entry((rule, documented)).or_default();
        let is_full = found.told.len() >= TOLD;
        found.others += u64::from(is_full);
        is_full
    }

    pub(super) fn add(&mut self, finding: Finding<'_>) {
        let Finding { rule, at, lock, what, slice, losable } = finding;
        let weakened = self.weakened(at, &losable);
        let found = self.of.entry((rule, weakened.is_some())).or_default();
        if found.told.len() >= TOLD {
            found.others += 1;
            return;
        }
        let at_work = self.index.faults.iter().filter(|fault| fault.from <= at && at <= fault.to);
        let faults = weakened.into_iter().chain(at_work);
        let faults = faults.flat_map(|fault| [Some(fault.strikes), fault.heals]).flatten();
        let mut slice: Vec<Place> = slice.into_iter().flatten().chain(faults).collect();
        slice.sort_unstable();
        slice.dedup();
        let slice: Vec<Record> =
            slice.into_iter().map(|place| self.index.records[place].clone()).collect();
        let documented = weakened.and_then(|fault| fault.weakens).map(str::to_owned);
        found.told.push((at, Violation { rule, lock: lock.cloned(), what, slice, documented }));
    }

    /// The number of documented findings.
    pub(super) fn documented(&self) -> u64 {
        let documented = self.of.iter().filter(|((_, is_documented), _)| *is_documented);
        documented
            .map(|(_, found)| found.others + u64::try_from(found.told.len()).unwrap_or(u64::MAX))
            .sum()
    }

    /// The violations in order of time, and separately the documented violations.
    pub(super) fn told(self) -> (Vec<Violation>, Vec<Violation>) {
        let mut broken = Vec::new();
        let mut documented = Vec::new();
        for ((rule, is_documented), found) in self.of {
            let list = if is_documented { &mut documented } else { &mut broken };
            let words = found.told.first().and_then(|(_, first)| first.documented.clone());
            list.extend(found.told);
            if found.others > 0 {
                let what = format!("and {} more findings of this rule", found.others);
                let lock = None;
                let slice = Vec::new();
                list.push((u64::MAX, Violation { rule, lock, what, slice, documented: words }));
            }
        }
        let in_order = |mut list: Vec<(u64, Violation)>| {
            list.sort_by_key(|(at, _)| *at);
            list.into_iter().map(|(_, violation)| violation).collect()
        };
        (in_order(broken), in_order(documented))
    }
}
