//! Refuses a run as evidence if no lock was granted, or a process did no work.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    history::{Event, Record},
    nemesis::Life,
};

/// The reason why the records of a round with faults for that time prove nothing, if there is one.
pub(super) fn lacking(records: &[Record], lives: &[Life], span: Duration) -> Option<String> {
    let events = || records.iter().map(|record| &record.event);
    if !events().any(|event| matches!(event, Event::Granted { .. })) {
        return Some("the round proves nothing, because no process got a lock".to_owned());
    }
    let begun = records.iter().filter(|record| matches!(record.event, Event::Begins { .. }));
    let begun: BTreeSet<u32> = begun.map(|record| record.process).collect();
    let most = u64::try_from(span.as_nanos() / 2).unwrap_or(u64::MAX);
    let lived = |life: &&Life| life.to.saturating_sub(life.from) > most;
    let idle = lives.iter().filter(lived).find(|life| !begun.contains(&life.process))?;
    Some(format!(
        "process {} lived for most of the round, but never connected to the store",
        idle.process
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Op;

    fn record(process: u32, event: Event) -> Record {
        Record { at: 0, process, event }
    }

    fn begins(process: u32) -> Record {
        record(process, Event::Begins { backend: "memory".to_owned() })
    }

    fn granted(process: u32) -> Record {
        let op = Op { process, number: 1 };
        record(process, Event::Granted { op, owner: "o".to_owned(), token: 1, until: 1 })
    }

    #[test]
    fn a_round_proves_nothing_without_a_grant_or_with_a_process_that_never_worked() {
        let span = Duration::from_nanos(100);
        let long = Life { process: 1, from: 0, to: 60 };
        let short = Life { process: 2, from: 50, to: 99 };
        assert_eq!(lacking(&[begins(1), granted(1)], &[long, short], span), None);
        let text = lacking(&[begins(1)], &[long], span).unwrap();
        assert!(text.contains("no process got a lock"), "{text}");
        let text = lacking(&[begins(2), granted(2)], &[long, short], span).unwrap();
        assert!(text.starts_with("process 1 lived"), "{text}");
    }
}
