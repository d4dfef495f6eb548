//! Runs one turn under a lock: waits for it, runs the command while the lock is held, reports how
//! that ended, and releases the lock.

mod asked;
mod lock;
mod opening;
mod options;
mod tail;

use std::{cell::Cell, future::poll_fn, ops::ControlFlow, pin::pin, task::Poll, time::Duration};

use lockkit::{ErrorKind, Kind, LockGuard, LockOptions};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use self::{asked::release_requested, opening::Opened, options::options};
pub(crate) use self::{lock::Lock, tail::Tail};
pub(crate) use crate::waiting::Waited;
use crate::{
    cli::{JobArguments, StoreArguments, WaitArguments},
    environment,
    error::Result,
    exit::Exit,
    history::History,
    job::{self, Ended, Job, run_under},
    label,
    reporter::Reporter,
    signals::Signals,
    status::{Status, StatusFile, millis},
    store::{Address, Store},
    sweep::sweep,
    view::kinds,
    waiting::{Wanted, describe, wait},
};

/// How long the cleanup may take after a signal has ended a wait. After that only the lease removes
/// the rest.
const LEAVING: Duration = Duration::from_millis(500);

/// How long the store may take for a request that is not essential: a message about a run, or a
/// release, which the lease replaces.
const PATIENCE: Duration = Duration::from_secs(3);

/// The order that a turn carries out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    /// The name as the user typed it.
    pub(crate) name: &'a str,
    pub(crate) lock: Lock,
    /// How long to wait; `None` for an election, which has no bound.
    pub(crate) wait: Option<&'a WaitArguments>,
    pub(crate) hold_for: Duration,
    pub(crate) job: &'a JobArguments,
}

/// The store, the options and the signals of one run.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) store: Store,
    pub(crate) options: LockOptions,
    pub(crate) signals: Signals,
    /// The time from SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// The part of the wait's bound that is used up.
    spent: Duration,
    closed: Cell<bool>,
}

impl RunContext {
    /// Cleans up what earlier requests left in the store. A cleanup that has failed is not
    /// repeated.
    pub(crate) async fn close(&self) {
        if !self.closed.replace(true) {
            let _ = timeout(LEAVING, self.store.locker.shutdown()).await;
        }
    }
}

/// How a turn with the lock ended.
#[derive(Debug)]
pub(crate) struct TurnOutcome {
    pub(crate) exit: Exit,
    /// The command was not stopped for the sake of the lock.
    pub(crate) by_itself: bool,
    /// The signal that came after the command had ended.
    pub(crate) signal: Option<Signal>,
}

/// How the attempt to run a command ended.
#[derive(Debug)]
pub(crate) enum CommandOutcome<'a> {
    /// It ended, or could not be started.
    Ended(Result<Ended>, Exit, Tail<'a>),
    /// This signal came before the command was started.
    Interrupted(Signal),
}

/// The turn of one command.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) order: Order<'a>,
    pub(crate) reporter: Reporter,
    pub(crate) status: Status,
}

