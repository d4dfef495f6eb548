//! A live holder keeps its lock. It loses the lock before the end of its lease only for a cause
//! (C1, C7, C10).

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Fault, Index, Place, between, nanos},
};
use crate::history::{Event, Outcome, Renewal};
use std::time::Duration;

/// The largest difference between two records of one end. On a busy machine, the answer to a
/// renewal may be this old.
const ROUNDING: Duration = Duration::from_millis(250);

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    for claim in &index.claims {
        let Some((place, what)) = taken_away(index, claim).or_else(|| not_renewed(index, claim))
        else {
            continue;
        };
        findings.add(Finding {
            rule: Rule::Renewal,
            at: index.at(place),
            lock: Some(claim.lock),
            what: format!("{} {what}", claim.op),
            slice: vec![
                Some(claim.asks),
                claim.granted,
                claim.known.map(|(known, _)| known),
                claim.releases,
                Some(place),
            ],
            losable: vec![claim.op],
        });
    }
}

/// The record that ends the hold before the end of its lease, if there is one.
fn taken_away(index: &Index<'_>, claim: &Claim<'_>) -> Option<(Place, String)> {
    let (_, until) = claim.known.filter(|_| claim.granted.is_some())?;
    let early = |place: Place| {
        let left = until.saturating_sub(index.at(place));
        (left > nanos(ROUNDING)).then(|| between(0, left))
    };
    if let Some(place) = claim.lost {
        let Event::Lost { reason, .. } = &index.records[place].event else { return None };
        let left = early(place)?;
        // A hold that belongs to a session or a connection ends with it.
        let by_session = reason.as_ref().is_some_and(|reason| reason.contains("session"));
        let excused = index.terms.ends_with_links || by_session;
        let what = format!("lost the lock {left:?} before the end of its lease");
        return (!(excused && has_a_cause(index, claim, index.at(place)))).then_some((place, what));
    }
    let place = claim.released?;
    let Event::Released { outcome: Outcome::NotHeld, .. } = index.records[place].event else {
        return None;
    };
    let left = early(place)?;
    if index.terms.ends_with_links && has_a_cause(index, claim, index.at(place)) {
        return None;
    }
    Some((place, format!("no longer held the lock, {left:?} before the end of its lease")))
}

/// Whether a fault hit the claim's process, its link or the servers after the last renewals.
fn has_a_cause(index: &Index<'_>, claim: &Claim<'_>, lost: u64) -> bool {
    let until = claim.proof.map_or(lost, |(_, until)| until.min(lost));
    let since = until.saturating_sub(index.aftermath());
    // A session needs several round trips. The rest of its lease is then no longer than the delay
    // of a busy machine.
    let is_cause = |fault: &Fault<'_>| index.terms.ends_with_links || !fault.is_bearable();
    index.disturbances(claim.op.process, since, lost).any(is_cause)
}

/// Finds a claim that the locker did not renew without a cause. A lease that is no longer than the
/// delay of a busy machine proves nothing.
fn not_renewed(index: &Index<'_>, claim: &Claim<'_>) -> Option<(Place, String)> {
    let lost = claim.lost.filter(|_| claim.renewal == Renewal::Auto)?;
    let granted = claim.granted?;
    let at = index.at(lost);
    let is_over = claim.max_hold.is_some_and(|most| {
        at.saturating_add(nanos(ROUNDING)) >= index.at(claim.asks).saturating_add(nanos(most))
    });
    // The lease of a session may be shorter than the lease that was asked for.
    let lease = match index.records[granted].event {
        Event::Granted { until, .. } => claim.lease.min(until.saturating_sub(index.at(granted))),
        _ => claim.lease,
    };
    let too_short = lease <= nanos(index.terms.slack);
    let late = claim.proof.is_some_and(|(_, until)| until <= index.at(granted));
    if is_over || too_short || late || has_a_cause(index, claim, at) {
        return None;
    }
    Some((lost, "was lost without a cause, although its locker had to renew it".to_owned()))
}
