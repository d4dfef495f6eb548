//! A task that uses locks at random, in all ways that a user can.

use std::{sync::Arc, time::Duration};

use lockkit::{
    Error, ErrorKind, LockGuard, LockOptions, LossReason, Note, Renewal as Renewing, Result,
};
use tokio::time::{Instant, timeout};

use super::{dice::Dice, link::pause, process::Process};
use crate::{
    ear::Signal,
    history::{Event, Holder, Lock, Mode, Op, Outcome, Patience, Refusal, Renewal},
    worker::in_time,
};

/// The number of permits of the semaphore.
const LIMIT: u32 = 3;
/// The time for which a task still listens for the loss signal after it knows of its loss, or
/// should know of it. This is longer than the bound on the signal.
const DISBELIEF: Duration = Duration::from_secs(3);

/// Takes locks until the task has made as many claims as the scenario says.
pub(super) async fn run(process: Arc<Process>, dice: Dice) {
    for _ in 0..process.scenario.claims {
        pause(dice.ms(0..=30)).await;
        // If the store can't check for late requests, a look may show a claim long after its end.
        if process.scenario.store.not_after && dice.chance(60) {
            look(&process, &dice).await;
        }
        let wish = Wish::drawn(&process, &dice);
        if let Some(guard) = wish.ask(&process).await {
            let signal = Signal::new(guard.lost(), process.scenario.ear);
            Holding { process: &process, dice: &dice, wish: &wish, guard, signal }.hold().await;
        }
    }
}

/// One claim, before it is asked for.
struct Wish {
    op: Op,
    lock: Lock,
    mode: Mode,
    ttl: Duration,
    renewal: Renewal,
    patience: Patience,
    max_hold: Option<Duration>,
}

impl Wish {
    fn drawn(process: &Process, dice: &Dice) -> Self {
        let (lock, mode) = lock_of(dice);
        let ttl = dice.pick(&process.scenario.ttls);
        let patience = match dice.small(0..=9) {
            0..=1 => Patience::No,
            2..=4 => Patience::For(dice.ms(1..=400)),
            5..=6 => Patience::UntilDropped(dice.ms(0..=200)),
            _ => Patience::Unbounded,
        };
        let renewal = if dice.chance(550) { Renewal::Auto } else { Renewal::Manual };
        let max_hold = dice.chance(100).then(|| ttl + dice.up_to(ttl));
        Self { op: process.next_op(), lock, mode, ttl, renewal, patience, max_hold }
    }

    fn options(&self) -> LockOptions {
        let mut options = LockOptions::new().with_ttl(self.ttl).with_label(self.op.to_string());
        if let Some(max_hold) = self.max_hold {
            options = options.with_max_hold(max_hold);
        }
        options.with_renewal(match self.renewal {
            Renewal::Auto => Renewing::Auto,
            Renewal::Manual => Renewing::Manual,
        })
    }

    /// Asks for the lock, and records the answer.
    async fn ask(&self, process: &Process) -> Option<LockGuard> {
        let Self { op, mode, ttl, renewal, patience, max_hold, .. } = *self;
        process.write(Event::Asks {
            op,
            lock: self.lock.clone(),
            mode,
            ttl,
            renewal,
            patience,
            max_hold,
        });
        let answer = match patience {
            Patience::No => self.acquire(process, Some(Duration::ZERO)).await,
            Patience::For(wait) => self.acquire(process, Some(wait)).await,
            Patience::Unbounded => self.acquire(process, None).await,
            Patience::UntilDropped(after) => {
                match timeout(after, self.acquire(process, None)).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        process.write(Event::Refused { op, why: Refusal::Cancelled });
                        return None;
                    }
                }
            }
        };
        let why = match answer {
            Ok(Some(guard)) => {
                let owner = guard.owner().to_string();
                let token = guard.fencing_token().get();
                let until = until(process, &guard);
                process.write(Event::Granted { op, owner, token, until });
                return Some(guard);
            }
            Ok(None) if patience == Patience::No => Refusal::Busy,
            Ok(None) => Refusal::TimedOut,
            Err(error) if error.is_outcome_unknown() => Refusal::Unknown(error.to_string()),
            Err(error) => Refusal::Failed(error.to_string()),
        };
        process.write(Event::Refused { op, why });
        None
    }

    async fn acquire(
        &self,
        process: &Process,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>> {
        let locker = &process.locker;
        let options = self.options();
        match (&self.lock, self.mode) {
            (Lock::Mutex(name), _) => {
                let mutex = locker.mutex(name)?.with_options(options)?;
                match wait {
                    None => mutex.lock().await.map(Some),
                    Some(Duration::ZERO) => mutex.try_lock().await,
                    Some(wait) => in_time(mutex.lock_timeout(wait).await),
                }
            }
            (Lock::RwLock(name), Mode::Shared) => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                match wait {
                    None => lock.read().await.map(Some),
                    Some(Duration::ZERO) => lock.try_read().await,
                    Some(wait) => in_time(lock.read_timeout(wait).await),
                }
            }
            (Lock::RwLock(name), _) => {
                let lock = locker.rw_lock(name)?.with_options(options)?;
                match wait {
                    None => lock.write().await.map(Some),
                    Some(Duration::ZERO) => lock.try_write().await,
                    Some(wait) => in_time(lock.write_timeout(wait).await),
                }
            }
            (Lock::Semaphore { name, limit }, mode) => {
                let count = if let Mode::Permits(count) = mode { count } else { 1 };
                let semaphore = locker.semaphore(name, *limit)?.with_options(options)?;
                match wait {
                    None => semaphore.acquire_many(count).await.map(Some),
                    Some(Duration::ZERO) => semaphore.try_acquire_many(count).await,
                    Some(wait) => in_time(semaphore.acquire_many_timeout(count, wait).await),
                }
            }
        }
    }
}

