//! (e) After the end of a round, the store and the processes contain no leftovers.

use super::{
    Rule,
    findings::{Finding, Findings},
    index::Index,
};
use crate::history::{DIRECTOR, Event};

/// The director looks at a lock only after all processes have ended and all leases have passed.
pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    for (place, record) in index.records.iter().enumerate() {
        let (lock, what) = match &record.event {
            Event::Leaks { what } => (None, format!("left in the store: {what}")),
            Event::Ends { tasks, files } if tasks + files > 0 => (
                None,
                format!(
                    "process {} ended with {tasks} tasks and {files} open files",
                    record.process
                ),
            ),
            Event::Seen { lock, holders, waiters, .. } if record.process == DIRECTOR => {
                let waiters = waiters.unwrap_or(0);
                if holders.is_empty() && waiters == 0 {
                    continue;
                }
                let ops = holders.iter().map(|holder| match holder.op {
                    Some(op) => op.to_string(),
                    None => "a holder without a label".to_owned(),
                });
                let holders = ops.collect::<Vec<_>>().join(", ");
                let holders = if holders.is_empty() { "none".to_owned() } else { holders };
                (Some(lock), format!("after the end: holders {holders}, {waiters} waiters"))
            }
            _ => continue,
        };
        let slice = vec![Some(place)];
        findings.add(Finding {
            rule: Rule::Leaks,
            at: record.at,
            lock,
            what,
            slice,
            losable: Vec::new(),
        });
    }
}