/// Runs `work`, and then writes the status file, however the turn ended.
pub(crate) async fn with_status(
    order: Order<'_>,
    reporter: Reporter,
    work: impl AsyncFnOnce(&mut Turn<'_>) -> Result<Exit>,
) -> Result<Exit> {
    let file = order.job.status_file.as_deref().map(StatusFile::new).transpose()?;
    let status = Status { name: order.name.to_owned(), ..Status::default() };
    let mut turn = Turn { order, reporter, status };
    let ended = work(&mut turn).await;
    // The sweep comes after the command, so that the command does not wait for it.
    sweep();
    let Some(file) = file else { return ended };
    if let Err(error) = &ended {
        (turn.status.outcome, turn.status.reason) = ("failed", Some(error.to_string()));
    }
    turn.status.code = ended.as_ref().map_or(Exit::Failed, |exit| *exit).code();
    match turn.status.write(&file) {
        // The result of the command is more important than this error.
        Err(error) if ended.is_ok() => turn.reporter.insist(&error.to_string()),
        _ => {}
    }
    ended
}

impl Turn<'_> {
    /// Connects, and checks what the job needs. If a signal comes first, it ends the turn.
    pub(crate) async fn open(
        &mut self,
        store: &StoreArguments,
    ) -> Result<ControlFlow<Exit, RunContext>> {
        let address = Address::new(store)?;
        let signals = Signals::listen()?;
        let began = Instant::now();
        let opened = tokio::select! {
            biased;
            opened = opening::open(&address, self.order.wait, self.order.job.ttl, self.reporter) => Ok(opened),
            signal = signals.end() => Err(signal),
        };
        let waited = match &opened {
            Ok(Ok(opened)) => opened.spent,
            _ => began.elapsed(),
        };
        self.status.waited_ms += millis(waited);
        let Opened { store, spent } = match opened {
            Ok(opened) => opened?,
            Err(signal) => return Ok(ControlFlow::Break(self.interrupted(signal))),
        };
        let (options, grace) = options(self.order.job, &store)?;
        Ok(ControlFlow::Continue(RunContext {
            store,
            options,
            signals,
            grace,
            spent,
            closed: Cell::new(false),
        }))
    }

    pub(crate) async fn wait(&mut self, context: &RunContext) -> Result<Waited> {
        let began = Instant::now();
        let bound = match self.order.wait {
            Some(wait) if wait.nonblock => Some(Duration::ZERO),
            Some(wait) => wait
                .wait
                .or(context.options.wait())
                .map(|bound| bound.saturating_sub(context.spent)),
            None => None,
        };
        let name = context.store.name(self.order.lock.kind(), self.order.name)?;
        let wanted = Wanted {
            locker: &context.store.locker,
            name: &name,
            short: self.order.name,
            bound,
            reporter: self.reporter,
        };
        let locking = self.order.lock.lock(
            &context.store.locker,
            &name,
            &context.options,
            bound,
            self.reporter,
        );
        let waited = wait(wanted, &context.signals, locking).await;
        self.status.waited_ms += millis(began.elapsed());
        waited
    }

    /// The result of a turn that did not get the lock.
    pub(crate) async fn not_held(&mut self, waited: Waited, context: &RunContext) -> Result<Exit> {
        match waited {
            Waited::Held(guard) => {
                drop(guard);
                context.close().await;
                Ok(Exit::Done)
            }
            Waited::Busy(who) => {
                self.status.outcome = "busy";
                self.status.reason = Some(who.clone());
                self.tell_busy(&who);
                Ok(Exit::Busy(self.order.wait.map_or(Exit::BUSY, |wait| wait.conflict_exit_code)))
            }
            Waited::Signal(signal) => {
                // This also removes the wait's entry from the queue.
                context.close().await;
                Ok(self.interrupted(signal))
            }
        }
    }

    fn interrupted(&mut self, signal: Signal) -> Exit {
        self.status.outcome = "interrupted";
        self.status.signal = Some(signal.as_raw());
        Exit::Signal(signal.as_raw())
    }

    /// Runs the command, and releases the lock.
    pub(crate) async fn hold(
        &mut self,
        guard: LockGuard,
        context: &RunContext,
        history: &mut History<'_>,
    ) -> Result<TurnOutcome> {
        match self.work(&guard, context, history).await {
            CommandOutcome::Ended(ended, exit, mut tail) => {
                if let Some(outcome) = ended.as_ref().ok().and_then(outcome) {
                    // Half of the lease stays for the release, which must come while the lock is
                    // held.
                    let bound = PATIENCE.min(tail.lease_left() / 2);
                    let _ = tail.before_lease_end(bound, history.end(&guard, &outcome)).await;
                }
                self.finish(guard, context, ended, exit, tail).await
            }
            CommandOutcome::Interrupted(signal) => {
                drop(guard);
                let exit = self.not_held(Waited::Signal(signal), context).await?;
                Ok(TurnOutcome { exit, by_itself: true, signal: Some(signal) })
            }
        }
    }

    /// Runs the command.
    pub(crate) async fn work<'s>(
        &mut self,
        guard: &LockGuard,
        context: &'s RunContext,
        history: &mut History<'_>,
    ) -> CommandOutcome<'s> {
        let began = Instant::now();
        self.status.token = Some(guard.fencing_token().get());
        self.tell_grant(guard);
        let mut environment = environment::of_lock(self.order.name, guard, &context.store);
        environment.extend(history.slot().map(|slot| ("LOCKKIT_SLOT", slot.into())));
        let job = Job::new(self.order.job, context.grace, environment, self.reporter);
        // Before the command runs, lockkit does not look for an ask. After that, signals are for
        // the command.
        let runs = Cell::new(false);
        let asked = async {
            runs.set(true);
            release_requested(guard).await
        };
        let mut interrupted = pin!(context.signals.end());
        let mut interrupted = poll_fn(|context| match runs.get() {
            true => Poll::Pending,
            false => interrupted.as_mut().poll(context),
        });
        let mut running = pin!(run_under(&job, guard, &context.signals, asked));
        // Only locks of `run` have several kinds.
        let mut is_warned = history.slot().is_some() || self.order.lock.kind() == Kind::Election;
        // The command does not wait for this note.
        let mut beginning = pin!(history.begin(guard));
        let mut is_written = false;
        let name = self.order.name;
        let reporter = self.reporter;
        let mut renewals =
            pin!(context.store.renewals.report(name, guard, context.grace, reporter));
        let mut others =
            pin!(warn_of_other_kinds(&context.store, name, self.order.lock.kind(), reporter));
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut running => break ended,
                () = &mut beginning, if !is_written => is_written = true,
                () = &mut renewals => {}
                () = &mut others, if !is_warned => is_warned = true,
                signal = &mut interrupted => return CommandOutcome::Interrupted(signal),
            }
        };
        let mut tail = Tail::new(&context.signals, guard);
        self.status.ran_ms = Some(millis(began.elapsed()));
        if !is_written {
            let bound = PATIENCE.min(tail.lease_left() / 4);
            let _ = tail.before_lease_end(bound, beginning).await;
        }
        let ended = ended.map(|ended| match (ended, context.store.renewals.failure()) {
            (Ended::Lost(why), Some(failure)) => Ended::Lost(format!("{why}: {failure}")),
            (ended, _) => ended,
        });
        let exit = ended.as_ref().map_or(Exit::Failed, |ended| self.told(ended));
        CommandOutcome::Ended(ended, exit, tail)
    }

    fn tell_grant(&self, guard: &LockGuard) {
        if self.reporter.json {
            let token = guard.fencing_token().get();
            let waited = self.status.waited_ms;
            let fields = [
                ("name", self.order.name.into()),
                ("token", token.into()),
                ("waited_ms", waited.into()),
            ];
            self.reporter.event("held", fields);
        } else {
            self.reporter.remark(&format!(
                "{:?} is held, token {}",
                self.order.name,
                guard.fencing_token()
            ));
        }
    }

    fn tell_busy(&self, who: &str) {
        let name = self.order.name;
        if self.reporter.json {
            let waited = self.status.waited_ms;
            self.reporter.event(
                "busy",
                [("name", name.into()), ("reason", who.into()), ("waited_ms", waited.into())],
            );
        } else {
            self.reporter.say(&format!("{name:?} is busy: {who}"));
        }
    }

    /// Keeps the lock as long as `--hold-for` asks for, and releases it.
    pub(crate) async fn finish(
        &mut self,
        guard: LockGuard,
        context: &RunContext,
        ended: Result<Ended>,
        exit: Exit,
        mut tail: Tail<'_>,
    ) -> Result<TurnOutcome> {
        let by_itself = !matches!(ended, Ok(Ended::Lost(_) | Ended::Asked(_)));
        if ended.is_ok() && by_itself && tail.signal().is_none() {
            self.hold_on(&guard, context).await;
        }
        let exit = self.release(guard, ended.map(|_| exit), &mut tail).await?;
        Ok(TurnOutcome { exit, by_itself, signal: tail.signal() })
    }

    /// The command's name, without its path.
    pub(crate) fn program(&self) -> String {
        label::program(&job::command(self.order.job))
    }

    /// Reports how the command ended, unless the command itself shows that.
    fn told(&mut self, ended: &Ended) -> Exit {
        let program = self.order.job.command.first();
        let program = program.map_or("/bin/sh".into(), |program| program.to_string_lossy());
        let name = self.order.name;
        let (outcome, exit, reason) = match ended {
            Ended::Exited(code) => ("exited", Exit::Child(*code), None),
            Ended::Signaled(signal) => {
                self.status.signal = Some(*signal);
                ("signaled", Exit::Signal(*signal), None)
            }
            Ended::Lost(why) => (
                "lost",
                Exit::Lost,
                Some(format!("{name:?} was lost, so lockkit stops the command: {why}")),
            ),
            Ended::Asked(why) => (
                "asked",
                Exit::Lost,
                Some(format!("{name:?} was asked for, so lockkit stops the command: {why}")),
            ),
            Ended::MaxRun => (
                "max_run",
                Exit::MaxRun,
                Some("--max-run has passed, so lockkit stops the command".into()),
            ),
            Ended::NotExecutable(why) => (
                "not_executable",
                Exit::NotExecutable,
                Some(format!("could not execute {program}: {why}")),
            ),
            Ended::NotFound => {
                ("not_found", Exit::NotFound, Some(format!("there is no command {program}")))
            }
        };
        if let Some(reason) = &reason {
            self.reporter.insist(reason);
        }
        (self.status.outcome, self.status.reason) = (outcome, reason);
        exit
    }

    /// Holds the lock longer, for hosts whose clocks differ. A signal or an operator who asks for
    /// the lock ends that.
    async fn hold_on(&self, guard: &LockGuard, context: &RunContext) {
        let ran = Duration::from_millis(self.status.ran_ms.unwrap_or_default());
        let left = self.order.hold_for.saturating_sub(ran);
        if left.is_zero() {
            return;
        }
        tokio::select! {
            () = sleep(left) => {}
            _ = guard.lost() => {}
            _ = context.signals.end() => {}
            _ = release_requested(guard) => {}
        }
    }

    /// Releases the lock, and returns the exit. If the lock was lost while the command ran, that is
    /// more important than the command's success. A lease that ended only after the command is no
    /// fault of the command.
    async fn release(
        &mut self,
        guard: LockGuard,
        exit: Result<Exit>,
        tail: &mut Tail<'_>,
    ) -> Result<Exit> {
        let known_lost = exit.as_ref().is_ok_and(|exit| *exit == Exit::Lost);
        let released = tail.within(PATIENCE, guard.release()).await;
        let is_lost = matches!(&released, Some(Err(error)) if error.kind() == ErrorKind::Lost);
        match released {
            _ if is_lost && (known_lost || exit.is_err()) => exit,
            _ if is_lost && tail.lease_left().is_zero() => {
                let name = self.order.name;
                self.reporter.remark(&format!("the lease of {name:?} ended before the release"));
                exit
            }
            _ if is_lost => {
                let reason = format!(
                    "{:?} was lost while the command ran, so another command may have run at the \
                     same time; the command has ended by itself",
                    self.order.name
                );
                self.reporter.insist(&reason);
                (self.status.outcome, self.status.reason) = ("lost", Some(reason));
                Ok(Exit::Lost)
            }
            Some(Err(error)) if !known_lost => {
                self.reporter
                    .insist(&format!("could not confirm the release of the lock: {error}"));
                exit
            }
            None if !known_lost => {
                let text = "could not confirm the release of the lock: the store did not answer; \
                            at the latest, the lock ends with its lease";
                self.reporter.insist(text);
                exit
            }
            _ => exit,
        }
    }
}