fn lock_of(dice: &Dice) -> (Lock, Mode) {
    match dice.small(0..=9) {
        0..=4 => (Lock::Mutex("a".to_owned()), Mode::Exclusive),
        5 => (Lock::Mutex("b".to_owned()), Mode::Exclusive),
        6..=7 => {
            let mode = if dice.chance(600) { Mode::Shared } else { Mode::Exclusive };
            (Lock::RwLock("c".to_owned()), mode)
        }
        _ => {
            let count = dice.small(1..=LIMIT);
            (Lock::Semaphore { name: "d".to_owned(), limit: LIMIT }, Mode::Permits(count))
        }
    }
}

/// The end of the hold, on the clock of the history.
fn until(process: &Process, guard: &LockGuard) -> u64 {
    let now = process.link.world.log.at(Instant::now());
    now.saturating_add(super::log::nanos(guard.remaining()))
}

/// Looks at a lock, as an operator does.
async fn look(process: &Process, dice: &Dice) {
    let (lock, _) = lock_of(dice);
    let asked = Instant::now();
    let inspection = match &lock {
        Lock::Mutex(name) => match process.locker.mutex(name) {
            Ok(mutex) => mutex.inspect().await,
            Err(error) => Err(error),
        },
        Lock::RwLock(name) => match process.locker.rw_lock(name) {
            Ok(lock) => lock.inspect().await,
            Err(error) => Err(error),
        },
        Lock::Semaphore { name, limit } => match process.locker.semaphore(name, *limit) {
            Ok(semaphore) => semaphore.inspect().await,
            Err(error) => Err(error),
        },
    };
    let Ok(inspection) = inspection else { return };
    let log = &process.link.world.log;
    let holders = inspection.holders.iter().map(|holder| Holder {
        op: holder.label.as_deref().and_then(|label| label.parse().ok()),
        token: holder.token.map(lockkit::FencingToken::get),
        mode: match holder.mode {
            lockkit::spi::Mode::Shared => Mode::Shared,
            lockkit::spi::Mode::Permits { count, .. } => Mode::Permits(count.get()),
            _ => Mode::Exclusive,
        },
    });
    let holders = holders.collect();
    let answered = log.at(Instant::now());
    log.write_at(
        asked,
        process.number(),
        Event::Seen { lock, answered, holders, waiters: inspection.waiters },
    );
}

/// A lock that was granted.
struct Holding<'a> {
    process: &'a Process,
    dice: &'a Dice,
    wish: &'a Wish,
    guard: LockGuard,
    signal: Signal,
}

