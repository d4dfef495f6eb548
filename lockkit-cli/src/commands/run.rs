//! `lockkit run`

use std::{future::pending, time::Duration};

use lockkit::{Kind, LockGuard, LockName, LockOptions, Released, spi::LeaseScope};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    cli::{JobArguments, OutputArguments, RunArguments, StoreArguments},
    environment,
    error::Result,
    exit::Exit,
    job::{self, Ended, Job, check_grace, run_under},
    label,
    signals::Signals,
    status::{Status, StatusFile, millis},
    store::Store,
    voice::Voice,
    waiting::{Waited, Wanted, wait},
};

/// What is left behind by a wait that a signal has ended is taken back within this, or the lease ends it.
const LEAVING: Duration = Duration::from_millis(700);

pub(crate) async fn run(
    arguments: RunArguments,
    store: &StoreArguments,
    output: &OutputArguments,
) -> Result<Exit> {
    let file = arguments.job.status_file.as_deref().map(StatusFile::new).transpose()?;
    let mut run = Run::new(&arguments, Voice::new(output));
    let ended = run.run(store).await;
    let Some(file) = file else { return ended };
    if let Err(error) = &ended {
        (run.status.outcome, run.status.reason) = ("failed", Some(error.to_string()));
    }
    run.status.code = ended.as_ref().map_or(Exit::Failed, |exit| *exit).code();
    match run.status.write(&file) {
        // How the command ended is worth more than a word about it.
        Err(error) if ended.is_ok() => run.voice.insist(&error.to_string()),
        _ => {}
    }
    ended
}

