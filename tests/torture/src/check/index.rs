//! Combines the records: the end of each claim, each process and each fault.

use std::{collections::HashMap, time::Duration};

use super::Terms;
use crate::history::{Event, Lock, Mode, Op, Patience, Record, Refusal, Renewal};

/// The position of a record in the history.
pub(super) type Place = usize;

/// A whole history.
pub(super) struct Index<'a> {
    pub(super) records: &'a [Record],
    pub(super) terms: &'a Terms,
    /// In the order of their requests.
    pub(super) claims: Vec<Claim<'a>>,
    /// The claims of each lock, in the same order.
    pub(super) locks: Vec<(&'a Lock, Vec<usize>)>,
    pub(super) faults: Vec<Fault<'a>>,
    claim_of: HashMap<Op, usize>,
    lock_of: HashMap<&'a Lock, usize>,
    /// The times in which each process got no processor time, as that process measured them.
    stalls: HashMap<u32, Vec<(u64, u64)>>,
    /// The last record of each process.
    last: HashMap<u32, Place>,
    died: HashMap<u32, Place>,
    ended: HashMap<u32, Place>,
    longest_ttl: u64,
}

/// The steps of one claim, each by its record.
pub(super) struct Claim<'a> {
    pub(super) op: Op,
    pub(super) lock: &'a Lock,
    pub(super) mode: Mode,
    pub(super) renewal: Renewal,
    pub(super) patience: Patience,
    pub(super) max_hold: Option<Duration>,
    /// The longest lease that the claim asked for.
    pub(super) lease: u64,
    pub(super) asks: Place,
    pub(super) granted: Option<Place>,
    pub(super) refused: Option<Place>,
    pub(super) listens: Option<Place>,
    pub(super) told: Option<Place>,
    pub(super) lost: Option<Place>,
    pub(super) releases: Option<Place>,
    pub(super) released: Option<Place>,
    /// The record with the largest `until`, and that `until`.
    pub(super) proof: Option<(Place, u64)>,
    /// The last record in which the claim held, and its `until`. A renewal may bring an `until`
    /// that is a bit earlier, because it counts from when the renewal was sent.
    pub(super) known: Option<(Place, u64)>,
    /// A record in which the claim holds, although its hold must have ended.
    pub(super) came_back: Option<Place>,
    /// The last renewal by hand that the holder sent while the claim held.
    renews: Option<Place>,
    /// Whether a renewal by hand is still without an answer.
    pub(super) is_renewing: bool,
}

/// One fault.
pub(super) struct Fault<'a> {
    pub(super) kind: &'a str,
    pub(super) victim: Option<u32>,
    pub(super) weakens: Option<&'a str>,
    pub(super) strikes: Place,
    pub(super) heals: Option<Place>,
    /// The start and the end of the fault.
    pub(super) from: u64,
    pub(super) to: u64,
}

impl<'a> Index<'a> {
    pub(super) fn of(records: &'a [Record], terms: &'a Terms) -> Self {
        let mut index = Self {
            records,
            terms,
            claims: Vec::new(),
            locks: Vec::new(),
            faults: Vec::new(),
            claim_of: HashMap::new(),
            lock_of: HashMap::new(),
            stalls: HashMap::new(),
            last: HashMap::new(),
            died: HashMap::new(),
            ended: HashMap::new(),
            longest_ttl: 0,
        };
        let mut open: HashMap<u32, usize> = HashMap::new();
        for place in 0..records.len() {
            index.add(place, &mut open);
        }
        for fault in &mut index.faults {
            fault.to = match (fault.heals, fault.victim) {
                (Some(heals), _) => records[heals].at,
                (None, None) => fault.from,
                (None, Some(victim)) => {
                    index.died.get(&victim).map_or(u64::MAX, |died| records[*died].at)
                }
            };
        }
        index
    }

