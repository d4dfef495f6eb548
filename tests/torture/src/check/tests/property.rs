//! Random histories of a correct store break no rule. A history with one corruption breaks the rule
//! against it.

use proptest::{prelude::*, sample::Index};

use super::{
    builder::{HistoryBuilder, TERMS, rw_lock, semaphore},
    corruption::CORRUPTIONS,
};
use crate::{
    check::{Rule, Verdict, check},
    history::{Lock, Mode, Op, Outcome, Patience, Record, Refusal, Renewal},
};

/// How a hold ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Freed,
    /// The answer is lost, so the next claim waits for the end of the lease.
    Unknown,
    Dropped,
    /// The process is stopped for longer than its lease, writes late, and is refused.
    Stopped,
    /// The holder sleeps past the end of its lease, and gets the loss signal.
    Slept,
    Killed,
}

/// One turn of one of three processes at a mutex.
#[derive(Clone, Debug)]
struct Turn {
    /// The request comes this many milliseconds after the end of the turn before. If negative, the
    /// claim waits while the other turn still has the lock.
    asks: i64,
    /// The refusal of a second request beside this one, if there is one.
    refused: Option<Refusal>,
    holds: u64,
    renews: bool,
    writes: bool,
    looked_at: bool,
    end: End,
    skips: u64,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let refused = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Refusal::Busy)),
        1 => Just(Some(Refusal::Cancelled)),
        1 => Just(Some(Refusal::Failed("no".to_owned()))),
        1 => Just(Some(Refusal::Unknown("reset".to_owned()))),
    ];
    let end = prop_oneof![
        6 => Just(End::Freed),
        1 => Just(End::Unknown),
        1 => Just(End::Dropped),
        1 => Just(End::Stopped),
        1 => Just(End::Slept),
        1 => Just(End::Killed),
    ];
    let turn = (-20..60_i64, refused, 5..900_u64, any::<(bool, bool, bool)>(), end, 1..4_u64)
        .prop_map(|(asks, refused, holds, (renews, writes, looked_at), end, skips)| Turn {
            asks,
            refused,
            holds,
            renews,
            writes,
            looked_at,
            end,
            skips,
        });
    prop::collection::vec(turn, 4..24)
}

/// A correct store, and the history that it has made so far.
struct Store {
    told: HistoryBuilder,
    /// The earliest time of the next grant.
    free: u64,
    /// The last token.
    token: u64,
    /// The largest token that the register took.
    largest: u64,
    processes: [u32; 3],
    next_process: u32,
}

/// A granted claim of a turn.
struct Hold {
    op: Op,
    granted: u64,
    /// When the turn ends it.
    ends: u64,
    /// When its lease ends.
    until: u64,
}

/// The history that a correct store makes of the turns.
fn told(turns: &[Turn]) -> Vec<Record> {
    let mut store = Store {
        told: HistoryBuilder::new(),
        free: 100,
        token: 0,
        largest: 0,
        processes: [1, 2, 3],
        next_process: 4,
    };
    for (turn, slot) in turns.iter().zip((0..3).cycle()) {
        let mut hold = store.grant(turn, store.processes[slot]);
        store.work(turn, &mut hold);
        store.free = store.end(turn.end, slot, &hold);
    }
    for process in store.processes {
        store.told.ends(store.free + 5000, process);
    }
    let mut records = store.told.records;
    records.sort_by_key(|record| record.at);
    records
}

impl Store {
    fn grant(&mut self, turn: &Turn, process: u32) -> Hold {
        let told = &mut self.told;
        let asks = self.free.saturating_add_signed(turn.asks);
        let granted = self.free.max(asks) + 1;
        if let Some(why) = &turn.refused {
            let patience = if *why == Refusal::Busy { Patience::No } else { Patience::Unbounded };
            let op = told.patient(patience).asks(asks, process);
            told.refused(asks + 1, op, why.clone());
        }
        self.token += turn.skips;
        let op = told.patient(Patience::Unbounded).renewed(Renewal::Manual).asks(asks, process);
        let until = granted + 990;
        told.granted(granted, op, self.token, until).listens(granted, op);
        Hold { op, granted, ends: granted + turn.holds, until }
    }

    /// Records the renewal, the look and the write during the hold.
    fn work(&mut self, turn: &Turn, hold: &mut Hold) {
        let Self { told, token, largest, .. } = self;
        let Hold { op, granted, ends, .. } = *hold;
        if turn.renews {
            let half = granted + turn.holds / 2;
            hold.until = half + 990;
            told.renews(half, op).renewed_by_hand(half + 1, op, None).holds(
                half + 1,
                op,
                hold.until,
            );
        }
        if turn.looked_at {
            told.seen(granted, 1_000, &[(op, *token)]);
        }
        if turn.writes {
            told.wrote(ends - 3, op, *token, *largest, true, false);
            *largest = *token;
        }
    }

