//! Watches a job that runs, and stops it.

use std::{ffi::OsString, future::Future, io::stdin, mem, pin::pin, time::Duration};

use lockkit::LockGuard;
use rustix::{
    io::Errno,
    process::{
        Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
        kill_process_group, set_child_subreaper, wait, waitid,
    },
};
use tokio::time::{Instant, sleep};

use super::{
    Ended, Job,
    deadline::Deadline,
    job_processes::{JobProcesses, raw},
    keeper::keeper,
    processes::all,
    start::Started,
    terminal::Terminal,
    watchdog_handle::{Orders, WatchdogHandle},
};
use crate::{
    error::{Error, Result},
    group::{is_foreground, own_session},
    signals::{Signals, ends},
};

/// How often lockkit looks at processes that it stops, besides when a process ends.
const LOOK: Duration = Duration::from_millis(50);
/// How often lockkit looks at the job's processes where other processes may become its children.
const REMEMBER: Duration = Duration::from_secs(1);
/// How often lockkit looks again at a command that waits for the terminal.
const TERMINAL_LOOK: Duration = Duration::from_millis(200);
/// A killed process is gone by then, unless it waits for a disk.
const KILLED: Duration = Duration::from_secs(1);

/// A command, its watchdog and its terminal. If this is dropped, the job is killed.
pub(super) struct Running<'a> {
    job: &'a Job,
    guard: &'a LockGuard,
    signals: &'a Signals,
    deadline: Deadline,
    orders: Orders,
    /// `None` at the end, or while no watchdog runs.
    watchdog: Option<WatchdogHandle>,
    terminal: Option<Terminal>,
    /// The command is stopped until lockkit has the terminal and can give it to the command.
    /// lockkit looks for that itself: a shell that brings lockkit to the foreground may send no
    /// signal.
    waits_for_terminal: bool,
    started: Started,
    processes: JobProcesses,
    ended: Option<WaitStatus>,
    /// All processes of the job are gone.
    settled: bool,
}

impl<'a> Running<'a> {
    pub(super) fn start(job: &'a Job, guard: &'a LockGuard, signals: &'a Signals) -> Result<Self> {
        let failed = |error| Error::of("could not adopt orphans of the command", error);
        set_child_subreaper(Some(getpid())).map_err(failed)?;
        let mut deadline = Deadline::new(guard);
        deadline.refresh(guard);
        let mark = format!("{}-{}", guard.owner(), raw(getpid()));
        // Children that an earlier program left in this process before exec are not lockkit's to
        // stop.
        let spared = children();
        let folder = deadline.folder().map(ToOwned::to_owned);
        let keeper = keeper(guard)?;
        let adopts_strangers = !spared.is_empty() || raw(getpid()) == 1;
        let orders =
            Orders { mark: mark.clone(), spared: spared.clone(), adopts_strangers, folder, keeper };
        // This comes before the watchdog starts. Until the watchdog has its own session, it is in
        // our process group. It would look like a neighbour that needs the terminal.
        let terminal = Terminal::find();
        let ours =
            terminal.as_ref().filter(|terminal| terminal.is_ours() && !Terminal::has_neighbours());
        let mut watchdog = WatchdogHandle::start(&orders)?;
        watchdog.tell_deadline(deadline.for_watchdog())?;
        let environment: Vec<_> = deadline
            .path()
            .map(|path| ("LOCKKIT_DEADLINE_FILE", OsString::from(path)))
            .into_iter()
            .collect();
        let started = Started::start(job, &environment, &mark, ours)?;
        let processes = JobProcesses {
            root: Some(getpid()),
            spared: spared.into_iter().chain([raw(watchdog.pid)]).collect(),
            group: Some((raw(started.pid), own_session())),
            // All processes of the job descend from us, so a mark is not needed.
            mark: Some(mark).filter(|_| adopts_strangers),
            adopts_strangers,
            ..JobProcesses::default()
        };
        let watchdog = Some(watchdog);
        let mut running = Self {
            job,
            guard,
            signals,
            deadline,
            orders,
            watchdog,
            terminal,
            waits_for_terminal: false,
            started,
            processes,
            ended: None,
            settled: false,
        };
        running.tell_group()?;
        Ok(running)
    }