    fn add(&mut self, place: Place, open: &mut HashMap<u32, usize>) {
        let record = &self.records[place];
        self.last.insert(record.process, place);
        match &record.event {
            Event::Asks { .. } => self.begin(place, record),
            Event::Strikes { fault, kind, victim, weakens, .. } => {
                open.insert(*fault, self.faults.len());
                self.faults.push(Fault {
                    kind,
                    victim: *victim,
                    weakens: weakens.as_deref(),
                    strikes: place,
                    heals: None,
                    from: record.at,
                    to: u64::MAX,
                });
            }
            Event::Heals { fault } => {
                if let Some(fault) = open.remove(fault) {
                    self.faults[fault].heals = Some(place);
                    self.faults[fault].to = record.at;
                }
            }
            Event::Died { victim } => {
                self.died.entry(*victim).or_insert(place);
            }
            Event::Stalled { lasted } => {
                let from = record.at.saturating_sub(nanos(*lasted));
                self.stalls.entry(record.process).or_default().push((from, record.at));
            }
            Event::Ends { .. } => {
                self.ended.entry(record.process).or_insert(place);
            }
            Event::Holds { op, until } => self.hold(op, place, *until),
            event => {
                let Some(claim) = op_of(event).and_then(|op| self.claim_of.get(&op)) else {
                    return;
                };
                let longest = self.claims[*claim].follow(place, self.records);
                self.longest_ttl = self.longest_ttl.max(longest);
            }
        }
    }

    /// Adds a request. A second request of the same claim adds nothing.
    fn begin(&mut self, place: Place, record: &'a Record) {
        let Some(claim) = Claim::of(place, record) else { return };
        if self.claim_of.contains_key(&claim.op) {
            return;
        }
        let number = self.claims.len();
        self.claim_of.insert(claim.op, number);
        let known = *self.lock_of.entry(claim.lock).or_insert_with(|| {
            self.locks.push((claim.lock, Vec::new()));
            self.locks.len() - 1
        });
        self.locks[known].1.push(number);
        self.longest_ttl = self.longest_ttl.max(claim.lease);
        self.claims.push(claim);
    }

    /// Adds the record of a hold.
    fn hold(&mut self, op: &Op, place: Place, until: u64) {
        let Some(&number) = self.claim_of.get(op) else { return };
        let came_back = self.comes_back(&self.claims[number], place, until);
        let claim = &mut self.claims[number];
        if came_back {
            claim.came_back.get_or_insert(place);
        } else if claim.came_back.is_none() && claim.lost.is_none() && claim.releases.is_none() {
            claim.proves(place, until);
        }
    }

    /// Whether the hold in this record had ended before, without a possible renewal. If the locker
    /// renews by itself, this is certain only if its process was stopped for longer than a lease.
    fn comes_back(&self, claim: &Claim<'_>, place: Place, until: u64) -> bool {
        let at = self.records[place].at;
        let Some((_, before)) = claim.proof else { return false };
        if at > until {
            return true;
        }
        at > before
            && match claim.renewal {
                Renewal::Manual => claim.renews < claim.known.map(|(place, _)| place),
                Renewal::Auto => {
                    let over = claim.lease.saturating_add(nanos(self.terms.slack));
                    self.faults.iter().any(|fault| {
                        fault.stops(claim.op.process)
                            && fault.from >= self.at(claim.asks)
                            && fault.to <= at
                            && fault.to - fault.from > over
                    })
                }
            }
    }

    pub(super) fn at(&self, place: Place) -> u64 {
        self.records[place].at
    }

