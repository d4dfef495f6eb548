//! Measures how slow the machine is, to distinguish its stall from one of lockkit.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::support::until;

/// An urgent action of lockkit takes less time than this many looks at all processes.
const LOOKS: u32 = 8;

/// The longest time in which this process could do almost nothing. A machine that stalls or is
/// crowded slows lockkit down as well.
pub(crate) struct Pace {
    last: Instant,
    slowest: Duration,
}

impl Pace {
    pub(crate) fn start() -> Self {
        Self { last: Instant::now(), slowest: Duration::ZERO }
    }

    /// Asks until there is an answer. Between two questions it looks at all processes, as a
    /// watchdog does.
    pub(crate) fn until<T>(&mut self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        until(what, || {
            let answer = ask();
            if answer.is_none() {
                processes().for_each(|(pid, _)| drop(fs::read(format!("/proc/{pid}/environ"))));
            }
            self.note();
            answer
        })
    }

    /// Asks until there is an answer, and leaves the processor to others meanwhile.
    pub(crate) fn calmly_until<T>(&mut self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        until(what, || {
            self.note();
            ask()
        })
    }

    fn note(&mut self) {
        self.slowest = self.slowest.max(self.last.elapsed());
        self.last = Instant::now();
    }

    /// The bound on this machine for an action that takes `bound` on an idle machine.
    pub(crate) fn allows(&self, bound: Duration) -> Duration {
        bound + self.slowest * LOOKS
    }

    /// How much longer than `room` the machine may have needed.
    pub(crate) fn excess(&self, room: Duration) -> Duration {
        (self.slowest * LOOKS).saturating_sub(room)
    }
}

/// All processes, each with the kernel's status of it.
fn processes() -> impl Iterator<Item = (i32, String)> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((pid, fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
    })
}

/// The children of a process, with those that have ended but were not reaped. Not every kernel has
/// a list of them.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let is_child = |stat: &str| {
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.split(' ').nth(1).unwrap().parse() == Ok(parent)
    };
    processes().filter(|(_, stat)| is_child(stat)).map(|(pid, _)| pid).collect()
}