    pub(super) async fn until_end(mut self, asked: impl Future<Output = String>) -> Result<Ended> {
        let stopped_for = self.watch(asked).await?;
        let mut left = Ok(());
        if stopped_for.is_some() || self.has_leftovers().await {
            left = self.stop().await;
        }
        let ended = left.and_then(|()| match stopped_for {
            Some(ended) => Ok(ended),
            None if self.ended.is_some_and(WaitStatus::exited) => {
                Ok(self.started.refusal()?.unwrap_or_else(|| self.own_end()))
            }
            None => Ok(self.own_end()),
        });
        self.settle();
        ended
    }

    /// Runs until the command has ended (`None`), or until it must be stopped.
    async fn watch(&mut self, asked: impl Future<Output = String>) -> Result<Option<Ended>> {
        let guard = self.guard;
        let signals = self.signals;
        let before = self.job.grace.saturating_add(self.deadline.margin());
        let lost = guard.lost();
        let expiring = guard.expiring(before);
        let max_run = self.job.max_run;
        let mut asked = pin!(asked);
        let mut over = pin!(async {
            match max_run {
                Some(max_run) => sleep(max_run).await,
                None => std::future::pending().await,
            }
        });
        loop {
            // A watchdog that has ended is replaced at once.
            self.reap();
            if self.ended.is_some() {
                return Ok(None);
            }
            self.refresh()?;
            let mut pause = self.deadline.pause();
            if self.processes.adopts_strangers {
                self.processes.remember();
                pause = pause.min(REMEMBER);
            }
            if self.waits_for_terminal {
                self.give_terminal();
                pause = pause.min(TERMINAL_LOOK);
            }
            tokio::select! {
                biased;
                reason = lost.wait() => return Ok(Some(Ended::Lost(reason.to_string()))),
                _ = expiring.wait() => return Ok(Some(self.expired())),
                signal = signals.next() => self.forward(signal),
                reason = &mut asked => return Ok(Some(Ended::Asked(reason))),
                () = &mut over => return Ok(Some(Ended::MaxRun)),
                () = sleep(pause) => {}
            }
        }
    }

    fn expired(&self) -> Ended {
        if self.guard.is_held() {
            return Ended::Lost("lockkit could not renew it in time".to_owned());
        }
        Ended::Lost("no renewal was confirmed before the end of the lease".to_owned())
    }

