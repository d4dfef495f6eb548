//! A holder believes that it holds no longer than its answers allow, and the records of a process
//! are consistent.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place, between, nanos, op_of},
};
use crate::history::{Event, Lock, Mode, Op, Record, Renewal};

/// The largest difference between two records of one end. Each process computes the end on its own
/// clock, and a busy server reads its clock only so often.
const ROUNDING: Duration = Duration::from_millis(50);

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut told: HashSet<Op> = HashSet::new();
    let mut beliefs: HashMap<Op, Belief> = HashMap::new();
    let mut limits: HashMap<&str, u32> = HashMap::new();
    for (place, record) in index.records.iter().enumerate() {
        if let Some(finding) = after_death(index, place) {
            findings.add(finding);
            continue;
        }
        if let Event::Seen { lock, holders, .. } = &record.event {
            for op in holders.iter().filter_map(|holder| holder.op) {
                let what = match index.claim(&op) {
                    Some(claim) if claim.lock == lock => continue,
                    Some(_) => {
                        format!("{op} asked for one lock, but the store shows it at another lock")
                    }
                    None => format!("{op} is in the store, but no process asked for it"),
                };
                if told.insert(op) {
                    findings.add(nonsense(index, None, place, Some(lock), what));
                }
            }
        }
        let Some(op) = op_of(&record.event) else { continue };
        let claim = index.claim(&op);
        let wrong = match claim {
            Some(claim) => {
                step(index, claim, place, &mut beliefs).or_else(|| asked(record, &mut limits))
            }
            None => Some("did something without a request".to_owned()),
        };
        if let Some(wrong) = wrong
            && told.insert(op)
        {
            let lock = claim.map(|claim| claim.lock);
            findings.add(nonsense(index, claim, place, lock, format!("{op} {wrong}")));
        }
    }
}

fn nonsense<'f>(
    index: &Index<'_>,
    claim: Option<&Claim<'_>>,
    place: Place,
    lock: Option<&'f Lock>,
    what: String,
) -> Finding<'f> {
    let mut slice = vec![Some(place)];
    if let Some(claim) = claim {
        let before = claim.proof.map(|(proof, _)| proof);
        slice.extend([
            Some(claim.asks),
            claim.granted,
            before,
            claim.refused,
            claim.lost,
            claim.releases,
        ]);
    }
    Finding { rule: Rule::Belief, at: index.at(place), lock, what, slice, losable: Vec::new() }
}

fn after_death<'f>(index: &Index<'_>, place: Place) -> Option<Finding<'f>> {
    let record = &index.records[place];
    let died = index.death(record.process).filter(|died| index.at(*died) < record.at)?;
    let what = format!("process {} wrote a record after its death", record.process);
    let slice = vec![Some(died), Some(place)];
    Some(Finding {
        rule: Rule::Belief,
        at: record.at,
        lock: None,
        what,
        slice,
        losable: Vec::new(),
    })
}

/// Describes the error in a request, if there is one.
fn asked<'a>(record: &'a Record, limits: &mut HashMap<&'a str, u32>) -> Option<String> {
    let Event::Asks { lock, mode, .. } = &record.event else { return None };
    match (lock, mode) {
        (Lock::Mutex(_), Mode::Exclusive) | (Lock::RwLock(_), Mode::Exclusive | Mode::Shared) => {
            None
        }
        (Lock::Semaphore { name, limit }, Mode::Permits(permits)) => {
            let first = *limits.entry(name).or_insert(*limit);
            if first != *limit {
                Some(format!(
                    "asked for one of {limit} permits, but an earlier request named {first}"
                ))
            } else if (1..=*limit).contains(permits) {
                None
            } else {
                Some(format!("asked for {permits} permits of {limit}"))
            }
        }
        (lock, mode) => Some(format!("asked in the mode {mode:?} for {lock:?}")),
    }
}

/// The last answers to a holder.
#[derive(Clone, Copy, Default)]
struct Belief {
    /// The latest end of the hold in an answer.
    until: u64,
    /// The time when the holder sent its last renewal by hand.
    renews: Option<u64>,
}

impl Belief {
    /// How much earlier the next end may be than the latest end. An answer counts from before its
    /// request, and the lease in it may be as old as the reply. The history does not contain the
    /// renewals that the locker sends by itself.
    fn tolerance(self, claim: &Claim<'_>, now: u64, slack: Duration) -> u64 {
        let travel = match claim.renewal {
            Renewal::Manual => self.renews.map_or(0, |sent| now.saturating_sub(sent)),
            Renewal::Auto => nanos(slack),
        };
        nanos(ROUNDING).saturating_add(travel)
    }
}

