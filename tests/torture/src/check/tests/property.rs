//! Random histories of a correct store break no rule. A history with one corruption breaks the rule
//! against it.

use proptest::{prelude::*, sample::Index};

use super::builder::{HistoryBuilder, TERMS, rw_lock, semaphore};
use crate::{
    check::{Rule, Verdict, check, op_of},
    history::{Event, Lock, Mode, Op, Outcome, Patience, Record, Refusal, Renewal},
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

/// The history that a correct store makes of the turns.
fn told(turns: &[Turn]) -> Vec<Record> {
    let mut told = HistoryBuilder::new();
    // The earliest time of the next grant, the last token, and the largest token that the register
    // took.
    let mut free = 100_u64;
    let mut token = 0;
    let mut largest = 0;
    let mut processes = [1, 2, 3];
    let mut next_process = 4;
    for (turn, slot) in turns.iter().zip((0..3).cycle()) {
        let process = processes[slot];
        let asks = free.saturating_add_signed(turn.asks);
        let granted = free.max(asks) + 1;
        if let Some(why) = &turn.refused {
            let patience = if *why == Refusal::Busy { Patience::No } else { Patience::Unbounded };
            let op = told.patient(patience).asks(asks, process);
            told.refused(asks + 1, op, why.clone());
        }
        token += turn.skips;
        let op = told.patient(Patience::Unbounded).renewed(Renewal::Manual).asks(asks, process);
        let mut until = granted + 990;
        told.granted(granted, op, token, until).listens(granted, op);
        let ends = granted + turn.holds;
        if turn.renews {
            let half = granted + turn.holds / 2;
            until = half + 990;
            told.renews(half, op).renewed_by_hand(half + 1, op, None).holds(half + 1, op, until);
        }
        if turn.looked_at {
            told.seen(granted, 1_000, &[(op, token)]);
        }
        if turn.writes {
            told.wrote(ends - 3, op, token, largest, true, false);
            largest = token;
        }
        free = match turn.end {
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
                told.fault(ends, until + 10, "stop-holder", Some(process), None);
                told.wrote(until + 11, op, token, largest, token >= largest, true);
                largest = largest.max(token);
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
                told.killed(ends, process);
                processes[slot] = next_process;
                next_process += 1;
                until + 10
            }
        };
    }
    for process in processes {
        told.ends(free + 5000, process);
    }
    let mut records = told.records;
    records.sort_by_key(|record| record.at);
    records
}

fn verdict(records: &mut [Record]) -> Verdict {
    records.sort_by_key(|record| record.at);
    check(records, &TERMS)
}

/// One corruption of a history.
#[derive(Clone, Copy, Debug)]
enum Corruption {
    AcceptLower,
    DropAnswer,
    DropReleased,
    DuplicateToken,
    GrantEarlier,
    SeenAfterFreed,
    SwapTokens,
    ToldLate,
    ToldNever,
}

/// The grants in order of time: place, claim and token.
fn grants(records: &[Record]) -> Vec<(usize, Op, u64)> {
    let grants = records.iter().enumerate().filter_map(|(place, record)| match record.event {
        Event::Granted { op, token, .. } => Some((place, op, token)),
        _ => None,
    });
    grants.collect()
}

fn retoken(record: &mut Record, new: u64) {
    if let Event::Granted { token, .. } = &mut record.event {
        *token = new;
    }
}

/// Two grants, of which the second was asked for after the first one was granted.
fn in_turn(records: &[Record], chosen: Index) -> Option<[(usize, u64); 2]> {
    let grants = grants(records);
    let pairs = grants.windows(2).filter_map(|pair| {
        let [(first, _, one), (second, op, two)] = pair else { return None };
        let asked = |record: &&Record| matches!(&record.event, Event::Asks { op: asked, .. } if asked == op);
        let asks = records.iter().find(asked)?.at;
        (records[*first].at < asks).then_some([(*first, *one), (*second, *two)])
    });
    let pairs: Vec<_> = pairs.collect();
    (!pairs.is_empty()).then(|| *chosen.get(&pairs))
}

fn places(records: &[Record], is: impl Fn(&Event) -> bool) -> Vec<usize> {
    (0..records.len()).filter(|place| is(&records[*place].event)).collect()
}

/// The loss signals of holders that continued for long after them.
fn slept(records: &[Record]) -> Vec<usize> {
    let goes_on = |op: Op, at: u64| {
        records.iter().any(|record| {
            record.event == (Event::Releases { op }) && record.at > at + 1_000_000_000
        })
    };
    let told = |place: &usize| match &records[*place] {
        Record { at, event: Event::Told { op, .. }, .. } => goes_on(*op, *at),
        _ => false,
    };
    (0..records.len()).filter(told).collect()
}

