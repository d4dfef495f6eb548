//! (g) Who listens for the loss of its lock is told when its lease has ended (C3).

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place, between, nanos},
};
use crate::history::Renewal;

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    for claim in &index.claims {
        let (Some(listens), Some(end)) = (claim.listens, end_of_lease(index, claim)) else { continue };
        let Some((last, was_told)) = listened_until(index, claim) else { continue };
        let (from, to) = (end.max(index.at(listens)), index.at(last));
        let late = to.saturating_sub(from);
        if late.saturating_sub(index.got_no_turn(claim.op.process, from, to))
            <= nanos(index.terms.told_within)
        {
            continue;
        }
        let late = between(0, late);
        let what = if was_told {
            format!("{} was told of its loss {late:?} after the end of its lease", claim.op)
        } else {
            format!(
                "{} was not told of its loss, and listened for {late:?} after the end of its lease",
                claim.op
            )
        };
        let proof = claim.proof.map(|(proof, _)| proof);
        findings.add(Finding {
            rule: Rule::Loss,
            at: from,
            lock: Some(claim.lock),
            what,
            slice: vec![
                Some(claim.asks),
                claim.granted,
                Some(listens),
                proof,
                claim.lost,
                claim.releases,
                Some(last),
            ],
            // No fault of a store excuses what needs none.
            losable: Vec::new(),
        });
    }
}

/// When its lease had ended, at the latest, as far as that can be told: what its locker renews by itself is not written
/// down.
fn end_of_lease(index: &Index<'_>, claim: &Claim<'_>) -> Option<u64> {
    let (_, until) = claim.proof?;
    let is_known = claim.renewal == Renewal::Manual && !claim.is_renewing;
    let longest = || Some(index.at(claim.granted?).saturating_add(nanos(claim.max_hold?)));
    let found = claim.lost.map(|lost| index.at(lost));
    [is_known.then_some(until), longest(), found].into_iter().flatten().min()
}

/// The last record up to which it is known to have listened, and whether it was told then. Who died may have died right
/// after its last line.
fn listened_until(index: &Index<'_>, claim: &Claim<'_>) -> Option<(Place, bool)> {
    let told = claim.told.filter(|told| claim.releases.is_none_or(|releases| *told < releases));
    let not_told = || claim.releases.or_else(|| index.last_of(claim.op.process)).map(|place| (place, false));
    told.map(|told| (told, true)).or_else(not_told)
}