    pub(super) fn claim(&self, op: &Op) -> Option<&Claim<'a>> {
        self.claim_of.get(op).map(|number| &self.claims[*number])
    }

    pub(super) fn lock_number(&self, lock: &Lock) -> Option<usize> {
        self.lock_of.get(lock).copied()
    }

    /// The claims of one lock.
    pub(super) fn claims_of(&self, lock: usize) -> impl Iterator<Item = &Claim<'a>> {
        self.locks[lock].1.iter().map(|number| &self.claims[*number])
    }

    /// The record in which the director saw that the process had died.
    pub(super) fn death(&self, process: u32) -> Option<Place> {
        self.died.get(&process).copied()
    }

    /// Whether the process ended before it had released its locks.
    pub(super) fn was_cut_off(&self, process: u32) -> bool {
        self.died.contains_key(&process) && !self.ended.contains_key(&process)
    }

    /// The earliest time at which the process may have been dead.
    pub(super) fn killed_at(&self, process: u32) -> Option<u64> {
        let died = self.at(self.death(process)?);
        let kill =
            self.faults.iter().rfind(|fault| fault.victim == Some(process) && fault.from <= died);
        Some(kill.map_or(died, |fault| fault.from))
    }

    /// The time in which the claim provably held, so that no other claim could hold. `None` if that
    /// time is empty.
    pub(super) fn held(&self, claim: &Claim<'_>) -> Option<(u64, u64)> {
        let from = self.at(claim.granted?);
        let (known, until) = claim.known?;
        // The belief of a dead process restricts no other process.
        let is_void = self.terms.connection_bound && self.was_cut_off(claim.op.process);
        let believed = if is_void { self.at(known) } else { until };
        let end = [claim.releases, claim.lost].into_iter().flatten().map(|place| self.at(place));
        let to = end.fold(believed, u64::min);
        (to > from).then_some((from, to))
    }

    /// The record with the end of the request.
    pub(super) fn answer(&self, claim: &Claim<'_>) -> Option<Place> {
        [claim.granted, claim.refused].into_iter().flatten().min()
    }

    pub(super) fn refusal(&self, claim: &Claim<'_>) -> Option<(Place, &'a Refusal)> {
        let place = claim.refused?;
        match &self.records[place].event {
            Event::Refused { why, .. } => Some((place, why)),
            _ => None,
        }
    }

    /// How long exclusion may be weaker after a fault that weakens it.
    pub(super) fn aftermath(&self) -> u64 {
        self.longest_ttl.saturating_add(self.grace())
    }

    /// How much longer than a lease the store may take.
    pub(super) fn grace(&self) -> u64 {
        nanos(self.terms.takeover_delay).saturating_add(nanos(self.terms.slack))
    }

    /// The end of a lease that begins at `from`, plus the time that the store may take beyond it.
    /// Each fault of the servers, of the links or of that process extends it.
    pub(super) fn bound(&self, from: u64, lease: u64, process: Option<u32>) -> u64 {
        self.put_off(from, from.saturating_add(lease).saturating_add(self.grace()), lease, process)
    }

    /// As [`bound`](Self::bound), for a given `bound`: each fault that ends later restarts it.
    pub(super) fn put_off(
        &self,
        from: u64,
        mut bound: u64,
        lease: u64,
        process: Option<u32>,
    ) -> u64 {
        let slack = nanos(self.terms.slack);
        for fault in self.faults.iter().filter(|fault| !fault.is_weather()) {
            let in_the_way = fault.victim.is_none() || fault.victim == process;
            if in_the_way && fault.from <= bound && fault.to.saturating_add(slack) >= from {
                bound = bound.max(fault.to.saturating_add(lease).saturating_add(self.grace()));
            }
        }
        bound
    }

    /// Whether a fault hit the process between the two instants, or the process had died by the
    /// second one.
    pub(super) fn was_hit(&self, process: u32, from: u64, to: u64) -> bool {
        let near = |fault: &Fault<'_>| {
            fault.from <= to && fault.to.saturating_add(nanos(self.terms.slack)) >= from
        };
        self.faults.iter().any(|fault| fault.victim == Some(process) && near(fault))
            || self.death(process).is_some_and(|died| self.at(died) <= to)
    }

    /// The faults of the process, of its link and of the servers between the two instants.
    pub(super) fn disturbances(
        &self,
        process: u32,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = &Fault<'a>> {
        let slack = nanos(self.terms.slack);
        self.faults.iter().filter(move |fault| {
            fault.victim.is_none_or(|victim| victim == process)
                && fault.from <= to
                && fault.to.saturating_add(slack) >= from
        })
    }

    /// Whether a fault of the servers lasted at that time, or began within `within` after it.
    pub(super) fn servers_suffer(&self, at: u64, within: u64) -> bool {
        let from = at;
        let to = at.saturating_add(within);
        self.faults
            .iter()
            .any(|fault| fault.victim.is_none() && fault.from <= to && fault.to >= from)
    }

    /// The last record that the process wrote.
    pub(super) fn last_of(&self, process: u32) -> Option<Place> {
        self.last.get(&process).copied()
    }

    /// The part of that time in which the process was stopped, or got no processor time.
    pub(super) fn got_no_turn(&self, process: u32, from: u64, to: u64) -> u64 {
        let stops = self.faults.iter().filter(|fault| fault.stops(process));
        let stops = stops.map(|fault| (fault.from, fault.to));
        let stalls = self.stalls.get(&process).into_iter().flatten().copied();
        let mut times: Vec<_> =
            stops.chain(stalls).map(|(a, b)| (a.max(from), b.min(to))).collect();
        times.sort_unstable();
        // A stopped process also records a stall of its own, so the times overlap.
        let sum = |(sum, counted): (u64, u64), (a, b): (u64, u64)| {
            (sum + b.saturating_sub(a.max(counted)), counted.max(b))
        };
        times.into_iter().fold((0, from), sum).0
    }

    /// The part of that time in which the process was stopped.
    pub(super) fn stood_still(&self, process: u32, from: u64, to: u64) -> u64 {
        let faults = self.faults.iter().filter(|fault| fault.stops(process));
        faults
            .map(|fault| fault.to.min(to).saturating_sub(fault.from.max(from)))
            .fold(0, u64::saturating_add)
    }
}

