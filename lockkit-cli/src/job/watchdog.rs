//! Kills the job of a lockkit that can't do it: one that was killed, is stopped, or hangs.

use std::{
    fs,
    io::{Read as _, stdin},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use nix::sys::signal::SigSet;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, ioctl_fionbio},
    process::{Pid, getpid, getppid, setsid},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::job_processes::{JobProcesses, raw};
use crate::{
    boot_time::BootTime,
    cli::WatchdogArguments,
    error::{Error, Result},
    exit::Exit,
    reporter::Reporter,
};

/// How often the watchdog looks at the job's processes.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two attempts when a process can't be killed.
const STUCK: Duration = Duration::from_millis(500);
/// How many rounds the first attempt has. No process that can be killed needs more.
const ROUNDS: usize = 100;
/// How many rounds a later attempt has: enough to see that no process is left.
const FEW_ROUNDS: usize = 5;

/// Watches until the parent and the job have ended. A parent whose job has ended kills its
/// watchdog.
pub(crate) fn watch(arguments: &WatchdogArguments) -> Result<Exit> {
    // No Ctrl-C is meant for the watchdog.
    let _ = SigSet::all().thread_block();
    let _ = setsid();
    ioctl_fionbio(stdin(), true)
        .map_err(|error| Error::of("standard input is not a pipe", error))?;
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)
        .map_err(|error| Error::of("could not make a timer", error))?;
    let mut orders = Orders::default();
    let mut processes = JobProcesses {
        root: Pid::from_raw(arguments.parent),
        spared: arguments.spare.iter().copied().chain([arguments.parent, raw(getpid())]).collect(),
        group: None,
        mark: Some(arguments.mark.clone()),
        adopts_strangers: arguments.adopts_strangers,
        ..JobProcesses::default()
    };
    let mut look = Instant::now() + LOOK;
    let mut kill_at = BootTime::NEVER;
    loop {
        wait(&timer, kill_at, look)?;
        let heard = orders.hear();
        processes.group = orders.group;
        // If the deadline passes below, during the look, the next wait ends at once.
        kill_at = orders.deadline;
        match heard {
            Heard::Gone => {
                kill(
                    arguments,
                    &mut processes,
                    "lockkit was killed, so the watchdog kills its job",
                );
                if let Some(folder) = &arguments.folder {
                    let _ = fs::remove_dir_all(folder);
                }
                return Ok(Exit::Done);
            }
            Heard::Orders if orders.is_overdue() => {
                kill(
                    arguments,
                    &mut processes,
                    "lockkit is stopped and its lock is about to end, so the watchdog kills its job",
                );
                // No process is left. The watchdog makes sure of that at each look.
                kill_at = BootTime::NEVER;
            }
            Heard::Orders => {}
        }
        let begun = Instant::now();
        if begun >= look && lives(arguments) {
            processes.remember();
            // On a host with many thousands of processes, the looks must take only a small share of
            // the time.
            look = begun + (begun.elapsed() * 100).max(LOOK);
        }
    }
}

/// Waits for orders, or until one of these times. `kill_at` counts suspend, and may be never.
fn wait(timer: &OwnedFd, kill_at: BootTime, look: Instant) -> Result<()> {
    // Zero turns the timer off.
    let value =
        if kill_at == BootTime::NEVER { Timespec::default() } else { timespec(kill_at.0.max(1)) };
    let setting = Itimerspec { it_interval: Timespec::default(), it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &setting)
        .map_err(|error| Error::of("could not set the timer", error))?;
    let input = stdin();
    let mut sources = [PollFd::new(&input, PollFlags::IN), PollFd::new(timer, PollFlags::IN)];
    let pause = look.saturating_duration_since(Instant::now());
    match poll(&mut sources, Some(&timespec(u64::try_from(pause.as_nanos()).unwrap_or(0)))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Error::of("could not wait for the pipe and the timer", error)),
    }
}

fn lives(arguments: &WatchdogArguments) -> bool {
    getppid().map(raw) == Some(arguments.parent)
}

fn kill(arguments: &WatchdogArguments, processes: &mut JobProcesses, why: &str) {
    processes.root = processes.root.filter(|_| lives(arguments));
    let reporter = Reporter { quiet: false, verbose: false, json: false };
    let mut killed = processes.kill(ROUNDS);
    if killed != Some(0) {
        reporter.say(why);
    }
    if killed.is_none() {
        let me = raw(getpid());
        processes.tell(
            reporter,
            &format!(
                "a lock in files lasts while they live; end them, or the watchdog (kill -9 {me})"
            ),
        );
    }
    while killed.is_none() {
        std::thread::sleep(STUCK);
        processes.root = processes.root.filter(|_| lives(arguments));
        killed = processes.kill(FEW_ROUNDS);
    }
}

/// The orders that the parent has sent.
#[derive(Debug)]
struct Orders {
    group: Option<(i32, i32)>,
    deadline: BootTime,
    /// The beginning of a line whose end has not arrived.
    rest: Vec<u8>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { group: None, deadline: BootTime::NEVER, rest: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Gone,
    Orders,
}

impl Orders {
    fn is_overdue(&self) -> bool {
        self.deadline.left().is_zero()
    }

    /// Reads all orders that have arrived.
    fn hear(&mut self) -> Heard {
        let mut buffer = [0; 4096];
        loop {
            match stdin().lock().read(&mut buffer) {
                Ok(0) => return Heard::Gone,
                Ok(length) => {
                    self.rest.extend(buffer.iter().take(length));
                    self.obey();
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Heard::Orders;
                }
                Err(_) => return Heard::Gone,
            }
        }
    }

    fn obey(&mut self) {
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            match words.as_slice() {
                ["group", group, session] => {
                    self.group = group.parse().ok().zip(session.parse().ok())
                }
                ["until", at] => self.deadline = at.parse().map_or(self.deadline, BootTime),
                _ => {}
            }
        }
    }
}

fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_may_come_in_pieces() {
        let mut orders = Orders::default();
        orders.rest.extend(b"group 12 3\nuntil 45");
        orders.obey();
        assert_eq!((orders.group, orders.deadline), (Some((12, 3)), BootTime::NEVER));
        orders.rest.extend(b"6\nnonsense\n");
        orders.obey();
        assert_eq!(orders.deadline, BootTime(456));
    }
}
