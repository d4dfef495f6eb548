//! Finds the processes of a job, wherever they are in the process tree.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open,
        pidfd_send_signal, test_kill_process,
    },
};

use super::processes::{Process, all, argument, one, variable};
use crate::{reporter::Reporter, variables};

/// The first argument of a watchdog.
pub(super) const WATCHDOG: &str = "__watchdog";
/// How many looks in a row must find no process.
const QUIET_ROUNDS: usize = 3;

/// The separator between marks in the variable.
pub(super) const MARK_SEPARATOR: char = ':';

/// The processes of a job, and the properties by which lockkit finds them.
#[derive(Clone, Debug, Default)]
pub(super) struct JobProcesses {
    /// All descendants of the root are of the job. The root adopts those whose parents have ended.
    pub(super) root: Option<Pid>,
    /// Processes that are not of the job, and neither are their descendants.
    pub(super) spared: Vec<i32>,
    /// The process group in which the command began, and its session. The session distinguishes it
    /// from another group with the same number.
    pub(super) group: Option<(i32, i32)>,
    /// The mark in the environment of the job's processes.
    pub(super) mark: Option<String>,
    /// Whether the root may adopt orphans that are not of the job. These descend from spared
    /// processes. If the root is the first process of its namespace, they may be any processes.
    /// Then a child of the root counts only if its group or its mark shows that it is of the job.
    pub(super) adopts_strangers: bool,
    /// Processes that were seen among the job's, and when each began; see
    /// [`remember`](Self::remember).
    pub(super) known: HashMap<i32, u64>,
}

impl JobProcesses {
    /// Remembers the job's processes. Otherwise a process without a mark that leaves the group
    /// could not be found after its parents and the root have ended.
    pub(super) fn remember(&mut self) {
        let processes = all();
        let descendants = self.descendants(&processes);
        let ours = processes.iter().filter(|process| descendants.contains(&raw(process.pid)));
        self.known = ours.map(|process| (raw(process.pid), process.start)).collect();
    }

    /// The processes of the job that live now.
    pub(super) fn find(&self) -> Vec<Process> {
        self.among(all(), |process| self.has_mark(process.pid))
    }

    /// The processes that are of the job by their parents or their group, or by `or_else`.
    fn among(&self, processes: Vec<Process>, or_else: impl Fn(&Process) -> bool) -> Vec<Process> {
        let descendants = self.descendants(&processes);
        let me = getpid();
        let is_of_it = |process: &Process| {
            process.pid != me
                && Some(process.pid) != self.root
                && !self.spared.contains(&raw(process.pid))
                && (descendants.contains(&raw(process.pid))
                    || self.group == Some((process.group, process.session))
                    || or_else(process))
        };
        processes.into_iter().filter(is_of_it).collect()
    }

    /// Sends the signals to all of them, and returns them.
    pub(super) fn signal(&self, signals: &[Signal]) -> Vec<Process> {
        let found = self.find();
        self.signal_group(&found, signals);
        // A watchdog among them is of an inner job that has a lock of its own. That watchdog may
        // hold the lock until the inner job is gone. So watchdogs are signalled last.
        let (last, first): (Vec<_>, Vec<_>) =
            found.iter().copied().partition(|process| is_watchdog(process.pid));
        self.signal_others(if first.is_empty() { &last } else { &first }, signals);
        found
    }

    /// Sends the signals to the group of the job, if one of `found` is in it. One call signals the
    /// whole group, so that it also reaches a process that a member forks meanwhile. While a member
    /// lives, no other group can get its number.
    fn signal_group(&self, found: &[Process], signals: &[Signal]) {
        let group = self.group.map(|(group, _)| group);
        if let Some(group) = found.iter().map(|process| process.group).find(|of| Some(*of) == group)
            && let Some(group) = Pid::from_raw(group)
        {
            for signal in signals {
                let _ = kill_process_group(group, *signal);
            }
        }
    }

    /// Sends the signals to those of `found` that are not in the group of the job.
    fn signal_others(&self, found: &[Process], signals: &[Signal]) {
        let group = self.group.map(|(group, _)| group);
        for process in found.iter().filter(|process| Some(process.group) != group) {
            send(*process, signals);
        }
    }

    /// Kills the processes of the job that are found without reading the marks of all processes.
    /// The kernel delays such a read while the process changes its memory. So one process that
    /// waits for a disk could delay the kill. Returns them.
    fn kill_unmarked(&self) -> Vec<Process> {
        let mut found = self.among(all(), |_| false);
        self.signal_group(&found, &[Signal::KILL]);
        found.retain(|process| !is_watchdog(process.pid));
        self.signal_others(&found, &[Signal::KILL]);
        found
    }

