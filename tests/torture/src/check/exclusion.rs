//! (b) An exclusive holder never holds a lock at the same time as another holder, and the permits
//! in use never exceed the limit.

use std::collections::BTreeSet;

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place, between},
};
use crate::history::{Event, Holder, Lock, Mode, Op};

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    for lock in 0..index.locks.len() {
        sweep(index, lock, findings);
    }
    for (place, record) in index.records.iter().enumerate() {
        let Event::Seen { lock, holders, .. } = &record.event else { continue };
        let Some(what) = too_many(lock, holders) else { continue };
        let claims = || holders.iter().filter_map(|holder| index.claim(&holder.op?));
        let mut slice: Vec<Option<Place>> =
            claims().flat_map(|claim| [Some(claim.asks), claim.granted]).collect();
        slice.push(Some(place));
        let rule = Rule::Exclusion;
        let at = record.at;
        let lock = Some(lock);
        let losable = claims().map(|claim| claim.op).collect();
        findings.add(Finding { rule, at, lock, what, slice, losable });
    }
}

/// Describes the error in the holders that one look shows, if there is one.
fn too_many(lock: &Lock, holders: &[Holder]) -> Option<String> {
    let exclusive = holders.iter().filter(|holder| holder.mode == Mode::Exclusive).count();
    if exclusive > 0 && holders.len() > 1 {
        return Some(format!(
            "one look at the store shows {} holders, and {exclusive} of them are exclusive",
            holders.len()
        ));
    }
    let permits: u64 = holders.iter().map(|holder| permits(holder.mode)).sum();
    match lock {
        Lock::Semaphore { limit, .. } if permits > u64::from(*limit) => {
            Some(format!("one look at the store shows {permits} of {limit} permits in use"))
        }
        _ => None,
    }
}

fn permits(mode: Mode) -> u64 {
    match mode {
        Mode::Permits(permits) => permits.into(),
        Mode::Exclusive | Mode::Shared => 0,
    }
}

/// A hold: (end, start, its number among the holds of the lock).
type Hold = (u64, u64, usize);

/// Visits the holds of a lock in the order in which they begin, and keeps those that have not
/// ended.
fn sweep(index: &Index<'_>, lock: usize, findings: &mut Findings<'_, '_>) {
    let claims: Vec<&Claim<'_>> = index.claims_of(lock).collect();
    let lock = index.locks[lock].0;
    let holds = claims.iter().enumerate();
    let mut holds: Vec<Hold> =
        holds.filter_map(|(n, claim)| index.held(claim).map(|(from, to)| (to, from, n))).collect();
    holds.sort_unstable_by_key(|(_, from, n)| (*from, *n));
    let mut exclusive = BTreeSet::<Hold>::new();
    let mut others = BTreeSet::<Hold>::new();
    let mut in_use = 0;
    for hold in holds {
        let (to, at, number) = hold;
        let claim = claims[number];
        for lasting in [&mut exclusive, &mut others] {
            while let Some(over) = lasting.first().copied().filter(|(to, ..)| *to <= at) {
                lasting.remove(&over);
                in_use -= permits(claims[over.2].mode);
            }
        }
        let is_exclusive = claim.mode == Mode::Exclusive;
        for (until, _, other) in exclusive.iter().chain(others.iter().filter(|_| is_exclusive)) {
            let other = claims[*other];
            let losable: Vec<Op> = vec![other.op, claim.op];
            if findings.only_counts(Rule::Exclusion, at, &losable) {
                continue;
            }
            let both = between(at, to.min(*until));
            let what = format!(
                "{} was granted while {} held the lock; both held it for {both:?}",
                told_of(index, claim),
                told_of(index, other)
            );
            let slice =
                [other, claim].into_iter().flat_map(|claim| decisive(index, claim)).collect();
            let rule = Rule::Exclusion;
            let lock = Some(lock);
            findings.add(Finding { rule, at, lock, what, slice, losable });
        }
        in_use += permits(claim.mode);
        if let Lock::Semaphore { limit, .. } = lock
            && in_use > u64::from(*limit)
            && permits(claim.mode) > 0
        {
            let what = format!(
                "{} was granted, and then {in_use} of {limit} permits were in use",
                told_of(index, claim)
            );
            let set = || others.iter().map(|(.., other)| claims[*other]).chain([claim]);
            let losable = set().map(|claim| claim.op).collect();
            let slice = set().flat_map(|claim| decisive(index, claim)).collect();
            let rule = Rule::Exclusion;
            let lock = Some(lock);
            findings.add(Finding { rule, at, lock, what, slice, losable });
        }
        if is_exclusive { &mut exclusive } else { &mut others }.insert(hold);
    }
}

/// A claim with its token.
fn told_of(index: &Index<'_>, claim: &Claim<'_>) -> String {
    match claim.granted.map(|granted| &index.records[granted].event) {
        Some(Event::Granted { token, .. }) => format!("{} (token {token})", claim.op),
        _ => claim.op.to_string(),
    }
}

/// The records that decide the start and the end of the hold.
fn decisive(index: &Index<'_>, claim: &Claim<'_>) -> [Option<Place>; 7] {
    let died = index.death(claim.op.process).filter(|_| index.was_cut_off(claim.op.process));
    let proof = claim.proof.map(|(place, _)| place);
    let known = claim.known.map(|(place, _)| place);
    [Some(claim.asks), claim.granted, proof, known, claim.lost, claim.releases, died]
}