    /// Returns the earliest time of the next grant.
    fn end(&mut self, end: End, slot: usize, hold: &Hold) -> u64 {
        let told = &mut self.told;
        let Hold { op, ends, until, .. } = *hold;
        match end {
            End::Freed => {
                told.released(ends, op, Outcome::Freed);
                ends + 1
            }
            End::Dropped => {
                told.released(ends, op, Outcome::Dropped);
                ends + 2
            }
            End::Unknown => {
                told.released(ends, op, Outcome::Unknown("reset".to_owned()));
                until + 10
            }
            End::Stopped => {
                // Until its end another holder may write, and only with a larger token.
                told.fault(ends, until + 10, "stop-holder", Some(op.process), None);
                let token = self.token;
                let largest = self.largest;
                told.wrote(until + 11, op, token, largest, token >= largest, true);
                self.largest = largest.max(token);
                // As soon as the process continues, and as late as a busy machine may be.
                told.told(until + 100, op).lost(until + 101, op).released(
                    until + 102,
                    op,
                    Outcome::NotHeld,
                );
                until + 16
            }
            End::Slept => {
                told.told(until + 1, op).lost(until + 2, op).released(
                    until + 1500,
                    op,
                    Outcome::NotHeld,
                );
                until + 1501
            }
            End::Killed => {
                told.killed(ends, op.process);
                self.processes[slot] = self.next_process;
                self.next_process += 1;
                until + 10
            }
        }
    }
}

fn verdict(records: &mut [Record]) -> Verdict {
    records.sort_by_key(|record| record.at);
    check(records, &TERMS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_correct_store_passes(turns in turns()) {
        let verdict = verdict(&mut told(&turns));
        prop_assert_eq!(verdict.violations, Vec::new());
        prop_assert_eq!(verdict.documented, Vec::new());
    }

    #[test]
    fn each_corruption_is_caught(turns in turns(), corruption in prop::sample::select(&CORRUPTIONS[..]), chosen in any::<Index>()) {
        let mut records = told(&turns);
        let rule = corruption.spoil(&mut records, chosen);
        prop_assume!(rule.is_some());
        let violations = verdict(&mut records).violations;
        let rules: Vec<_> = violations.iter().map(|violation| violation.rule).collect();
        prop_assert!(rules.contains(&rule.unwrap()), "{rules:?}");
    }
}

/// Holds on a read/write lock: start, length, and whether it is the write side.
fn holds() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((0..60_u64, 1..30_u64, any::<bool>()), 2..7)
}

/// The number of violations of exclusion that the sweep finds in them.
fn swept(holds: &[(u64, u64, bool)], of: impl Fn(bool) -> (Lock, Mode)) -> usize {
    let mut told = HistoryBuilder::new();
    for (token, (at, lasts, writes)) in (1..).zip(holds) {
        let (lock, mode) = of(*writes);
        let op = told.of(lock, mode).asks(0, 1);
        told.granted(*at, op, token, 1000).released(at + lasts, op, Outcome::Freed);
    }
    let violations = verdict(&mut told.records).violations;
    violations.iter().filter(|violation| violation.rule == Rule::Exclusion).count()
}

proptest! {
    #[test]
    fn c1_the_sweep_finds_the_same_pairs_as_a_full_comparison(holds in holds()) {
        let meet = |(a, b): (usize, usize)| {
            let (one, lasts, writes) = holds[a];
            let (two, stays, edits) = holds[b];
            (writes || edits) && one < two + stays && two < one + lasts
        };
        let pairs = (0..holds.len()).flat_map(|b| (0..b).map(move |a| (a, b))).filter(|pair| meet(*pair)).count();
        let of = |writes| (rw_lock(), if writes { Mode::Exclusive } else { Mode::Shared });
        prop_assert_eq!(swept(&holds, of), pairs);
    }

    #[test]
    fn c1_the_sweep_adds_up_permits_as_a_full_comparison_does(holds in holds()) {
        let permits = |two: bool| if two { 2 } else { 1 };
        // At each grant, adds up the permits that are held then. Of two grants at one instant, the
        // first one comes first.
        let in_use = |n: usize| -> u32 {
            let (at, ..) = holds[n];
            let before = |(m, (from, lasts, _)): &(usize, &(u64, u64, bool))| {
                (*from, *m) <= (at, n) && from + lasts > at
            };
            holds.iter().enumerate().filter(before).map(|(_, (.., two))| permits(*two)).sum()
        };
        let broken = (0..holds.len()).filter(|n| in_use(*n) > 3).count();
        prop_assert_eq!(swept(&holds, |two| (semaphore(3), Mode::Permits(permits(two)))), broken);
    }
}

#[test]
fn each_corruption_applies_to_some_history() {
    let turn = |refused, end| Turn {
        asks: 10,
        refused,
        holds: 50,
        renews: true,
        writes: true,
        looked_at: true,
        end,
        skips: 1,
    };
    let records = told(&[
        turn(Some(Refusal::Busy), End::Freed),
        turn(None, End::Freed),
        Turn { asks: -10, ..turn(None, End::Killed) },
        turn(None, End::Slept),
    ]);
    proptest!(|(chosen in any::<Index>())| {
        for corruption in CORRUPTIONS {
            let mut records = records.clone();
            prop_assert!(corruption.spoil(&mut records, chosen).is_some(), "{corruption:?}");
        }
    });
}