struct Run<'a> {
    arguments: &'a RunArguments,
    voice: Voice,
    status: Status,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a RunArguments, voice: Voice) -> Self {
        let status = Status { name: arguments.name.clone(), ..Status::default() };
        Self { arguments, voice, status }
    }

    async fn run(&mut self, store: &StoreArguments) -> Result<Exit> {
        let began = Instant::now();
        let store = Store::connect(store).await?;
        let options = options(&self.arguments.job, &store)?;
        let signals = Signals::listen()?;
        let waited = self.wait(&store, options, &signals).await;
        self.status.waited_ms = millis(began.elapsed());
        let name = &self.arguments.name;
        match waited? {
            Waited::Held(guard) => self.hold(guard, &store, &signals).await,
            Waited::Busy(who) => {
                self.status.outcome = "busy";
                self.status.reason = Some(who.clone());
                self.voice.say(&format!("{name:?} is busy: {who}"));
                Ok(Exit::Busy(self.arguments.wait.conflict_exit_code))
            }
            Waited::Signal(signal) => {
                self.status.outcome = "interrupted";
                self.status.signal = Some(signal.as_raw());
                // What was left in the queue is taken back meanwhile.
                let _ = timeout(LEAVING, store.locker.shutdown()).await;
                Ok(Exit::Signal(signal.as_raw()))
            }
        }
    }

    async fn wait(&self, store: &Store, options: LockOptions, signals: &Signals) -> Result<Waited> {
        let bound =
            if self.arguments.wait.nonblock { Some(Duration::ZERO) } else { self.arguments.wait.wait };
        let bound = bound.or(options.wait);
        let name = self.name(store)?;
        let wanted = Wanted {
            locker: &store.locker,
            name: &name,
            short: &self.arguments.name,
            bound,
            voice: self.voice,
        };
        wait(wanted, signals, self.lock(store, &name, options, bound)).await
    }

    fn name(&self, store: &Store) -> Result<LockName> {
        let RunArguments { shared, write, permits, name, .. } = self.arguments;
        let kind = match (shared | write, permits) {
            (true, _) => Kind::RwLock,
            (false, Some(_)) => Kind::Semaphore,
            (false, None) => Kind::Mutex,
        };
        store.name(kind, name)
    }

    /// Nothing if it is not free in time; a bound of zero asks once.
    async fn lock(
        &self,
        store: &Store,
        name: &LockName,
        options: LockOptions,
        bound: Option<Duration>,
    ) -> lockkit::Result<Option<LockGuard>> {
        let (locker, name) = (&store.locker, name.as_str());
        let once = bound == Some(Duration::ZERO);
        match (self.arguments.shared, self.arguments.write, self.arguments.permits) {
            (true, ..) => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_read().await,
                    Some(bound) => lock.read_timeout(bound).await,
                    None => lock.read().await.map(Some),
                }
            }
            (_, true, _) => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_write().await,
                    Some(bound) => lock.write_timeout(bound).await,
                    None => lock.write().await.map(Some),
                }
            }
            (.., Some(permits)) => {
                let lock = locker.semaphore(name, permits.limit)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_acquire_many(permits.count).await,
                    Some(bound) => lock.acquire_many_timeout(permits.count, bound).await,
                    None => lock.acquire_many(permits.count).await.map(Some),
                }
            }
            (.., None) => {
                let lock = locker.mutex(name)?.with_options(options)?;
                match bound {
                    _ if once => lock.try_lock().await,
                    Some(bound) => lock.lock_timeout(bound).await,
                    None => lock.lock().await.map(Some),
                }
            }
        }
    }

    /// Runs the command, and gives the lock back.
    async fn hold(&mut self, guard: LockGuard, store: &Store, signals: &Signals) -> Result<Exit> {
        let began = Instant::now();
        self.status.token = Some(guard.fencing_token().get());
        self.voice.remark(&format!("{:?} is held, token {}", self.arguments.name, guard.fencing_token()));
        let environment = environment::of_lock(&self.arguments.name, &guard, store);
        let job = Job::new(&self.arguments.job, environment, self.voice);
        // history
        let ended = run_under(&job, &guard, signals, pending()).await;
        self.status.ran_ms = Some(millis(began.elapsed()));
        let exit = ended.map(|ended| self.told(ended));
        if exit.is_ok() {
            self.hold_on(&guard, began, signals).await;
        }
        // history
        let exit = self.release(guard, exit).await;
        // What the release left to be done.
        let _ = timeout(LEAVING, store.locker.shutdown()).await;
        exit
    }

    /// Says how it ended, unless the command can do so itself.
    fn told(&mut self, ended: Ended) -> Exit {
        let program = self.arguments.job.command.first();
        let program = program.map_or("/bin/sh".into(), |program| program.to_string_lossy());
        let name = &self.arguments.name;
        let (outcome, exit, reason) = match ended {
            Ended::Exited(code) => ("exited", Exit::Child(code), None),
            Ended::Signaled(signal) => {
                self.status.signal = Some(signal);
                ("signaled", Exit::Signal(signal), None)
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

    /// For hosts whose clocks differ. Whoever interrupts it has waited enough.
    async fn hold_on(&self, guard: &LockGuard, began: Instant, signals: &Signals) {
        let left = self.arguments.hold_for.unwrap_or_default().saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::select! {
            () = sleep(left) => {}
            _ = guard.lost() => {}
            _ = signals.end() => {}
        }
    }

    /// That the lock was not ours any more is worth more than that the command succeeded.
    async fn release(&mut self, guard: LockGuard, exit: Result<Exit>) -> Result<Exit> {
        let known_lost = exit.as_ref().is_ok_and(|exit| *exit == Exit::Lost);
        match guard.release().await {
            Ok(Released::NotHeld) if !known_lost && exit.is_ok() => {
                let reason = format!(
                    "{:?} was lost while the command ran, though it has ended by itself: another may have run beside it",
                    self.arguments.name
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

/// The options of a lock that a job runs under.
pub(crate) fn options(arguments: &JobArguments, store: &Store) -> Result<LockOptions> {
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
    check_grace(arguments.grace, lease)?;
    Ok(options)
}
