//! (c) Another process gets a dead process's lock in time.
//!
//! The rule judges only a lock that no live process held beside the dead one. A waiter for permits,
//! or a writer, may also wait for other holders.

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place, between, nanos},
};
use crate::history::{Event, Mode, Outcome, Refusal};

/// Returns the number of deaths that it could judge.
pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) -> u64 {
    let mut judged = 0;
    for lock in 0..index.locks.len() {
        let claims: Vec<&Claim<'_>> = index.claims_of(lock).collect();
        let mut grants: Vec<u64> =
            claims.iter().filter_map(|claim| claim.granted.map(|at| index.at(at))).collect();
        grants.sort_unstable();
        for dead in &claims {
            let Some(death) = Death::of(index, dead) else { continue };
            let bound = death.seen.saturating_add(dead.lease).saturating_add(index.grace());
            let next = grants.partition_point(|at| *at < death.seen);
            // This is by far the most frequent case. It needs no look at the other claims.
            let at_once = grants.get(next).is_some_and(|at| *at <= bound);
            judged += u64::from(at_once || follow(index, &claims, dead, &death, findings));
        }
    }
    judged
}

/// The end of a holder.
struct Death {
    place: Place,
    /// The earliest time when the process may have been dead, and the time when the director saw it
    /// dead.
    killed: u64,
    seen: u64,
    /// Whether the process certainly held the lock: it had neither an open request nor an open
    /// release.
    held: bool,
}

impl Death {
    fn of(index: &Index<'_>, claim: &Claim<'_>) -> Option<Self> {
        let process = claim.op.process;
        let place = index.death(process).filter(|_| index.was_cut_off(process))?;
        let killed = index.killed_at(process)?;
        let seen = index.at(place);
        // The store may have applied a request without an answer.
        let asked = claim.granted.is_none() && claim.refused.is_none();
        let releasing = claim.releases.is_some() && claim.released.is_none();
        let held = claim.lost.is_none()
            && claim.releases.is_none()
            && claim.granted.is_some()
            && claim.proof.is_some_and(|(_, until)| until > killed);
        (held || asked || releasing).then_some(Self { place, killed, seen, held })
    }
}

