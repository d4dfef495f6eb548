//! (f) If an answer says that a claim was undone, the claim is no longer in the store. A certain
//! answer counts at once, and an uncertain answer counts after the lease of the claim.

use std::collections::{HashMap, HashSet};

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place, between, nanos},
    late,
};
use crate::history::{DIRECTOR, Event, Op, Outcome, Refusal};

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    looks(index, findings);
    store(index, findings);
}

/// The time from which a claim must not be in the store, and the record that proves it.
fn gone(index: &Index<'_>, claim: &Claim<'_>) -> Option<(u64, Place, &'static str)> {
    let process = claim.op.process;
    let later = |place: Place| index.bound(index.at(place), claim.lease, Some(process));
    // A replica that takes over may not know that the claim was undone, and so the claim may come
    // back.
    let undone = |place: Place| {
        let may_be_lost =
            index.terms.async_failover && index.servers_suffer(index.at(place), claim.lease);
        if may_be_lost { later(place) } else { index.at(place) }
    };
    if let Some((place, why)) = index.refusal(claim) {
        return Some(match why {
            Refusal::Failed(_) => (undone(place), place, "certainly failed"),
            Refusal::Busy => {
                let before = index.at(claim.asks).saturating_sub(claim.lease);
                let is_certain =
                    index.disturbances(process, before, index.at(place)).next().is_none();
                let from = index.at(place).saturating_add(nanos(index.terms.slack));
                (
                    if is_certain { from } else { later(place) },
                    place,
                    "was refused because the lock was busy",
                )
            }
            Refusal::TimedOut => (later(place), place, "timed out"),
            Refusal::Cancelled => (later(place), place, "was cancelled"),
            Refusal::Unknown(_) => (later(place), place, "ended with an unknown outcome"),
        });
    }
    if let Some(place) = claim.released
        && let Event::Released { outcome, .. } = &index.records[place].event
    {
        return Some(match outcome {
            Outcome::Freed => (undone(place), place, "released the lock"),
            // The local deadline comes before the end of the lease in the store.
            Outcome::NotHeld => {
                (later(place), place, "learned at its release that it did not hold the lock")
            }
            Outcome::Dropped => (later(place), place, "was dropped"),
            Outcome::Unknown(_) => (later(place), place, "was released with an unknown outcome"),
            Outcome::Failed(_) => (later(place), place, "could not be released"),
        });
    }
    let died = index.death(process).filter(|_| index.was_cut_off(process))?;
    Some((index.bound(index.at(died), claim.lease, None), died, "died"))
}

fn looks(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut told: HashSet<Op> = HashSet::new();
    // The director's last look at a lock is for the rule about leaks.
    let looks = index.records.iter().enumerate().filter(|(_, record)| record.process != DIRECTOR);
    for (look, record) in looks {
        let Event::Seen { lock, holders, .. } = &record.event else { continue };
        for holder in holders {
            let Some(op) = holder.op else { continue };
            let Some(claim) = index.claim(&op) else { continue };
            let Some((from, place, said)) = gone(index, claim) else { continue };
            if record.at <= from || late::may_have(index, claim, holder.token, look) {
                continue;
            }
            if !told.insert(op) {
                continue;
            }
            let later = between(index.at(place), record.at);
            let what = format!(
                "{op} {said}, but a look at the store {later:?} later shows it as a holder"
            );
            let slice =
                vec![Some(claim.asks), claim.granted, claim.releases, Some(place), Some(look)];
            let rule = Rule::Ambiguity;
            let at = record.at;
            let lock = Some(lock);
            // No failover can bring back a claim that was never granted.
            let losable = if failed(index, claim) { Vec::new() } else { vec![op] };
            findings.add(Finding { rule, at, lock, what, slice, losable });
        }
    }
}

/// Checks the store's own records, if the history has them. The store must not apply a request that
/// certainly failed.
fn store(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut applied: HashMap<Op, Place> = HashMap::new();
    let mut broken: Vec<(&Claim<'_>, Place)> = Vec::new();
    for (place, record) in index.records.iter().enumerate() {
        match &record.event {
            Event::Applied { op, .. } => {
                applied.insert(*op, place);
                let failed = index.claim(op).filter(|claim| failed(index, claim));
                if let Some(claim) = failed
                    .filter(|claim| claim.refused.is_some_and(|end| index.at(end) < record.at))
                {
                    broken.push((claim, place));
                }
            }
            Event::Gone { op } => _ = applied.remove(op),
            Event::Refused { op, why: Refusal::Failed(_) } => {
                if let (Some(&granted), Some(claim)) = (applied.get(op), index.claim(op)) {
                    broken.push((claim, granted));
                }
            }
            _ => {}
        }
    }
    for (claim, place) in broken {
        let what = format!("{} certainly failed, but the store had granted it", claim.op);
        let slice = vec![Some(claim.asks), Some(place), claim.refused];
        let rule = Rule::Ambiguity;
        let at = index.at(place);
        let lock = Some(claim.lock);
        findings.add(Finding { rule, at, lock, what, slice, losable: Vec::new() });
    }
}

fn failed(index: &Index<'_>, claim: &Claim<'_>) -> bool {
    matches!(index.refusal(claim), Some((_, Refusal::Failed(_))))
}