impl Corruption {
    /// Returns the rule that must find the corruption, or `None` if the history has no place for
    /// it.
    fn spoil(self, records: &mut Vec<Record>, chosen: Index) -> Option<Rule> {
        let pick = |places: Vec<usize>| (!places.is_empty()).then(|| *chosen.get(&places));
        match self {
            Self::SwapTokens => {
                let [(first, one), (second, two)] = in_turn(records, chosen)?;
                retoken(&mut records[first], two);
                retoken(&mut records[second], one);
                Some(Rule::Tokens)
            }
            Self::DuplicateToken => {
                let [(_, one), (second, _)] = in_turn(records, chosen)?;
                retoken(&mut records[second], one);
                Some(Rule::Tokens)
            }
            Self::DropReleased => {
                let released = |event: &Event| {
                    let Event::Released { op, .. } = event else { return false };
                    !records
                        .iter()
                        .any(|record| record.event == (Event::Died { victim: op.process }))
                };
                records.remove(pick(places(records, released))?);
                Some(Rule::Waiting)
            }
            Self::DropAnswer => {
                let answered = |event: &Event| {
                    let Event::Refused { op, .. } = event else { return false };
                    !records
                        .iter()
                        .any(|record| record.event == (Event::Died { victim: op.process }))
                };
                records.remove(pick(places(records, answered))?);
                Some(Rule::Waiting)
            }
            Self::GrantEarlier => {
                // Into the hold before it: a millisecond before the release of that hold begins.
                let grants = grants(records);
                let pairs: Vec<_> =
                    grants.windows(2).map(|pair| (pair[0].1, pair[0].0, pair[1])).collect();
                let releases = |op: Op| {
                    let own = |record: &&Record| record.event == (Event::Releases { op });
                    let lost =
                        |record: &&Record| record.event == (Event::Lost { op, reason: None });
                    if records.iter().any(|record| lost(&record)) {
                        None
                    } else {
                        records.iter().find(own)
                    }
                };
                let pairs: Vec<_> = pairs
                    .into_iter()
                    .filter_map(|(op, held, (second, ..))| Some((releases(op)?.at, held, second)))
                    .filter(|(end, held, _)| *end > records[*held].at + 1_000_000)
                    .collect();
                let (end, _, second) =
                    if pairs.is_empty() { return None } else { *chosen.get(&pairs) };
                let granted = op_of(&records[second].event);
                let asks =
                    |event: &Event| matches!(event, Event::Asks { op, .. } if Some(*op) == granted);
                let asks = pick(places(records, asks))?;
                records[asks].at = records[asks].at.min(end - 2_000_000);
                records[second].at = end - 1_000_000;
                Some(Rule::Exclusion)
            }
            Self::AcceptLower => {
                let all = grants(records);
                let smaller = |than: u64| all.iter().rfind(|(_, _, token)| *token < than);
                let compared = places(
                    records,
                    |event| matches!(event, Event::Compared { accepted: true, token, .. } if smaller(*token).is_some()),
                );
                let last = pick(compared)?;
                let mut late = records[last].clone();
                let Event::Compared { op, token: of, largest, .. } = &mut late.event else {
                    return None;
                };
                let (_, older, below) = *smaller(*of)?;
                (*largest, *op, *of) = (*of, older, below);
                records.insert(last + 1, late);
                Some(Rule::Register)
            }
            Self::SeenAfterFreed => {
                let freed = |event: &Event| {
                    matches!(event, Event::Released { outcome: Outcome::Freed, .. })
                };
                let place = pick(places(records, freed))?;
                let (Some(op), at) = (op_of(&records[place].event), records[place].at) else {
                    return None;
                };
                let token = grants(records).into_iter().find(|(_, other, _)| *other == op)?.2;
                let mut look = HistoryBuilder::new();
                look.seen(at / 1_000_000 + 1, 9, &[(op, token)]);
                records.extend(look.records);
                Some(Rule::Ambiguity)
            }
            Self::ToldLate => {
                // Late by a lease: by then the holder would have learned of the loss in another
                // way.
                let place = pick(slept(records))?;
                records[place].at += 1_000_000_000;
                Some(Rule::Loss)
            }
            Self::ToldNever => {
                records.remove(pick(slept(records))?);
                Some(Rule::Loss)
            }
        }
    }
}

const CORRUPTIONS: [Corruption; 9] = [
    Corruption::AcceptLower,
    Corruption::DropAnswer,
    Corruption::DropReleased,
    Corruption::DuplicateToken,
    Corruption::GrantEarlier,
    Corruption::SeenAfterFreed,
    Corruption::SwapTokens,
    Corruption::ToldLate,
    Corruption::ToldNever,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_a_right_store_does_is_fine(turns in turns()) {
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
    fn c1_the_sweep_finds_the_pairs_that_looking_at_all_finds(holds in holds()) {
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
    fn c1_the_sweep_adds_up_permits_as_looking_at_all_does(holds in holds()) {
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
fn each_corruption_has_something_to_spoil() {
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
