//! Checks the lines of all runners: no slot is missed, and no repeat is unannounced.

use std::{collections::BTreeMap, ops::Range};

use libtest_mimic::Failed;

use super::history::{Event, Line};

/// One run of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    earlier: u64,
    ended: bool,
    recorded: bool,
}

/// The runs of one slot, by their tokens. A later run has a larger token, however late its process
/// wrote the line.
type Runs = BTreeMap<u64, Run>;

/// The number of runs of all runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) runs: usize,
    /// Those of a slot that an earlier run had begun.
    pub(super) takeovers: usize,
}

pub(super) fn verify(lines: &[Line], slots: Range<u64>) -> Result<Figures, Failed> {
    let mut all: BTreeMap<u64, Runs> = BTreeMap::new();
    for line in lines {
        let run = all.entry(line.slot).or_default().entry(line.token).or_default();
        match line.event {
            Event::Begins => run.earlier = line.earlier,
            Event::Ends => run.ended = true,
            Event::Recorded => run.recorded = true,
        }
    }
    let mut figures = Figures::default();
    for slot in slots {
        let runs = all.remove(&slot).unwrap_or_default();
        verify_slot(slot, &runs)?;
        figures.runs += runs.len();
        figures.takeovers += runs.values().filter(|run| run.earlier > 0).count();
    }
    match all.pop_first() {
        Some((slot, _)) => Err(format!("the slot {slot} is not in the schedule").into()),
        None => Ok(figures),
    }
}

fn verify_slot(slot: u64, runs: &Runs) -> Result<(), Failed> {
    let fails = |text: &str| -> Result<(), Failed> {
        Err(format!("the slot {slot} {text}: {runs:?}").into())
    };
    if !runs.values().any(|run| run.ended) {
        return fails("was missed");
    }
    let mut is_first = true;
    let mut is_recorded = false;
    for (token, run) in runs {
        if is_recorded {
            return fails("ran again although it was finished");
        }
        if !is_first && run.earlier == 0 {
            return fails("ran again without an announcement");
        }
        if run.earlier >= *token {
            return fails("has a run that announces a later one");
        }
        is_first = false;
        is_recorded = run.recorded;
    }
    Ok(())
}

/// Tests this check itself.
pub(super) fn finds_each_fault() -> Result<(), Failed> {
    use Event::{Begins, Ends, Recorded};

    let verified = |events: &[(Event, u64, u64, u64)]| {
        let line = |&(event, slot, token, earlier)| Line { event, runner: 0, slot, token, earlier };
        let lines: Vec<_> = events.iter().map(line).collect();
        let parsed = lines.iter().map(|line| Line::parse(&line.to_string()));
        assert!(parsed.eq(lines.iter().map(|line| Some(*line))), "{lines:?}");
        verify(&lines, 1..3).map_err(|failed| failed.message().unwrap_or_default().to_owned())
    };
    let first = [(Begins, 1, 7, 0), (Ends, 1, 7, 0), (Recorded, 1, 7, 0)];
    let second = [(Begins, 2, 8, 0), (Begins, 2, 9, 8), (Ends, 2, 9, 8)];
    let right = [first, second].concat();
    assert_eq!(verified(&right), Ok(Figures { runs: 3, takeovers: 1 }));
    for (wrong, expected) in [
        (first.to_vec(), "the slot 2 was missed"),
        (right[..5].to_vec(), "the slot 2 was missed"),
        ([&right[..], &[(Begins, 2, 10, 0)]].concat(), "the slot 2 ran again without"),
        ([&right[..], &[(Begins, 1, 10, 7)]].concat(), "the slot 1 ran again although"),
        ([&right[..], &[(Begins, 2, 10, 11)]].concat(), "the slot 2 has a run that announces"),
        ([&right[..], &[(Begins, 3, 10, 0)]].concat(), "the slot 3 is not in the schedule"),
    ] {
        let text = verified(&wrong).unwrap_err();
        assert!(text.starts_with(expected), "{text}");
    }
    Ok(())
}
