//! (g) A holder that listens for the loss of its lock gets the signal when its lease has ended. It
//! gets the signal before another owner has the lock (C3).

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place, between, nanos},
};
use crate::history::{Event, Mode, Renewal};

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    for lock in 0..index.locks.len() {
        let claims = || index.claims_of(lock).filter(|claim| claim.mode == Mode::Exclusive);
        // The exclusive grants, in the order of the grants.
        let mut alone: Vec<(Place, &Claim<'_>)> =
            claims().filter_map(|claim| Some((claim.granted?, claim))).collect();
        alone.sort_unstable_by_key(|(granted, _)| *granted);
        for claim in index.claims_of(lock) {
            let next = claim.granted.and_then(|granted| {
                let after = &alone[alone.partition_point(|(place, _)| *place <= granted)..];
                // A claim with a smaller token had the lock earlier, and its answer came late.
                let later = |(place, _): &&(Place, _)| token(index, *place) > token(index, granted);
                after.iter().find(later).map(|(_, next)| *next)
            });
            told(index, claim, next, findings);
        }
    }
}

fn token(index: &Index<'_>, granted: Place) -> Option<u64> {
    match index.records[granted].event {
        Event::Granted { token, .. } => Some(token),
        _ => None,
    }
}

/// `next` is the next claim that held the lock exclusively.
fn told(
    index: &Index<'_>,
    claim: &Claim<'_>,
    next: Option<&Claim<'_>>,
    findings: &mut Findings<'_, '_>,
) {
    let Some(listens) = claim.listens else { return };
    let granted = next.and_then(|next| next.granted);
    let taken = granted.map(|granted| index.at(granted));
    let end = end_of_lease(index, claim);
    let Some(end) = end.into_iter().chain(taken).min() else { return };
    let Some((last, was_told)) = listened_until(index, claim) else { return };
    let from = end.max(index.at(listens));
    let to = index.at(last);
    let late = to.saturating_sub(from);
    if late.saturating_sub(index.got_no_turn(claim.op.process, from, to))
        <= nanos(index.terms.told_within)
    {
        return;
    }
    let late = between(0, late);
    let after = match next.filter(|_| taken == Some(end)) {
        Some(next) => format!("the grant to {}", next.op),
        None => "the end of its lease".to_owned(),
    };
    let what = if was_told {
        format!("{} got its loss signal {late:?} after {after}", claim.op)
    } else {
        format!("{} got no loss signal, and listened for {late:?} after {after}", claim.op)
    };
    let proof = claim.proof.map(|(proof, _)| proof);
    let is_taken = taken == Some(end);
    let mut slice = vec![
        Some(claim.asks),
        claim.granted,
        Some(listens),
        proof,
        claim.lost,
        claim.releases,
        Some(last),
    ];
    slice.extend(granted.filter(|_| is_taken).map(Some));
    // The deadline of a lease does not depend on the store, so no fault of the store excuses this.
    let losable = if is_taken { vec![claim.op] } else { Vec::new() };
    findings.add(Finding {
        rule: Rule::Loss,
        at: from,
        lock: Some(claim.lock),
        what,
        slice,
        losable,
    });
}
/// The latest time at which the lease had ended, as far as the history shows it. The history does
/// not contain the renewals that the locker sends by itself.
fn end_of_lease(index: &Index<'_>, claim: &Claim<'_>) -> Option<u64> {
    let (_, until) = claim.proof?;
    let is_known = claim.renewal == Renewal::Manual && !claim.is_renewing;
    let longest = || Some(index.at(claim.granted?).saturating_add(nanos(claim.max_hold?)));
    let found = claim.lost.map(|lost| index.at(lost));
    [is_known.then_some(until), longest(), found].into_iter().flatten().min()
}

/// The last record up to which the claim is known to have listened, and whether it got the signal
/// there. A process that died may have died right after its last record.
fn listened_until(index: &Index<'_>, claim: &Claim<'_>) -> Option<(Place, bool)> {
    let told = claim.told.filter(|told| claim.releases.is_none_or(|releases| *told < releases));
    let not_told =
        || claim.releases.or_else(|| index.last_of(claim.op.process)).map(|place| (place, false));
    told.map(|told| (told, true)).or_else(not_told)
}
