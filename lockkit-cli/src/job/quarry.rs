//! The processes of a job, wherever they hang.

use std::{collections::HashSet, time::Duration};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    },
};

use super::processes::{Process, all, one, variable};

/// The variable whose value holds the mark of a job, and those of the jobs that it runs in.
pub(super) const MARK_VARIABLE: &str = "LOCKKIT_JOB";
/// So many looks in a row must find nothing.
const QUIET_ROUNDS: usize = 3;

/// Between two marks of one value.
pub(super) const MARK_SEPARATOR: char = ':';

/// What makes a process one of the job's.
#[derive(Clone, Debug, Default)]
pub(super) struct Quarry {
    /// All its descendants are of the job. It adopts those whose parents have ended.
    pub(super) root: Option<Pid>,
    /// The exceptions, with all that descends from them.
    pub(super) spared: Vec<i32>,
    /// The process group that the command began in, and its session, by which another group of the same number is told
    /// apart.
    pub(super) group: Option<(i32, i32)>,
    /// What the environment of the job's processes holds.
    pub(super) mark: Option<String>,
}

impl Quarry {
    /// Those that live now.
    pub(super) fn find(&self) -> Vec<Process> {
        let processes = all();
        let descendants = self.descendants(&processes);
        let me = getpid();
        let is_of_it = |process: &Process| {
            process.pid != me
                && Some(process.pid) != self.root
                && !self.spared.contains(&raw(process.pid))
                && (descendants.contains(&raw(process.pid))
                    || self.group == Some((process.group, process.session))
                    || self.has_mark(process.pid))
        };
        processes.into_iter().filter(is_of_it).collect()
    }

    /// Sends all of them a signal, and says how many they were.
    pub(super) fn signal(&self, signals: &[Signal]) -> usize {
        let found = self.find();
        let group = self.group.map(|(group, _)| group);
        // At one stroke: what a member forks meanwhile is hit as well. That one lives keeps the number from others.
        if let Some(group) = found.iter().map(|process| process.group).find(|of| Some(*of) == group)
            && let Some(group) = Pid::from_raw(group)
        {
            for signal in signals {
                let _ = kill_process_group(group, *signal);
            }
        }
        for process in found.iter().filter(|process| Some(process.group) != group) {
            send(*process, signals);
        }
        found.len()
    }

    /// Kills them until none is left that can be killed now, and says how many that were; nothing if some are left. What
    /// waits for a disk dies later.
    pub(super) fn kill(&self, rounds: usize) -> Option<usize> {
        let (mut killed, mut quiet) = (0, 0);
        for _ in 0..rounds {
            let found = self.signal(&[Signal::KILL]);
            killed += found;
            quiet = if found == 0 { quiet + 1 } else { 0 };
            // One that is about to begin another program has no environment for a moment.
            if quiet == QUIET_ROUNDS {
                return Some(killed);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn descendants(&self, processes: &[Process]) -> HashSet<i32> {
        let mut found = HashSet::new();
        let Some(root) = self.root else { return found };
        let mut parents = vec![raw(root)];
        while let Some(parent) = parents.pop() {
            for child in processes.iter().filter(|process| process.parent == parent) {
                let child = raw(child.pid);
                if !self.spared.contains(&child) && found.insert(child) {
                    parents.push(child);
                }
            }
        }
        found
    }

    fn has_mark(&self, pid: Pid) -> bool {
        let Some(mark) = &self.mark else { return false };
        variable(pid, MARK_VARIABLE).is_some_and(|value| value.split(MARK_SEPARATOR).any(|one| one == mark))
    }
}

/// To this process, and not to another one that has its number by now.
fn send(process: Process, signals: &[Signal]) {
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(descriptor) => {
            let is_still = one(raw(process.pid)).is_some_and(|now| now.session == process.session);
            for signal in signals.iter().filter(|_| is_still) {
                let _ = pidfd_send_signal(&descriptor, *signal);
            }
        }
        Err(Errno::NOSYS) => {
            for signal in signals {
                let _ = kill_process(process.pid, *signal);
            }
        }
        Err(_) => {}
    }
}

pub(super) fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32) -> Process {
        Process { pid: Pid::from_raw(pid).unwrap(), parent, group, session: 1 }
    }

    #[test]
    fn what_descends_from_the_spared_is_spared() {
        let processes = [process(20, 10, 20), process(21, 20, 21), process(30, 10, 30), process(31, 30, 31)];
        let quarry = Quarry { root: Pid::from_raw(10), spared: vec![30], ..Quarry::default() };
        assert_eq!(quarry.descendants(&processes), HashSet::from([20, 21]));
    }
}
