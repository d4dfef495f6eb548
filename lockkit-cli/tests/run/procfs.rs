//! Reads from /proc which children a process has, and how busy a process was.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use lockkit_fixture::is_alive;

/// How long a process ran or waited for a processor, since the measurement began. All its threads
/// count. A process that is late for longer than this has waited for an event.
pub(crate) struct Busy {
    process: i32,
    at_first: HashMap<String, Duration>,
    latest: HashMap<String, Duration>,
    stolen_at_first: Duration,
    measured: Instant,
    longest_gap: Duration,
}

impl Busy {
    pub(crate) fn of(process: i32) -> Self {
        let at_first: HashMap<_, _> = threads(process).collect();
        Self {
            process,
            latest: at_first.clone(),
            at_first,
            stolen_at_first: stolen(),
            measured: Instant::now(),
            longest_gap: Duration::ZERO,
        }
    }

    /// Measures, while the process lives. A wait that still lasts does not count yet.
    pub(crate) fn measure(&mut self) {
        self.latest.extend(threads(self.process));
        self.longest_gap = self.longest_gap.max(self.measured.elapsed());
        self.measured = Instant::now();
    }

    /// The last measurement, the time that the host of this machine gave to others, and the longest
    /// time for which the test could not measure. A process may also wait for a lock in the kernel
    /// whose holder gets no processor. Then it waits about as long as the test.
    pub(crate) fn time(&self) -> Duration {
        let since = |(thread, latest): (_, &Duration)| {
            latest.saturating_sub(self.at_first.get(thread).copied().unwrap_or_default())
        };
        let busy: Duration = self.latest.iter().map(since).sum();
        busy + self.longest_gap + (stolen() - self.stolen_at_first)
    }
}

/// The threads of a process, and for how long each ran or waited for a processor.
fn threads(process: i32) -> impl Iterator<Item = (String, Duration)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    tasks.into_iter().flatten().filter_map(|task| {
        let task = task.ok()?;
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut nanos = times.split(' ').map_while(|nanos| nanos.parse::<u64>().ok());
        let [ran, waited] = [nanos.next()?, nanos.next()?];
        Some((task.file_name().to_str()?.to_owned(), Duration::from_nanos(ran + waited)))
    })
}

/// The time that the host gave to others, of all processors together.
fn stolen() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let ticks: u64 = stat.split_ascii_whitespace().nth(8).unwrap().parse().unwrap();
    // Each of these ticks is a hundredth of a second.
    Duration::from_millis(ticks * 10)
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

/// The watchdog of a lockkit.
pub(crate) fn watchdog_of(lockkit: i32) -> Option<i32> {
    children(lockkit).into_iter().find(|pid| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains("__watchdog") && is_alive(*pid)
    })
}
