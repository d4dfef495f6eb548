//! (d) Each request ends within its bound.

use std::time::Duration;

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, between, nanos},
};
use crate::history::{Patience, Refusal};

/// The longest time of a request that does not wait: the bounds of one round trip and of one
/// request that undoes it.
const ATTEMPT: Duration = Duration::from_secs(3);

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let slack = nanos(index.terms.slack);
    for claim in &index.claims {
        let op = claim.op;
        let process = op.process;
        let from = index.at(claim.asks);
        let mut add = |at: u64, what: String, last| {
            let lock = Some(claim.lock);
            let slice = vec![Some(claim.asks), last];
            findings.add(Finding {
                rule: Rule::Waiting,
                at,
                lock,
                what,
                slice,
                losable: Vec::new(),
            });
        };
        if let Some((place, Refusal::Busy)) = index.refusal(claim)
            && is_idle(index, claim, index.at(place))
        {
            let what =
                format!("{op} was refused as busy, but no other claim had or wanted the lock");
            add(index.at(place), what, Some(place));
        }
        let Some(answer) = index.answer(claim) else {
            if !index.was_cut_off(process) {
                add(from, format!("{op} never got an answer, although its process lived"), None);
            }
            continue;
        };
        if let (Some(releases), None) = (claim.releases, claim.released)
            && !index.was_cut_off(process)
        {
            let what =
                format!("{op} never got the result of its release, although its process lived");
            add(index.at(releases), what, Some(releases));
        }
        let bound = match claim.patience {
            Patience::No => nanos(ATTEMPT).max(claim.lease / 3),
            Patience::For(bound) | Patience::UntilDropped(bound) => nanos(bound),
            Patience::Unbounded => continue,
        };
        let to = index.at(answer);
        let stood = index.stood_still(process, from, to);
        let bound = bound.saturating_add(slack);
        if (to - from).saturating_sub(stood) > bound {
            let took = between(from, to - stood);
            let bound = between(0, bound);
            add(
                from.saturating_add(nanos(bound)),
                format!("{op} took {took:?}, but its bound is {bound:?}"),
                Some(answer),
            );
        }
    }
}

/// Whether no other claim can have had the lock, or been ahead in the queue, up to then. All other
/// claims must have ended long enough before, and no fault may have happened.
fn is_idle(index: &Index<'_>, claim: &Claim<'_>, to: u64) -> bool {
    let Some(lock) = index.lock_number(claim.lock) else { return false };
    let from = index.at(claim.asks).saturating_sub(index.aftermath());
    let others =
        index.claims_of(lock).filter(|other| other.op != claim.op && index.at(other.asks) <= to);
    let is_over = |other: &Claim<'_>| {
        let died = index.death(other.op.process);
        let end = other.released.or(other.refused).or(died);
        end.is_some_and(|end| index.at(end) < from)
    };
    let disturbed = index.faults.iter().any(|fault| fault.from <= to && fault.to >= from);
    !disturbed && { others }.all(is_over)
}