/// Reports other kinds in which the same name is locked now. Those are other locks, but a user may
/// believe that they exclude this one.
async fn warn_of_other_kinds(store: &Store, name: &str, kind: Kind, reporter: Reporter) {
    let others =
        [Kind::Mutex, Kind::RwLock, Kind::Semaphore].into_iter().filter(|other| *other != kind);
    for other in others.filter(|other| kinds(&store.locker).contains(other)) {
        let Ok(full) = store.name(other, name) else { continue };
        // If the store does not answer, the job ends soon enough.
        let Ok(inspection) = store.locker.inspect(&full).await else { continue };
        if !inspection.holders.is_empty() {
            reporter.say(&format!(
                "the {other} {name:?} is {}, but it is a different lock from this {kind}, and the \
                 two do not exclude each other; see `lockkit help run` for --write",
                describe(&inspection)
            ));
        }
    }
}

/// How a run ended, for its history. `None` if the lock was lost, because only its holder may write
/// beside it.
pub(crate) fn outcome(ended: &Ended) -> Option<String> {
    Some(match ended {
        Ended::Exited(code) => format!("exit {code}"),
        Ended::Signaled(signal) => format!("signal {signal}"),
        Ended::Asked(_) => "stopped: asked for".to_owned(),
        Ended::MaxRun => "stopped: --max-run".to_owned(),
        Ended::NotExecutable(_) => "not executable".to_owned(),
        Ended::NotFound => "not found".to_owned(),
        Ended::Lost(_) => return None,
    })
}