impl Holding<'_> {
    /// Uses the lock at random, always listens for the loss, and ends the hold in a random way.
    async fn hold(self) {
        let process = self.process;
        let op = self.wish.op;
        process.write(Event::Listens { op });
        let tell =
            |reason: LossReason| process.write(Event::Told { op, reason: reason.to_string() });
        self.signal.beside(tell, self.live()).await;
        self.end().await;
    }

    async fn live(&self) {
        let ttl = self.wish.ttl;
        if self.dice.chance(250) {
            self.stretch().await;
        }
        for _ in 0..self.dice.small(0..=3) {
            let rest = if !self.dice.chance(self.process.scenario.long_rests) {
                self.dice.ms(0..=25)
            } else if self.wish.renewal == Renewal::Auto {
                ttl + self.dice.up_to(ttl * 4)
            } else {
                ttl + self.dice.up_to(ttl)
            };
            tokio::select! {
                biased;
                reason = self.signal.wait() => return self.lose(Some(reason.to_string())).await,
                () = pause(rest) => {}
            }
            match self.dice.small(0..=9) {
                0..=2 => self.write().await,
                3 => self.renew(None).await,
                4 if self.process.scenario.store.extend => {
                    self.renew(Some(ttl * self.dice.small(1..=4))).await
                }
                5 => self.note().await,
                _ => {}
            }
            if !self.look() {
                return self.lose(None).await;
            }
        }
    }

    /// Extends the lease by hand, renews it for less, and lives on the longer lease.
    async fn stretch(&self) {
        if !self.process.scenario.store.extend || self.wish.renewal == Renewal::Auto {
            return;
        }
        self.renew(Some(self.wish.ttl * 3)).await;
        self.renew(None).await;
        pause(self.wish.ttl * 2).await;
    }

    /// Checks whether the lock is held, and records until when.
    fn look(&self) -> bool {
        let held = self.guard.is_held();
        if held {
            let op = self.wish.op;
            let until = until(self.process, &self.guard);
            self.process.write(Event::Holds { op, until });
        }
        held
    }

    async fn lose(&self, reason: Option<String>) {
        self.process.write(Event::Lost { op: self.wish.op, reason });
        // The history shows if the signal is absent.
        let _ = timeout(DISBELIEF, self.signal.wait()).await;
    }

    async fn renew(&self, lease: Option<Duration>) {
        let op = self.wish.op;
        self.process.write(Event::Renews { op, lease });
        let renewed = match lease {
            None => self.guard.renew().await,
            Some(lease) => self.guard.extend(lease).await.map(drop),
        };
        self.process
            .write(Event::Renewed { op, error: renewed.as_ref().err().map(Error::to_string) });
        if renewed.is_ok() {
            self.look();
        }
    }

    /// Writes notes in sequence, for longer than a lease if the locker renews it.
    async fn note(&self) {
        if !matches!(self.wish.lock, Lock::Mutex(_)) {
            return;
        }
        let time =
            if self.wish.renewal == Renewal::Auto { self.wish.ttl * 2 } else { self.wish.ttl / 4 };
        let end = Instant::now() + time;
        let mut note = Note::default();
        while Instant::now() < end && self.guard.is_held() {
            note = note.next("busy");
            // The next check sees a loss.
            let _ = self.guard.write_note(&note).await;
            pause(Duration::from_millis(1)).await;
        }
    }

    async fn write(&self) {
        let op = self.wish.op;
        // The register cannot judge readers and permits, because their writes come in any order of
        // tokens.
        if self.wish.mode != Mode::Exclusive {
            return;
        }
        let careless = self.dice.chance(300);
        if !careless && !self.look() {
            return;
        }
        self.process.write(Event::Writes { op, careless });
        pause(self.dice.ms(0..=4)).await;
        let token = self.guard.fencing_token().get();
        let accepted = self.process.register.compare(op, &self.wish.lock, token);
        pause(self.dice.ms(0..=4)).await;
        self.process.write(Event::Written { op, accepted });
    }

    async fn end(self) {
        let Self { process, dice, wish, guard, signal: _ } = self;
        let op = wish.op;
        process.write(Event::Releases { op });
        let outcome = match dice.small(0..=9) {
            0..=1 => {
                drop(guard);
                Outcome::Dropped
            }
            2 => match timeout(dice.ms(0..=6), guard.release()).await {
                Ok(released) => outcome_of(released),
                Err(_) => Outcome::Dropped,
            },
            _ => outcome_of(guard.release().await),
        };
        process.write(Event::Released { op, outcome });
    }
}

fn outcome_of(released: Result<()>) -> Outcome {
    match released {
        Ok(()) => Outcome::Freed,
        Err(error) if error.is_outcome_unknown() => Outcome::Unknown(error.to_string()),
        Err(error) if error.kind() == ErrorKind::Lost => Outcome::NotHeld,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