    /// How a command ended that lockkit did not stop.
    fn own_end(&self) -> Ended {
        let killed = self.ended.and_then(WaitStatus::terminating_signal);
        if !self.guard.is_held() {
            return Ended::Lost("it ended before the command did".to_owned());
        }
        // lockkit did not run for a while, and its watchdog killed the command. lockkit did not
        // renew the lock meanwhile either.
        if killed == Some(Signal::KILL.as_raw()) && self.deadline.for_watchdog().left().is_zero() {
            return Ended::Lost(
                "lockkit was stopped, so its watchdog killed the command".to_owned(),
            );
        }
        match (killed, self.ended.and_then(WaitStatus::exit_status)) {
            (Some(signal), _) => Ended::Signaled(signal),
            (None, code) => {
                Ended::Exited(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
            }
        }
    }

    /// Asks all processes of the job to end. Kills those that are left after the grace, or earlier,
    /// so that all are gone before the lock ends.
    async fn stop(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut asked = false;
        loop {
            self.refresh_or_kill();
            self.reap();
            if self.processes.find().is_empty() {
                return Ok(());
            }
            if !mem::replace(&mut asked, true) {
                // A stopped process handles SIGTERM only after it is continued.
                self.processes.signal(&[Signal::TERM, Signal::CONT]);
            }
            let left =
                self.job.grace.saturating_sub(begun.elapsed()).min(self.deadline.for_us().left());
            if left.is_zero() || self.watchdog.is_none() {
                break;
            }
            tokio::select! {
                signal = self.signals.next() => self.forward(signal),
                () = sleep(left.min(LOOK)) => {}
            }
        }
        self.kill().await
    }

    /// # Errors
    /// Only processes of another user are left, and a signal asked lockkit not to wait for them.
    async fn kill(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut told = false;
        loop {
            self.refresh_or_kill();
            self.reap();
            if self.processes.signal(&[Signal::KILL]).is_empty() {
                return Ok(());
            }
            if !told && begun.elapsed() > KILLED {
                told = true;
                let me = raw(getpid());
                let advice = format!(
                    "lockkit keeps the lock while they live; end them, or make lockkit release the \
                     lock anyway (kill -TERM {me})"
                );
                self.processes.tell(self.job.reporter, &advice);
            }
            let pause = if told { LOOK } else { Duration::from_millis(2) };
            tokio::select! {
                // A signal before that report does not mean that lockkit should stop waiting.
                _ = self.signals.end() => if told { self.check_own()? },
                () = sleep(pause) => {}
            }
        }
    }

    /// # Errors
    /// Only processes of another user are left.
    fn check_own(&self) -> Result<()> {
        let [foreign, own] = self.processes.foreign_and_own();
        if foreign.is_empty() || !own.is_empty() {
            return Ok(());
        }
        Err(Error::new(format!(
            "a signal ended the wait for processes of another user, which still run: {foreign}"
        )))
    }

    /// Passes on a signal that is meant for the command. A terminal sends its signals to one
    /// process group, which may be lockkit's.
    fn forward(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::CONT => self.bring_forward(),
            Signal::TSTP => {
                self.job.reporter.say(
                    "lockkit can't suspend a command under a lock, because the lock would end",
                );
            }
            signal => {
                self.signal_group(signal);
                if ends(signal) {
                    // A stopped process handles the signal only after it is continued.
                    self.signal_group(Signal::CONT);
                }
            }
        }
    }

    /// lockkit was brought to the foreground, so the command gets the terminal.
    fn bring_forward(&mut self) {
        if !self.give_terminal() {
            self.signal_group(Signal::CONT);
        }
    }

