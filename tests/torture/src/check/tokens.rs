//! (a) Tokens rise. No two claims have the same token, and a later request gets a larger token. A
//! holder's token is also above the earlier known token of each claim that it excludes.

use std::collections::{BTreeMap, HashMap};

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Claim, Index, Place},
    late,
};
use crate::history::{Event, Lock, Mode, Op};

/// The largest token of a lock: now, and before this instant.
#[derive(Clone, Copy, Default)]
struct Largest {
    at: u64,
    now: Option<(u64, Place)>,
    before: Option<(u64, Place)>,
}

impl Largest {
    fn before(&self, at: u64) -> Option<(u64, Place)> {
        if self.at < at { self.now } else { self.before }
    }

    fn rise(&mut self, at: u64, token: u64, place: Place) {
        if self.at < at {
            (self.at, self.before) = (at, self.now);
        }
        self.now = self.now.max(Some((token, place)));
    }
}

/// A record that shows the token of a claim.
struct Known<'a> {
    /// The latest time at which that token was known.
    at: u64,
    place: Place,
    lock: &'a Lock,
    op: Op,
    token: u64,
}

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    later_than_asked(index, findings);
    for lock in 0..index.locks.len() {
        in_turn(index, lock, findings);
    }
    owners(index, findings);
}

/// A later request gets a larger token, and no two claims have the same token.
fn later_than_asked(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut earlier = Earlier::new(index.locks.len());
    for step in steps(index) {
        let lock = match &step {
            Step::Asks { lock, .. } | Step::Known(Known { lock, .. }) => *lock,
        };
        let Some(number) = index.lock_number(lock) else { continue };
        match step {
            Step::Asks { at, op, .. } => earlier.asks(number, at, op),
            Step::Known(known) => earlier.knows(index, number, &known, findings),
        }
    }
}

/// The results of the steps so far.
struct Earlier {
    /// By the number of the lock.
    largest: Vec<Largest>,
    /// The largest token that was known before the request of the claim.
    floors: HashMap<Op, (u64, Place)>,
    /// The first claim with a token, by the number of the lock and the token.
    owners: HashMap<(usize, u64), (Op, Place)>,
    /// The last known token of each claim.
    said: HashMap<Op, u64>,
}

impl Earlier {
    fn new(locks: usize) -> Self {
        Self {
            largest: vec![Largest::default(); locks],
            floors: HashMap::new(),
            owners: HashMap::new(),
            said: HashMap::new(),
        }
    }

    fn asks(&mut self, lock: usize, at: u64, op: Op) {
        if let Some(floor) = self.largest[lock].before(at) {
            self.floors.entry(op).or_insert(floor);
        }
    }

    /// Adds a token, and checks it if it is new for its claim. `number` is the number of the
    /// lock.
    fn knows(
        &mut self,
        index: &Index<'_>,
        number: usize,
        known: &Known<'_>,
        findings: &mut Findings<'_, '_>,
    ) {
        let Known { at, place, lock, op, token } = *known;
        let own = own_grant(index, known);
        // Before the grant, a look at a quorum may show the lower token of some members. After the
        // grant it never does.
        if own.is_some_and(|(granted, own)| token < own && index.at(place) <= index.at(granted)) {
            return;
        }
        self.largest[number].rise(at, token, place);
        if self.said.insert(op, token) == Some(token) {
            return;
        }
        if let Some((what, first)) = self.conflict(number, known) {
            let asks = index.claim(&op).map(|claim| claim.asks);
            findings.add(Finding {
                rule: Rule::Tokens,
                at,
                lock: Some(lock),
                what,
                slice: vec![Some(first), asks, Some(place)],
                losable: Vec::new(),
            });
        }
        if let Some(own) = own {
            changed(index, known, own, findings);
        }
    }

    /// Describes the conflict of the token with another claim's token, if there is one, and names
    /// the record of the other token.
    fn conflict(&mut self, lock: usize, known: &Known<'_>) -> Option<(String, Place)> {
        let Known { place, op, token, .. } = *known;
        let (owner, first) = *self.owners.entry((lock, token)).or_insert((op, place));
        if owner != op {
            return Some((format!("{owner} and {op} both got token {token}"), first));
        }
        let (floor, above) = self.floors.get(&op).copied().filter(|(floor, _)| token < *floor)?;
        Some((
            format!("{op} got token {token}, although {floor} was known before its request"),
            above,
        ))
    }
}

/// The grant of the claim, if it is in another record, and the token of that grant.
fn own_grant(index: &Index<'_>, known: &Known<'_>) -> Option<(Place, u64)> {
    let granted = index.claim(&known.op)?.granted.filter(|granted| *granted != known.place)?;
    match index.records[granted].event {
        Event::Granted { token, .. } => Some((granted, token)),
        _ => None,
    }
}

/// Reports a claim whose token in the store differs from the token of its grant.
fn changed(
    index: &Index<'_>,
    known: &Known<'_>,
    (granted, own): (Place, u64),
    findings: &mut Findings<'_, '_>,
) {
    let Known { at, place, lock, op, token } = *known;
    let is_late =
        index.claim(&op).is_some_and(|claim| late::may_have(index, claim, Some(token), place));
    if index.at(granted) < index.at(place) && own != token && !is_late {
        // A primary that has lost the grant, and still has the place in the queue, grants the lock
        // once more.
        findings.add(Finding {
            rule: Rule::Tokens,
            at,
            lock: Some(lock),
            what: format!("{op} got token {own}, but the store shows it with {token}"),
            slice: vec![Some(granted), Some(place)],
            losable: if index.terms.async_failover { vec![op] } else { Vec::new() },
        });
    }
}