/// Describes the error in a step of a claim, if there is one.
fn step(
    index: &Index<'_>,
    claim: &Claim<'_>,
    place: Place,
    beliefs: &mut HashMap<Op, Belief>,
) -> Option<String> {
    let record = &index.records[place];
    let from_elsewhere =
        matches!(record.event, Event::Compared { .. } | Event::Applied { .. } | Event::Gone { .. });
    if record.process != claim.op.process && !from_elsewhere {
        return Some(format!("did something in process {}", record.process));
    }
    let before = |step| is_before(step, place);
    let ungranted =
        || (!before(claim.granted)).then(|| "did a step of a holder, but had no grant".to_owned());
    match &record.event {
        Event::Asks { .. } => (place != claim.asks).then(|| "asked twice".to_owned()),
        Event::Granted { until, .. } => {
            beliefs.insert(claim.op, Belief { until: *until, renews: None });
            if claim.granted != Some(place) {
                Some("was granted twice".to_owned())
            } else if before(claim.refused) {
                Some("was granted after a refusal".to_owned())
            } else {
                past_its_lease(index, claim, place, *until)
            }
        }
        Event::Refused { .. } => {
            if before(claim.granted) {
                Some("was refused after a grant".to_owned())
            } else {
                (claim.refused != Some(place)).then(|| "was refused twice".to_owned())
            }
        }
        Event::Holds { until, .. } => ungranted().or_else(|| {
            let belief = beliefs.entry(claim.op).or_default();
            held(index, claim, place, *until, belief)
        }),
        Event::Renews { .. } => ungranted().or_else(|| {
            beliefs.entry(claim.op).or_default().renews = Some(record.at);
            None
        }),
        Event::Released { .. } => ungranted().or_else(|| {
            (!before(claim.releases)).then(|| "ended a release that it had not begun".to_owned())
        }),
        Event::Listens { .. }
        | Event::Told { .. }
        | Event::Lost { .. }
        | Event::Renewed { .. }
        | Event::Releases { .. }
        | Event::Writes { .. }
        | Event::Written { .. } => ungranted(),
        Event::Compared { lock, token, .. } => compared(index, claim, lock, *token),
        _ => None,
    }
}

fn is_before(step: Option<Place>, place: Place) -> bool {
    step.is_some_and(|step| step < place)
}

/// Describes the error in a hold until `until`, if there is one.
fn held(
    index: &Index<'_>,
    claim: &Claim<'_>,
    place: Place,
    until: u64,
    belief: &mut Belief,
) -> Option<String> {
    let at = index.at(place);
    let largest = belief.until;
    let tolerance = belief.tolerance(claim, at, index.terms.slack);
    belief.until = largest.max(until);
    if is_before(claim.lost, place) {
        Some("held the lock after its loss".to_owned())
    } else if is_before(claim.releases, place) {
        Some("held the lock after the start of its release".to_owned())
    } else if claim.came_back == Some(place) {
        let over = between(largest, at);
        Some(format!("held the lock {over:?} after the end of its lease, without a renewal"))
    } else if until.saturating_add(tolerance) < largest && claim.max_hold.is_none() {
        Some(format!(
            "held the lock for {:?} less than its answers allowed",
            between(until, largest)
        ))
    } else {
        past_its_lease(index, claim, place, until)
    }
}

/// A lease is never longer than its holder asked for, even if the store's clock steps. This does
/// not check leases of a session or a connection, because they last as long as the session or the
/// connection.
fn past_its_lease(
    index: &Index<'_>,
    claim: &Claim<'_>,
    place: Place,
    until: u64,
) -> Option<String> {
    let left = until.saturating_sub(index.at(place));
    if !index.terms.ends_with_links && left > claim.lease.saturating_add(nanos(ROUNDING)) {
        let left = between(0, left);
        let lease = between(0, claim.lease);
        return Some(format!("got a lease of {left:?}, but asked for at most {lease:?}"));
    }
    past_max_hold(index, claim, until)
}

/// A hold counts from its grant, which precedes the record of the grant.
fn past_max_hold(index: &Index<'_>, claim: &Claim<'_>, until: u64) -> Option<String> {
    let granted = index.at(claim.granted?);
    let most = nanos(claim.max_hold?).saturating_add(nanos(ROUNDING));
    (until.saturating_sub(granted) > most).then(|| {
        format!(
            "got a lease until {:?} after its grant, which is past its longest hold",
            between(granted, until)
        )
    })
}

fn compared(index: &Index<'_>, claim: &Claim<'_>, lock: &Lock, token: u64) -> Option<String> {
    match claim.granted.map(|granted| &index.records[granted].event) {
        _ if lock != claim.lock => Some("wrote to another lock's register".to_owned()),
        Some(Event::Granted { token: own, .. }) if *own != token => {
            Some(format!("was granted token {own} and wrote with {token}"))
        }
        Some(_) => None,
        None => Some("wrote without a grant".to_owned()),
    }
}