    /// Gives the terminal to the command and continues it; returns false if lockkit does not have
    /// the terminal.
    fn give_terminal(&mut self) -> bool {
        let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_ours()) else {
            return false;
        };
        terminal.give(self.started.pid);
        self.signal_group(Signal::CONT);
        self.waits_for_terminal = false;
        true
    }

    /// Whether there is a terminal, and another process group has it.
    fn lacks_terminal(&self) -> bool {
        self.terminal.is_some() && !is_foreground(stdin(), raw(self.started.pid))
    }

    fn signal_group(&self, signal: Signal) {
        if self.ended.is_none() {
            let _ = kill_process_group(self.started.pid, signal);
        }
    }

    /// Takes note of all children that have ended or stopped.
    fn reap(&mut self) {
        // An error means that there are no children.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if let Some(signal) = status.stopping_signal() {
                if pid == self.started.pid {
                    self.stopped(signal);
                } else if self.watchdog.as_ref().is_some_and(|watchdog| watchdog.pid == pid) {
                    // If lockkit stopped next, only the watchdog would look after the job.
                    let _ = kill_process(pid, Signal::CONT);
                }
                continue;
            }
            self.processes.spared.retain(|spared| *spared != raw(pid));
            if pid == self.started.pid {
                self.ended = Some(status);
            } else if self.watchdog.as_ref().is_some_and(|watchdog| watchdog.pid == pid) {
                self.watchdog = None;
            }
        }
    }

    /// A command that its terminal has stopped must not hold the lock in vain.
    fn stopped(&mut self, signal: i32) {
        let reporter = self.job.reporter;
        let tty = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal);
        // Some programs, such as `top`, catch SIGTTOU and then send themselves SIGSTOP.
        let stopped_itself = signal == Signal::STOP.as_raw() && self.lacks_terminal();
        if tty || stopped_itself {
            // A shell takes the terminal from a job that it puts in the background.
            if self.give_terminal() || mem::replace(&mut self.waits_for_terminal, true) {
                return;
            }
            reporter.say(if tty {
                "the command waits for the terminal; bring lockkit to the foreground; until then, \
                 lockkit holds the lock"
            } else {
                "the command is stopped and has no terminal; bring lockkit to the foreground, or \
                 send the command SIGCONT; until then, lockkit holds the lock"
            });
        } else if signal == Signal::TSTP.as_raw() {
            self.signal_group(Signal::CONT);
            reporter.say(
                "lockkit continues the stopped command, because other clients wait for the lock",
            );
        } else {
            reporter.say("the command is stopped; until it continues, lockkit holds the lock");
        }
    }

    /// Whether the command left processes, which must not work without the lock. Some of them may
    /// be about to end, so this waits a moment.
    async fn has_leftovers(&mut self) -> bool {
        let begun = Instant::now();
        let mut left = self.processes.find();
        while !left.is_empty() && begun.elapsed() < LOOK && !self.deadline.for_us().left().is_zero()
        {
            sleep(Duration::from_millis(2)).await;
            self.reap();
            left = self.processes.find();
        }
        if left.is_empty() {
            return false;
        }
        let pids: Vec<_> = left.iter().map(|process| raw(process.pid).to_string()).collect();
        self.job.reporter.say(&format!(
            "the command ended and left processes behind; lockkit stops them before it releases \
             the lock: {}",
            pids.join(", ")
        ));
        true
    }

    /// Looks at the lease, and makes sure that the watchdog lives and knows the deadline.
    fn refresh(&mut self) -> Result<()> {
        let grown = self.deadline.refresh(self.guard);
        let at = self.deadline.for_watchdog();
        let told = match &mut self.watchdog {
            Some(watchdog) if grown => watchdog.tell_deadline(at),
            Some(_) => Ok(()),
            None => Err(Error::new("the watchdog ended early")),
        };
        if told.is_ok() {
            return Ok(());
        }
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.kill();
        }
        self.job
            .reporter
            .insist("the watchdog of the command ended early; lockkit starts another one");
        let mut watchdog = WatchdogHandle::start(&self.orders)?;
        watchdog.tell_deadline(at)?;
        self.processes.spared.push(raw(watchdog.pid));
        self.watchdog = Some(watchdog);
        self.tell_group()
    }

    /// Without a watchdog there is no grace.
    fn refresh_or_kill(&mut self) {
        if self.refresh().is_err() {
            self.watchdog = None;
        }
    }

    fn tell_group(&mut self) -> Result<()> {
        match (&mut self.watchdog, self.processes.group) {
            (Some(watchdog), Some((group, session))) => watchdog.tell_group(group, session),
            _ => Ok(()),
        }
    }

    fn settle(&mut self) {
        self.settled = true;
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.kill();
        }
        if let Some(terminal) = self.terminal.take() {
            let was_killed = self.ended.is_some_and(WaitStatus::signaled);
            let was_the_commands = terminal.take_back(self.started.pid, was_killed);
            if let Some(signal) =
                self.ended.and_then(WaitStatus::terminating_signal).filter(|_| was_the_commands)
            {
                Terminal::pass_on(signal);
            }
        }
    }
}

/// The children of this process. There are nearly always none, which one call shows.
fn children() -> Vec<i32> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if waitid(WaitId::All, look).is_err_and(|error| error == Errno::CHILD) {
        return Vec::new();
    }
    let ours = all().into_iter().filter(|process| process.parent == raw(getpid()));
    ours.map(|process| raw(process.pid)).collect()
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // The watchdog gets no farewell, so that it continues the work if this process ends here.
        self.processes.kill(1_000);
        self.reap();
        if let Some(terminal) = self.terminal.take() {
            terminal.take_back(self.started.pid, true);
        }
    }
}
