//! One turn under a lock: wait for it, run the command while it is held, say how that ended, give the lock back.

mod lock;

use std::time::Duration;

use lockkit::{LockGuard, LockOptions, Released, spi::LeaseScope};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::lock::Lock;
pub(crate) use crate::waiting::Waited;
use crate::{
    asking,
    cli::{JobArguments, StoreArguments, WaitArguments},
    environment,
    error::Result,
    exit::Exit,
    history::History,
    job::{self, Ended, Job, check_grace, run_under},
    label,
    signals::Signals,
    status::{Status, StatusFile, millis},
    store::Store,
    voice::Voice,
    waiting::{Wanted, wait},
};

/// What is left behind by a wait that a signal has ended is taken back within this, or the lease ends it.
const LEAVING: Duration = Duration::from_millis(700);

/// The grace of a job whose lock has room for it.
const GRACE: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    /// As it was typed.
    pub(crate) name: &'a str,
    pub(crate) lock: Lock,
    /// How long to wait; an election is waited for without an end.
    pub(crate) wait: Option<&'a WaitArguments>,
    pub(crate) hold_for: Duration,
    pub(crate) job: &'a JobArguments,
}

/// What it is done with.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) store: Store,
    pub(crate) options: LockOptions,
    pub(crate) signals: Signals,
    /// From SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
}

impl Shop {
    /// Takes back what was left to be done.
    pub(crate) async fn close(&self) {
        let _ = timeout(LEAVING, self.store.locker.shutdown()).await;
    }
}

/// How a turn with the lock ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    /// Not stopped for the sake of the lock.
    pub(crate) by_itself: bool,
}

/// The turn of one command.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) order: Order<'a>,
    pub(crate) voice: Voice,
    pub(crate) status: Status,
}

