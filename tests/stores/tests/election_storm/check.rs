//! Checks the promises on everything that the processes recorded.

use std::{collections::BTreeMap, time::Duration};

use libtest_mimic::Failed;
use lockkit_torture::{
    check::{Terms, check},
    history::{Event, Op, Record},
    report,
};

use crate::{BLOWS, OBSERVERS, child::nanos, settled};

/// One term, as its leader believed it.
#[derive(Clone, Copy, Debug)]
struct Term {
    token: u64,
    gained: u64,
    /// The last instant at which the leader knew that it led.
    leads: u64,
}

/// Checks the promises of a lock (C1, C3, C4, C9), and that observers see a settled leader (C14).
pub(crate) fn verify(records: &[Record], terms: &Terms) -> Result<(), Failed> {
    let verdict = check(records, terms);
    if !verdict.violations.is_empty() {
        return Err(report::markdown(&verdict, "an election").into());
    }
    let (seen, latest) = observed(records, settled())?;
    let figures = verdict.figures;
    let slowest = figures.recoveries.values().flatten().max();
    println!(
        "{} terms, {} lost, {:?}: {} takeovers were judged; the slowest recovery took {slowest:?}; {seen} settled leaders were \
         seen by {OBSERVERS} observers, within {latest:?}",
        figures.grants, figures.losses, figures.faults, figures.takeovers,
    );
    let blows: u64 = figures.faults.values().sum();
    if blows < BLOWS || figures.takeovers < BLOWS / 2 || seen < 2 {
        return Err(format!("that was no storm: {figures:?}, {seen} settled").into());
    }
    Ok(())
}

/// C14: how many terms lasted longer than `bound`, and the longest time until an observer saw one
/// of them.
fn observed(records: &[Record], bound: Duration) -> Result<(usize, Duration), Failed> {
    let terms = terms(records);
    let mut looks: BTreeMap<u32, Vec<(u64, Option<u64>)>> = BTreeMap::new();
    for record in records {
        if let Event::Seen { holders, .. } = &record.event {
            let token = holders.first().and_then(|holder| holder.token);
            looks.entry(record.process).or_default().push((record.at, token));
        }
    }
    assert_eq!(looks.len(), OBSERVERS, "an observer saw nothing");
    let mut latest = Duration::ZERO;
    let mut settled = 0;
    for (observer, looks) in looks {
        let begun = looks[0].0;
        let seen: Vec<_> = looks.into_iter().filter_map(|(at, token)| Some((at, token?))).collect();
        if let Some(pair) = seen.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
            // After a look without a leader, the same leader would not be a new one.
            return Err(format!(
                "C14: observer {observer} saw the terms {} and {}",
                pair[0].1, pair[1].1
            )
            .into());
        }
        let stood = |term: &&Term| term.gained >= begun && term.leads >= term.gained + nanos(bound);
        settled = 0;
        for term in terms.values().filter(stood) {
            settled += 1;
            let Some((at, _)) = seen.iter().find(|(_, token)| *token == term.token) else {
                return Err(format!("C14: observer {observer} missed {term:?}").into());
            };
            latest = latest.max(Duration::from_nanos(at.saturating_sub(term.gained)));
        }
    }
    Ok((settled, latest))
}

fn terms(records: &[Record]) -> BTreeMap<Op, Term> {
    let mut terms = BTreeMap::new();
    for Record { at, event, .. } in records {
        match event {
            Event::Granted { op, token, .. } => {
                terms.insert(*op, Term { token: *token, gained: *at, leads: *at });
            }
            Event::Holds { op, .. } | Event::Releases { op } => {
                if let Some(term) = terms.get_mut(op) {
                    term.leads = *at;
                }
            }
            _ => {}
        }
    }
    terms
}