impl<'a> Claim<'a> {
    /// A new claim, if the record is a request.
    fn of(place: Place, record: &'a Record) -> Option<Self> {
        let Event::Asks { op, lock, mode, ttl, renewal, patience, max_hold } = &record.event else {
            return None;
        };
        Some(Self {
            op: *op,
            lock,
            mode: *mode,
            renewal: *renewal,
            patience: *patience,
            max_hold: *max_hold,
            lease: nanos(*ttl),
            asks: place,
            granted: None,
            refused: None,
            listens: None,
            told: None,
            lost: None,
            releases: None,
            released: None,
            proof: None,
            known: None,
            came_back: None,
            renews: None,
            is_renewing: false,
        })
    }

    fn proves(&mut self, place: Place, until: u64) {
        self.known = Some((place, until));
        if self.proof.is_none_or(|(_, before)| until > before) {
            self.proof = Some((place, until));
        }
    }

    /// Adds the next record of the claim. Returns the longest lease.
    fn follow(&mut self, place: Place, records: &[Record]) -> u64 {
        match &records[place].event {
            Event::Granted { until, .. } if self.granted.is_none() => {
                self.granted = Some(place);
                self.proves(place, *until);
            }
            Event::Refused { .. } => _ = self.refused.get_or_insert(place),
            Event::Listens { .. } => _ = self.listens.get_or_insert(place),
            Event::Told { .. } => _ = self.told.get_or_insert(place),
            Event::Renewed { .. } => self.is_renewing = false,
            Event::Lost { .. } => _ = self.lost.get_or_insert(place),
            Event::Releases { .. } => _ = self.releases.get_or_insert(place),
            Event::Released { .. } => _ = self.released.get_or_insert(place),
            Event::Renews { lease, .. } => {
                self.is_renewing = true;
                self.lease = self.lease.max(lease.map_or(0, nanos));
                if self.proof.is_some_and(|(_, until)| records[place].at <= until) {
                    self.renews = Some(place);
                }
            }
            _ => {}
        }
        self.lease
    }
}

impl Fault<'_> {
    /// Whether the fault stops that process, as SIGSTOP does.
    pub(super) fn stops(&self, process: u32) -> bool {
        self.victim == Some(process) && self.kind.contains("stop")
    }

    /// Whether a locker still has time to renew: a round trip takes about a tenth of a lease.
    pub(super) fn is_bearable(&self) -> bool {
        self.kind == "link-slow"
    }

    /// Whether the fault loses or delays single requests all the time, and stops nothing.
    pub(super) fn is_weather(&self) -> bool {
        self.kind == "weather"
    }
}

/// The claim that the event is a step of, if it is one.
pub(crate) fn op_of(event: &Event) -> Option<Op> {
    match event {
        Event::Asks { op, .. }
        | Event::Granted { op, .. }
        | Event::Refused { op, .. }
        | Event::Holds { op, .. }
        | Event::Listens { op }
        | Event::Told { op, .. }
        | Event::Lost { op, .. }
        | Event::Renews { op, .. }
        | Event::Renewed { op, .. }
        | Event::Releases { op }
        | Event::Released { op, .. }
        | Event::Writes { op, .. }
        | Event::Written { op, .. }
        | Event::Compared { op, .. }
        | Event::Applied { op, .. }
        | Event::Gone { op } => Some(*op),
        Event::Begins { .. }
        | Event::Seen { .. }
        | Event::Strikes { .. }
        | Event::Heals { .. }
        | Event::Died { .. }
        | Event::Ends { .. }
        | Event::Leaks { .. }
        | Event::Stalled { .. } => None,
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// The time between two instants.
pub(super) fn between(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}
