//! Counts what a history contains, right or wrong.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::{
    Figures,
    index::{Claim, Fault, Index, Place, between},
};
use crate::history::{Event, Outcome, Refusal};

pub(super) fn of(index: &Index<'_>) -> Figures {
    let mut figures = Figures::default();
    for record in index.records {
        let counted = match &record.event {
            Event::Asks { .. } => &mut figures.requests,
            Event::Granted { .. } => &mut figures.grants,
            Event::Lost { .. } => &mut figures.losses,
            Event::Refused { why: Refusal::Unknown(_), .. }
            | Event::Released { outcome: Outcome::Unknown(_), .. } => &mut figures.unknown,
            Event::Refused { why: Refusal::Failed(_), .. } => &mut figures.failed,
            Event::Refused { why: Refusal::Cancelled, .. }
            | Event::Released { outcome: Outcome::Dropped, .. } => &mut figures.dropped,
            Event::Compared { accepted: true, .. } => &mut figures.accepted,
            Event::Compared { accepted: false, .. } => &mut figures.refused,
            Event::Strikes { kind, .. } => figures.faults.entry(kind.clone()).or_default(),
            _ => continue,
        };
        *counted += 1;
    }
    let mut grants: Vec<u64> =
        index.claims.iter().filter_map(|claim| Some(index.at(claim.granted?))).collect();
    grants.sort_unstable();
    let locks: Vec<Traffic> = (0..index.locks.len()).map(|lock| Traffic::of(index, lock)).collect();
    let mut of_process: HashMap<u32, Vec<&Claim<'_>>> = HashMap::new();
    for claim in &index.claims {
        of_process.entry(claim.op.process).or_default().push(claim);
    }
    for fault in &index.faults {
        let mut taken = Vec::new();
        match fault.victim {
            Some(victim) => {
                let own = of_process.get(&victim).map_or(&[][..], Vec::as_slice);
                let held = own.iter().filter(|claim| held(claim, fault));
                let locks_of =
                    held.filter_map(|claim| index.lock_number(claim.lock)).collect::<BTreeSet<_>>();
                taken.extend(
                    locks_of
                        .iter()
                        .filter_map(|lock| locks[*lock].taken_over(index, own, *lock, fault)),
                );
            }
            None => {
                let next = grants.get(grants.partition_point(|at| *at <= fault.to));
                taken.extend(next.map(|next| between(fault.to, *next)));
            }
        }
        if !taken.is_empty() {
            figures.recoveries.entry(fault.kind.to_owned()).or_default().extend(taken);
        }
    }
    figures
}

/// Whether the claim was held when the fault struck.
fn held(claim: &Claim<'_>, fault: &Fault<'_>) -> bool {
    claim.granted.is_some_and(|granted| granted < fault.strikes)
        && claim.releases.is_none_or(|releases| releases > fault.strikes)
        && claim.lost.is_none_or(|lost| lost > fault.strikes)
        && claim.proof.is_some_and(|(_, until)| until > fault.from)
}

/// The requests of a lock, each list in order.
struct Traffic {
    asks: Vec<Place>,
    answers: Vec<Place>,
    /// When each grant was, and the process that got it.
    grants: Vec<(u64, u32)>,
}

impl Traffic {
    fn of(index: &Index<'_>, lock: usize) -> Self {
        let mut traffic = Self { asks: Vec::new(), answers: Vec::new(), grants: Vec::new() };
        for claim in index.claims_of(lock) {
            traffic.asks.push(claim.asks);
            traffic.answers.extend(index.answer(claim));
            traffic
                .grants
                .extend(claim.granted.map(|granted| (index.at(granted), claim.op.process)));
        }
        traffic.answers.sort_unstable();
        traffic.grants.sort_unstable();
        traffic
    }

    /// The time from the fault to the next grant of another process. `None` if no other claim
    /// waited when the fault struck. `own` are the claims of the fault's victim.
    fn taken_over(
        &self,
        index: &Index<'_>,
        own: &[&Claim<'_>],
        lock: usize,
        fault: &Fault<'_>,
    ) -> Option<Duration> {
        let before = |places: &[Place]| places.partition_point(|place| *place < fault.strikes);
        let own_here = own.iter().filter(|claim| index.lock_number(claim.lock) == Some(lock));
        let own_waiting = own_here.filter(|claim| {
            claim.asks < fault.strikes
                && index.answer(claim).is_none_or(|answer| answer > fault.strikes)
        });
        if before(&self.asks) <= before(&self.answers) + own_waiting.count() {
            return None;
        }
        let next = self.grants.partition_point(|(at, _)| *at <= fault.from);
        let mut others =
            self.grants[next..].iter().filter(|(_, process)| Some(*process) != fault.victim);
        others.next().map(|(at, _)| between(fault.from, *at))
    }
}