/// Returns whether the death could be judged.
fn follow(
    index: &Index<'_>,
    claims: &[&Claim<'_>],
    dead: &Claim<'_>,
    death: &Death,
    findings: &mut Findings<'_, '_>,
) -> bool {
    let bound = put_off(index, claims, dead, death);
    let slack = nanos(index.terms.slack);
    let over = index.records.last().map_or(0, |last| last.at);
    let waiter = claims.iter().find_map(|claim| {
        let asks = index.at(claim.asks);
        if asks > bound {
            return None;
        }
        let bound = index.put_off(bound, bound.max(asks.saturating_add(slack)), dead.lease, None);
        let waits = bound < over
            && index.answer(claim).is_none_or(|answer| index.at(answer) > bound)
            && !index.was_hit(claim.op.process, asks, bound);
        waits.then_some((*claim, bound))
    });
    let Some((waiter, bound)) = waiter else { return false };
    let taken = claims
        .iter()
        .any(|claim| claim.op != dead.op && stood_after(index, claim, dead, death, bound));
    if taken {
        return true;
    }
    let rule = Rule::Takeover;
    let lock = Some(dead.lock);
    let waited = between(index.at(waiter.asks).max(death.seen), bound);
    let what = format!(
        "{} died with the lock that {} waited for. No claim had it {waited:?} later; the lease is \
         {:?}, and the store may take {:?}",
        dead.op,
        waiter.op,
        between(0, dead.lease),
        index.terms.takeover_delay
    );
    let slice = vec![
        dead.granted,
        dead.proof.map(|(place, _)| place),
        Some(death.place),
        Some(waiter.asks),
        index.answer(waiter),
    ];
    findings.add(Finding { rule, at: bound, lock, what, slice, losable: Vec::new() });
    true
}

/// Whether the claim had the lock after the dead claim or beside it, so that the dead claim blocks
/// no other claim.
fn stood_after(
    index: &Index<'_>,
    claim: &Claim<'_>,
    dead: &Claim<'_>,
    death: &Death,
    bound: u64,
) -> bool {
    let (Some(granted), Some((_, until))) = (claim.granted, claim.proof) else { return false };
    if index.at(granted) > bound {
        return false;
    }
    if dead.mode == Mode::Exclusive && death.held {
        return dead.granted.is_some_and(|held| granted > held);
    }
    let released = claim.released.map(|place| (index.at(place), &index.records[place].event));
    let end = match released {
        Some((at, Event::Released { outcome: Outcome::Freed | Outcome::NotHeld, .. })) => at,
        Some((at, _)) => until.max(at),
        None => until,
    };
    end >= death.killed
}

/// The time when the lock should have been free. A fault that ends later restarts the bound, and
/// each dead waiter adds its own bound.
fn put_off(index: &Index<'_>, claims: &[&Claim<'_>], dead: &Claim<'_>, death: &Death) -> u64 {
    let own = |claim: &Claim<'_>| claim.lease.saturating_add(index.grace());
    let mut bound = death.seen.saturating_add(own(dead));
    let mut counted = vec![false; claims.len()];
    loop {
        let before = bound;
        bound = index.put_off(death.seen, bound, dead.lease, None);
        for (claim, counted) in claims.iter().zip(&mut counted) {
            if claim.op == dead.op || *counted {
                continue;
            }
            let Some(settled) = in_the_way(index, claim, dead, death, bound) else { continue };
            *counted = true;
            let waits = index.was_cut_off(claim.op.process) && index.answer(claim).is_none();
            bound = if waits { bound.saturating_add(own(claim)) } else { bound.max(settled) };
        }
        if bound == before {
            return bound;
        }
    }
}

/// The time until which another claim may have had the lock, or may have been ahead in the queue.
/// `None` unless a fault also hit its process, or its process did not know the outcome.
fn in_the_way(
    index: &Index<'_>,
    claim: &Claim<'_>,
    dead: &Claim<'_>,
    death: &Death,
    bound: u64,
) -> Option<u64> {
    let asks = index.at(claim.asks);
    let came_before =
        claim.granted.is_some() && claim.granted < dead.granted && dead.mode == Mode::Exclusive;
    if asks > bound || came_before {
        return None;
    }
    let last = [claim.refused, claim.released].into_iter().flatten().max();
    let settles = match last.map(|place| &index.records[place].event) {
        Some(
            Event::Refused { why: Refusal::Unknown(_), .. }
            | Event::Released { outcome: Outcome::Unknown(_) | Outcome::Failed(_), .. },
        ) => claim.lease.saturating_add(index.grace()),
        // The background task undoes these after the call has returned.
        Some(
            Event::Refused { why: Refusal::Cancelled | Refusal::TimedOut, .. }
            | Event::Released { outcome: Outcome::Dropped, .. },
        ) => nanos(index.terms.slack),
        _ => 0,
    };
    let end = last.map_or(u64::MAX, |last| index.at(last).saturating_add(settles));
    let doubtful = settles > nanos(index.terms.slack);
    let own = claim.lease.saturating_add(index.grace());
    let process = claim.op.process;
    if end < death.killed || !(doubtful || index.was_hit(process, asks, end.min(bound))) {
        return None;
    }
    // By this time the store has dropped the claim, or its process can release the lock.
    let died = index.death(process).map(|died| index.at(died)).filter(|died| *died <= bound);
    let hits =
        index.faults.iter().filter(|fault| fault.victim == Some(process) && fault.from <= bound);
    let healed = hits.map(|fault| fault.to).chain(died).max().unwrap_or(0).saturating_add(own);
    Some(if doubtful { end.max(healed) } else { healed })
}