    /// Kills processes until none is left that can be killed now, and returns how many it killed.
    /// Returns `None` if some are left. A process that waits for a disk dies later.
    pub(super) fn kill(&self, rounds: usize) -> Option<usize> {
        // A process that was killed may live for some rounds more, and counts once.
        let by_start = |process: &Process| (raw(process.pid), process.start);
        let mut killed: HashSet<_> = self.kill_unmarked().iter().map(by_start).collect();
        let mut quiet = 0;
        for _ in 0..rounds {
            let found = self.signal(&[Signal::KILL]);
            killed.extend(found.iter().map(by_start));
            quiet = if found.is_empty() { quiet + 1 } else { 0 };
            // A process that is about to begin another program has no environment for a moment.
            if quiet == QUIET_ROUNDS {
                return Some(killed.len());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// The numbers of those that live: first those of other users, which can't be killed, then the
    /// others.
    pub(super) fn foreign_and_own(&self) -> [String; 2] {
        let is_foreign = |process: &Process| test_kill_process(process.pid) == Err(Errno::PERM);
        let (foreign, own): (Vec<_>, Vec<_>) = self.find().into_iter().partition(is_foreign);
        [foreign, own].map(|processes| {
            let pids: Vec<_> =
                processes.iter().map(|process| raw(process.pid).to_string()).collect();
            pids.join(", ")
        })
    }

    /// Reports which processes are left, with `advice` for those of other users.
    pub(super) fn tell(&self, reporter: Reporter, advice: &str) {
        let [foreign, own] = self.foreign_and_own();
        if !foreign.is_empty() {
            reporter.insist(&format!(
                "these processes belong to another user, and lockkit may not kill them: {foreign}; \
                 {advice}"
            ));
        }
        if !own.is_empty() {
            reporter.insist(&format!(
                "lockkit killed these processes, but the kernel has not ended them yet: {own}"
            ));
        }
    }

    fn descendants(&self, processes: &[Process]) -> HashSet<i32> {
        let root = self.root.map(raw);
        let is_known =
            |process: &Process| self.known.get(&raw(process.pid)) == Some(&process.start);
        let is_child = |process: &Process| {
            Some(process.parent) == root
                && (!self.adopts_strangers
                    || self.group == Some((process.group, process.session))
                    || self.has_mark(process.pid))
        };
        let is_spared = |process: &Process| self.spared.contains(&raw(process.pid));
        let first = processes.iter().filter(|process| is_known(process) || is_child(process));
        let mut parents: Vec<_> =
            first.filter(|process| !is_spared(process)).map(|process| raw(process.pid)).collect();
        let mut found: HashSet<_> = parents.iter().copied().collect();
        while let Some(parent) = parents.pop() {
            for child in
                processes.iter().filter(|process| process.parent == parent && !is_spared(process))
            {
                if found.insert(raw(child.pid)) {
                    parents.push(raw(child.pid));
                }
            }
        }
        found
    }

    fn has_mark(&self, pid: Pid) -> bool {
        let Some(mark) = &self.mark else { return false };
        variable(pid, variables::MARK)
            .is_some_and(|value| value.split(MARK_SEPARATOR).any(|one| one == mark))
    }
}

/// Whether it is a watchdog, which ends by itself when its work is done.
fn is_watchdog(pid: Pid) -> bool {
    argument(pid).is_some_and(|argument| argument == WATCHDOG)
}

/// Signals this process, and not another one that has got its number meanwhile.
fn send(process: Process, signals: &[Signal]) {
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(descriptor) => {
            let is_still = one(raw(process.pid)).is_some_and(|now| now.start == process.start);
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
    use std::process::{Child, Command};

    use super::*;

    fn process(pid: i32, parent: i32, group: i32) -> Process {
        Process { pid: Pid::from_raw(pid).unwrap(), parent, group, session: 1, start: 5 }
    }

    #[test]
    fn known_processes_are_found_without_a_root() {
        let processes =
            [process(20, 1, 20), process(21, 20, 21), process(30, 1, 30), process(40, 1, 40)];
        let known = HashMap::from([(20, 5), (40, 4)]);
        let job = JobProcesses { known, ..JobProcesses::default() };
        assert_eq!(
            job.descendants(&processes),
            HashSet::from([20, 21]),
            "40 is another one by now"
        );
    }

    #[test]
    fn a_stranger_that_the_root_adopts_is_spared() {
        let processes = [
            process(20, 10, 20),
            process(21, 20, 21),
            process(30, 10, 30),
            process(31, 30, 31),
            process(40, 10, 40),
        ];
        let known = HashMap::from([(40, 5)]);
        let root = Pid::from_raw(10);
        let job = JobProcesses {
            root,
            known,
            adopts_strangers: true,
            group: Some((20, 1)),
            ..JobProcesses::default()
        };
        assert_eq!(job.descendants(&processes), HashSet::from([20, 21, 40]));
    }

    #[test]
    fn descendants_of_spared_processes_are_spared() {
        let processes =
            [process(20, 10, 20), process(21, 20, 21), process(30, 10, 30), process(31, 30, 31)];
        let job =
            JobProcesses { root: Pid::from_raw(10), spared: vec![30], ..JobProcesses::default() };
        assert_eq!(job.descendants(&processes), HashSet::from([20, 21]));
    }

    fn sleeper(mark: &str) -> (Child, Process) {
        let child = Command::new("sleep").arg("60").env(variables::MARK, mark).spawn().unwrap();
        let process = one(i32::try_from(child.id()).unwrap()).unwrap();
        (child, process)
    }

    /// The marks of hundreds of processes take time.
    #[test]
    fn a_known_process_is_killed_before_the_marks_are_read() {
        let (mut known_child, known) = sleeper("another job");
        let (mut marked_child, marked) = sleeper("job of this test");
        let job = JobProcesses {
            known: HashMap::from([(raw(known.pid), known.start)]),
            mark: Some("job of this test".to_owned()),
            ..JobProcesses::default()
        };
        assert_eq!(job.kill_unmarked(), [known]);
        known_child.wait().unwrap();
        assert_eq!(one(raw(marked.pid)), Some(marked), "it is found by its mark alone");
        assert_eq!(job.kill(100), Some(1));
        marked_child.wait().unwrap();
    }
}
