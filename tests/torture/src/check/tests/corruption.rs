//! Single corruptions of a history, each of which breaks one rule.

use proptest::sample::Index;

use super::builder::HistoryBuilder;
use crate::{
    check::{Rule, op_of},
    history::{Event, Op, Outcome, Record},
};

/// One corruption of a history.
#[derive(Clone, Copy, Debug)]
pub(super) enum Corruption {
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

pub(super) const CORRUPTIONS: [Corruption; 9] = [
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

impl Corruption {
    /// Returns the rule that must find the corruption, or `None` if the history has no place for
    /// it.
    pub(super) fn spoil(self, records: &mut Vec<Record>, chosen: Index) -> Option<Rule> {
        match self {
            Self::AcceptLower => accept_lower(records, chosen)?,
            Self::DropAnswer => drop_answer(records, chosen)?,
            Self::DropReleased => drop_released(records, chosen)?,
            Self::DuplicateToken => duplicate_token(records, chosen)?,
            Self::GrantEarlier => grant_earlier(records, chosen)?,
            Self::SeenAfterFreed => see_after_freed(records, chosen)?,
            Self::SwapTokens => swap_tokens(records, chosen)?,
            Self::ToldLate => tell_late(records, chosen)?,
            Self::ToldNever => tell_never(records, chosen)?,
        }
        Some(self.broken_rule())
    }

    fn broken_rule(self) -> Rule {
        match self {
            Self::AcceptLower => Rule::Register,
            Self::DropAnswer | Self::DropReleased => Rule::Waiting,
            Self::DuplicateToken | Self::SwapTokens => Rule::Tokens,
            Self::GrantEarlier => Rule::Exclusion,
            Self::SeenAfterFreed => Rule::Ambiguity,
            Self::ToldLate | Self::ToldNever => Rule::Loss,
        }
    }
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

fn pick(places: Vec<usize>, chosen: Index) -> Option<usize> {
    (!places.is_empty()).then(|| *chosen.get(&places))
}

fn swap_tokens(records: &mut [Record], chosen: Index) -> Option<()> {
    let [(first, one), (second, two)] = in_turn(records, chosen)?;
    retoken(&mut records[first], two);
    retoken(&mut records[second], one);
    Some(())
}

fn duplicate_token(records: &mut [Record], chosen: Index) -> Option<()> {
    let [(_, one), (second, _)] = in_turn(records, chosen)?;
    retoken(&mut records[second], one);
    Some(())
}

/// Whether the process is seen dead anywhere in the history.
fn dies(records: &[Record], process: u32) -> bool {
    records.iter().any(|record| record.event == (Event::Died { victim: process }))
}

fn drop_released(records: &mut Vec<Record>, chosen: Index) -> Option<()> {
    let released = |event: &Event| {
        let Event::Released { op, .. } = event else { return false };
        !dies(records, op.process)
    };
    let place = pick(places(records, released), chosen)?;
    records.remove(place);
    Some(())
}

fn drop_answer(records: &mut Vec<Record>, chosen: Index) -> Option<()> {
    let answered = |event: &Event| {
        let Event::Refused { op, .. } = event else { return false };
        !dies(records, op.process)
    };
    let place = pick(places(records, answered), chosen)?;
    records.remove(place);
    Some(())
}

/// The begin of the release of a claim that was not lost.
fn releases(records: &[Record], op: Op) -> Option<&Record> {
    let own = |record: &&Record| record.event == (Event::Releases { op });
    let lost = |record: &&Record| record.event == (Event::Lost { op, reason: None });
    if records.iter().any(|record| lost(&record)) { None } else { records.iter().find(own) }
}

/// Moves a grant into the hold before it: a millisecond before the release of that hold begins.
fn grant_earlier(records: &mut [Record], chosen: Index) -> Option<()> {
    let grants = grants(records);
    let pairs: Vec<_> = grants.windows(2).map(|pair| (pair[0].1, pair[0].0, pair[1])).collect();
    let pairs: Vec<_> = pairs
        .into_iter()
        .filter_map(|(op, held, (second, ..))| Some((releases(records, op)?.at, held, second)))
        .filter(|(end, held, _)| *end > records[*held].at + 1_000_000)
        .collect();
    let (end, _, second) = if pairs.is_empty() { return None } else { *chosen.get(&pairs) };
    let granted = op_of(&records[second].event);
    let asks = |event: &Event| matches!(event, Event::Asks { op, .. } if Some(*op) == granted);
    let asks = pick(places(records, asks), chosen)?;
    records[asks].at = records[asks].at.min(end - 2_000_000);
    records[second].at = end - 1_000_000;
    Some(())
}

fn accept_lower(records: &mut Vec<Record>, chosen: Index) -> Option<()> {
    let all = grants(records);
    let smaller = |than: u64| all.iter().rfind(|(_, _, token)| *token < than);
    let compared = places(
        records,
        |event| matches!(event, Event::Compared { accepted: true, token, .. } if smaller(*token).is_some()),
    );
    let last = pick(compared, chosen)?;
    let mut late = records[last].clone();
    let Event::Compared { op, token: of, largest, .. } = &mut late.event else {
        return None;
    };
    let (_, older, below) = *smaller(*of)?;
    (*largest, *op, *of) = (*of, older, below);
    records.insert(last + 1, late);
    Some(())
}

fn see_after_freed(records: &mut Vec<Record>, chosen: Index) -> Option<()> {
    let freed = |event: &Event| matches!(event, Event::Released { outcome: Outcome::Freed, .. });
    let place = pick(places(records, freed), chosen)?;
    let (Some(op), at) = (op_of(&records[place].event), records[place].at) else {
        return None;
    };
    let token = grants(records).into_iter().find(|(_, other, _)| *other == op)?.2;
    let mut look = HistoryBuilder::new();
    look.seen(at / 1_000_000 + 1, 9, &[(op, token)]);
    records.extend(look.records);
    Some(())
}

/// Late by a lease: by then the holder would have learned of the loss in another way.
fn tell_late(records: &mut [Record], chosen: Index) -> Option<()> {
    let place = pick(slept(records), chosen)?;
    records[place].at += 1_000_000_000;
    Some(())
}

fn tell_never(records: &mut Vec<Record>, chosen: Index) -> Option<()> {
    let place = pick(slept(records), chosen)?;
    records.remove(place);
    Some(())
}