/// The largest token granted so far, by mode.
#[derive(Default)]
struct Heights<'c, 'a> {
    exclusive: Option<(u64, &'c Claim<'a>)>,
    shared: Option<(u64, &'c Claim<'a>)>,
    /// By the number of permits.
    permits: BTreeMap<u32, (u64, &'c Claim<'a>)>,
}

impl<'c, 'a> Heights<'c, 'a> {
    /// The largest token of the claims that cannot hold together with this one.
    fn of_excluded(&self, claim: &Claim<'_>) -> Option<(u64, &'c Claim<'a>)> {
        let permits = |number: u32| {
            let Lock::Semaphore { limit, .. } = claim.lock else { return None };
            let enough = limit.saturating_sub(number).saturating_add(1);
            self.permits.range(enough..).map(|(_, height)| *height).max_by_key(|(token, _)| *token)
        };
        match claim.mode {
            Mode::Exclusive => {
                self.exclusive.into_iter().chain(self.shared).max_by_key(|(token, _)| *token)
            }
            Mode::Shared => self.exclusive,
            Mode::Permits(number) => permits(number),
        }
    }

    fn rise(&mut self, claim: &'c Claim<'a>, token: u64) {
        let new = Some((token, claim));
        let higher =
            |old: Option<(u64, &'c Claim<'a>)>| old.filter(|(old, _)| *old >= token).or(new);
        match claim.mode {
            Mode::Exclusive => self.exclusive = higher(self.exclusive),
            Mode::Shared => self.shared = higher(self.shared),
            Mode::Permits(number) => {
                if let Some(height) = higher(self.permits.get(&number).copied()) {
                    self.permits.insert(number, height);
                }
            }
        }
    }
}

/// A holder's token is above the token of each claim that it excludes and that was known before its
/// grant. A claim with a later grant had to wait for the holder's lease.
fn in_turn(index: &Index<'_>, lock: usize, findings: &mut Findings<'_, '_>) {
    let claims = index.claims_of(lock).filter_map(|claim| Some((claim.granted?, claim)));
    let mut grants: Vec<(Place, &Claim<'_>)> = claims.collect();
    grants.sort_unstable_by_key(|(granted, _)| *granted);
    let token_of = |granted: Place| match index.records[granted].event {
        Event::Granted { token, .. } => token,
        _ => 0,
    };
    let mut heights = Heights::default();
    let mut risen = 0;
    for (n, (granted, claim)) in grants.iter().enumerate() {
        // Grants that were recorded at one instant may have happened in any order.
        while risen < n && index.at(grants[risen].0) < index.at(*granted) {
            heights.rise(grants[risen].1, token_of(grants[risen].0));
            risen += 1;
        }
        let token = token_of(*granted);
        let Some((above, other)) = heights.of_excluded(claim) else { continue };
        // If the request of the claim was later, another check already reports it.
        let is_told = other.granted.is_some_and(|other| index.at(other) < index.at(claim.asks));
        if token < above && !is_told && index.held(claim).is_some() {
            let what = format!(
                "{} holds with token {token}, although {} got {above} before that grant was known",
                claim.op, other.op
            );
            findings.add(Finding {
                rule: Rule::Tokens,
                at: index.at(*granted),
                lock: Some(claim.lock),
                what,
                slice: vec![Some(other.asks), other.granted, Some(claim.asks), Some(*granted)],
                losable: vec![other.op, claim.op],
            });
        }
    }
}

/// Each claim has its own owner (C2).
fn owners(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut owners: HashMap<&str, &Claim<'_>> = HashMap::new();
    for claim in &index.claims {
        let Some(granted) = claim.granted else { continue };
        let Event::Granted { owner, .. } = &index.records[granted].event else { continue };
        let Some(other) = owners.insert(owner, claim) else { continue };
        findings.add(Finding {
            rule: Rule::Tokens,
            at: index.at(granted),
            lock: Some(claim.lock),
            what: format!("{} and {} both got the owner {owner}", other.op, claim.op),
            slice: vec![other.granted, Some(granted)],
            losable: Vec::new(),
        });
    }
}

enum Step<'a> {
    Asks { at: u64, lock: &'a Lock, op: Op },
    Known(Known<'a>),
}

impl Step<'_> {
    fn at(&self) -> u64 {
        match self {
            Self::Asks { at, .. } | Self::Known(Known { at, .. }) => *at,
        }
    }
}

/// Requests and tokens in the order in which they were known. The result of a look is known at the
/// time of its answer.
fn steps<'a>(index: &Index<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for (place, record) in index.records.iter().enumerate() {
        let at = record.at;
        match &record.event {
            Event::Asks { op, lock, .. } => steps.push(Step::Asks { at, lock, op: *op }),
            Event::Granted { op, token, .. } => {
                if let Some(claim) = index.claim(op) {
                    steps.push(Step::Known(Known {
                        at,
                        place,
                        lock: claim.lock,
                        op: *op,
                        token: *token,
                    }));
                }
            }
            Event::Seen { lock, answered, holders, .. } => {
                for holder in holders {
                    if let (Some(op), Some(token)) = (holder.op, holder.token) {
                        steps.push(Step::Known(Known { at: *answered, place, lock, op, token }));
                    }
                }
            }
            _ => {}
        }
    }
    steps.sort_by_key(Step::at);
    steps
}