/// Does what is to be done in a turn, and writes the status file at the end, however it ended.
pub(crate) async fn with_status(
    order: Order<'_>,
    voice: Voice,
    work: impl AsyncFnOnce(&mut Turn<'_>) -> Result<Exit>,
) -> Result<Exit> {
    let file = order.job.status_file.as_deref().map(StatusFile::new).transpose()?;
    let status = Status { name: order.name.to_owned(), ..Status::default() };
    let mut turn = Turn { order, voice, status };
    let ended = work(&mut turn).await;
    let Some(file) = file else { return ended };
    if let Err(error) = &ended {
        (turn.status.outcome, turn.status.reason) = ("failed", Some(error.to_string()));
    }
    turn.status.code = ended.as_ref().map_or(Exit::Failed, |exit| *exit).code();
    match turn.status.write(&file) {
        // How the command ended is worth more than a word about it.
        Err(error) if ended.is_ok() => turn.voice.insist(&error.to_string()),
        _ => {}
    }
    ended
}

impl Turn<'_> {
    /// Connects, and checks what the job needs.
    pub(crate) async fn open(&self, store: &StoreArguments) -> Result<Shop> {
        let store = Store::connect(store).await?;
        let (options, grace) = options(self.order.job, &store)?;
        Ok(Shop { store, options, grace, signals: Signals::listen()? })
    }

    /// Waits for the lock.
    pub(crate) async fn wait(&mut self, shop: &Shop) -> Result<Waited> {
        let began = Instant::now();
        let bound = match self.order.wait {
            Some(wait) if wait.nonblock => Some(Duration::ZERO),
            Some(wait) => wait.wait.or(shop.options.wait),
            None => None,
        };
        let name = shop.store.name(self.order.lock.kind(), self.order.name)?;
        let wanted = Wanted {
            locker: &shop.store.locker,
            name: &name,
            short: self.order.name,
            bound,
            voice: self.voice,
        };
        let locking = self.order.lock.lock(&shop.store.locker, &name, &shop.options, bound, self.voice);
        let waited = wait(wanted, &shop.signals, locking).await;
        self.status.waited_ms += millis(began.elapsed());
        waited
    }

    /// What becomes of a turn that did not get the lock.
    pub(crate) async fn not_held(&mut self, waited: Waited, shop: &Shop) -> Result<Exit> {
        match waited {
            Waited::Held(guard) => {
                drop(guard);
                shop.close().await;
                Ok(Exit::Done)
            }
            Waited::Busy(who) => {
                self.status.outcome = "busy";
                self.status.reason = Some(who.clone());
                self.voice.say(&format!("{:?} is busy: {who}", self.order.name));
                Ok(Exit::Busy(self.order.wait.map_or(Exit::BUSY, |wait| wait.conflict_exit_code)))
            }
            Waited::Signal(signal) => {
                self.status.outcome = "interrupted";
                self.status.signal = Some(signal.as_raw());
                // What was left in the queue is taken back meanwhile.
                shop.close().await;
                Ok(Exit::Signal(signal.as_raw()))
            }
        }
    }

    /// Runs the command, and gives the lock back.
    pub(crate) async fn hold(
        &mut self,
        guard: LockGuard,
        shop: &Shop,
        history: &mut History<'_>,
    ) -> Result<Ran> {
        let (ended, exit) = self.work(&guard, shop, history).await;
        if let Some(outcome) = ended.as_ref().ok().and_then(outcome) {
            history.end(&guard, &outcome).await;
        }
        self.finish(guard, shop, ended, exit).await
    }

    /// Runs the command.
    pub(crate) async fn work(
        &mut self,
        guard: &LockGuard,
        shop: &Shop,
        history: &mut History<'_>,
    ) -> (Result<Ended>, Exit) {
        let began = Instant::now();
        self.status.token = Some(guard.fencing_token().get());
        self.voice.remark(&format!("{:?} is held, token {}", self.order.name, guard.fencing_token()));
        let mut environment = environment::of_lock(self.order.name, guard, &shop.store);
        environment.extend(history.slot().map(|slot| ("LOCKKIT_SLOT", slot.into())));
        let job = Job::new(self.order.job, shop.grace, environment, self.voice);
        let asked = asking::asked(&shop.store.locker, guard, shop.options.ttl);
        // The command does not wait for a word about it.
        let (ended, ()) = tokio::join!(run_under(&job, guard, &shop.signals, asked), history.begin(guard));
        self.status.ran_ms = Some(millis(began.elapsed()));
        let exit = ended.as_ref().map_or(Exit::Failed, |ended| self.told(ended));
        (ended, exit)
    }

    /// Gives the lock back once it may be.
    pub(crate) async fn finish(
        &mut self,
        guard: LockGuard,
        shop: &Shop,
        ended: Result<Ended>,
        exit: Exit,
    ) -> Result<Ran> {
        let by_itself = !matches!(ended, Ok(Ended::Lost(_) | Ended::Asked(_)));
        if ended.is_ok() && by_itself {
            self.hold_on(&guard, shop).await;
        }
        let exit = self.release(guard, ended.map(|_| exit)).await?;
        Ok(Ran { exit, by_itself })
    }

    /// The command's name, without its path.
    pub(crate) fn program(&self) -> String {
        label::program(&job::command(self.order.job))
    }

    /// Says how it ended, unless the command can do so itself.
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
            Ended::Lost(why) => {
                ("lost", Exit::Lost, Some(format!("{name:?} was lost, and the command is stopped: {why}")))
            }
            Ended::Asked(why) => (
                "asked",
                Exit::Lost,
                Some(format!("{name:?} was asked for, and the command is stopped: {why}")),
            ),
            Ended::MaxRun => {
                ("max_run", Exit::MaxRun, Some("--max-run has passed, and the command is stopped".into()))
            }
            Ended::NotExecutable(why) => {
                ("not_executable", Exit::NotExecutable, Some(format!("{program} can't be executed: {why}")))
            }
            Ended::NotFound => ("not_found", Exit::NotFound, Some(format!("there is no command {program}"))),
        };
        if let Some(reason) = &reason {
            self.voice.insist(reason);
        }
        (self.status.outcome, self.status.reason) = (outcome, reason);
        exit
    }

    /// For hosts whose clocks differ. Whoever interrupts it, or asks for the lock, has waited enough.
    async fn hold_on(&self, guard: &LockGuard, shop: &Shop) {
        let ran = Duration::from_millis(self.status.ran_ms.unwrap_or_default());
        let left = self.order.hold_for.saturating_sub(ran);
        if left.is_zero() {
            return;
        }
        tokio::select! {
            () = sleep(left) => {}
            _ = guard.lost() => {}
            _ = shop.signals.end() => {}
            _ = asking::asked(&shop.store.locker, guard, shop.options.ttl) => {}
        }
    }

    /// That the lock was not ours any more is worth more than that the command succeeded.
    async fn release(&mut self, guard: LockGuard, exit: Result<Exit>) -> Result<Exit> {
        let known_lost = exit.as_ref().is_ok_and(|exit| *exit == Exit::Lost);
        match guard.release().await {
            Ok(Released::NotHeld) if !known_lost && exit.is_ok() => {
                let reason = format!(
                    "{:?} was lost while the command ran, though it has ended by itself: another may have run beside it",
                    self.order.name
                );
                self.voice.insist(&reason);
                (self.status.outcome, self.status.reason) = ("lost", Some(reason));
                Ok(Exit::Lost)
            }
            Err(error) if !known_lost => {
                self.voice.insist(&format!("whether the lock was released is unknown: {error}"));
                exit
            }
            _ => exit,
        }
    }
}

/// How a run ended, for its history; nothing if the lock is not ours to write beside any more.
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

/// The options of a lock that a job runs under, and the job's grace.
fn options(arguments: &JobArguments, store: &Store) -> Result<(LockOptions, Duration)> {
    let mut options = store.locker.defaults().clone();
    if let Some(ttl) = arguments.ttl {
        options.ttl = ttl;
    }
    let label = || label::of_command(&job::command(arguments));
    options.label = Some(arguments.label.clone().unwrap_or_else(label).into());
    let descriptor = store.locker.descriptor();
    let lease = match descriptor.lease_scope {
        _ if descriptor.exceptions.no_lease => Duration::MAX,
        // A grant lasts for what is left of the session.
        LeaseScope::Session => options.ttl.min(descriptor.min_ttl),
        _ => options.ttl,
    };
    let grace = arguments.grace.unwrap_or_else(|| GRACE.min(lease / 3));
    check_grace(grace, lease)?;
    Ok((options, grace))
}
