//! Runs `lockkit once`: at most one completed run for each slot, and one run at a time.
//!
//! The holder writes beside the lock which slots are done, under the token of the run. Each later
//! holder reads that.

use std::{
    io::{IsTerminal as _, stderr},
    ops::ControlFlow,
    pin::pin,
    time::{Duration, SystemTime},
};

use lockkit::{LockGuard, LockName};
use rustix::process::Signal;
use tokio::time::{Instant, timeout};

use crate::{
    cli::{OnFail, OnceArguments, OutputArguments, StoreArguments},
    error::{Error, Result},
    exit::Exit,
    history::History,
    job::Ended,
    journal::{self, Journal, Record, RecordOutcome, unix_ms},
    reporter::Reporter,
    slot::{MOST_EARLY, Schedule, Slot},
    status::millis,
    store::Store,
    turn::{CommandOutcome, Lock, Order, RunContext, Tail, Turn, Waited, outcome, with_status},
};

pub(crate) async fn once(
    arguments: OnceArguments,
    store: &StoreArguments,
    output: &OutputArguments,
) -> Result<Exit> {
    let OnceArguments { name, wait, job, .. } = &arguments;
    let order = Order { name, lock: Lock::Mutex, wait: Some(wait), hold_for: Duration::ZERO, job };
    with_status(order, Reporter::new(output), async |turn| {
        let schedule = Schedule::new(&arguments)?;
        let context = match turn.open(store).await? {
            ControlFlow::Continue(context) => context,
            ControlFlow::Break(exit) => return Ok(exit),
        };
        check(&context.store)?;
        let taken = {
            let taking = Once::take(&arguments, &schedule, turn, &context);
            tokio::select! {
                biased;
                taken = taking => taken?,
                signal = context.signals.end() => SlotOutcome::Not(Waited::Signal(signal)),
            }
        };
        match taken {
            SlotOutcome::Slot(once, guard, journal) => {
                let done = once.run(turn, &context, guard, *journal).await;
                context.close().await;
                done
            }
            SlotOutcome::Done(done) => {
                context.close().await;
                Ok(nothing_to_do(turn, &done))
            }
            SlotOutcome::Not(waited) => turn.not_held(waited, &context).await,
        }
    })
    .await
}

/// How the wait for a slot ended.
enum SlotOutcome<'a> {
    /// The lock is held, and the slot is still to be done.
    Slot(Once<'a>, LockGuard, Box<Journal>),
    Done(Done),
    Not(Waited),
}

/// Refuses a store that can't remember slots, because each host would run each slot there.
fn check(store: &Store) -> Result<()> {
    let can = store.locker.capabilities();
    if can.notes && can.time {
        return Ok(());
    }
    let name = store.locker.descriptor().name;
    Err(Error::new(format!(
        "a {name} store can't record which slots are done, because it does not support notes; use \
         another store for `once`"
    )))
}

struct Once<'a> {
    arguments: &'a OnceArguments,
    name: LockName,
    slot: Slot,
    /// The store's clock at the beginning, in milliseconds since 1970.
    now: u64,
    began: Instant,
}

/// A command that has ended, and the work that is left.
struct Work<'a> {
    ended: Result<Ended>,
    exit: Exit,
    tail: Tail<'a>,
}

/// How long lockkit tries to undo the mark that a slot is done. A store that answers needs less.
/// With the rest of the work, lockkit still ends within a second after a signal.
const UNDOING: Duration = Duration::from_millis(150);

/// How far ahead a tick may be, in seconds. No slot of now begins further ahead.
fn far_ahead() -> i64 {
    i64::try_from(MOST_EARLY.as_secs()).unwrap_or(i64::MAX)
}

/// Why there is nothing to do.
type Done = String;

impl<'a> Once<'a> {
    /// Waits for the lock of the current slot, unless that slot is done.
    ///
    /// # Cancel safety
    /// Cancel safe: the lock is released in the background.
    async fn take(
        arguments: &'a OnceArguments,
        schedule: &Schedule,
        turn: &mut Turn<'_>,
        context: &RunContext,
    ) -> Result<SlotOutcome<'a>> {
        let time = context.store.locker.time().await?;
        let name = context.store.name(lockkit::Kind::Mutex, &arguments.name)?;
        let once = Self {
            arguments,
            name,
            slot: schedule.slot_at(time)?,
            now: unix_ms(time),
            began: Instant::now(),
        };
        // Most hosts come late. A look without the lock shows them that the slot is done.
        if let Some(done) = once.done(&once.journal(&context.store).await?.record)? {
            return Ok(SlotOutcome::Done(done));
        }
        let guard = match turn.wait(context).await? {
            Waited::Held(guard) => guard,
            ended => return Ok(SlotOutcome::Not(ended)),
        };
        let journal = once.journal(&context.store).await?;
        if let Some(done) = once.done(&journal.record)? {
            release_early(turn, guard).await;
            return Ok(SlotOutcome::Done(done));
        }
        Ok(SlotOutcome::Slot(once, guard, Box::new(journal)))
    }

    async fn run(
        &self,
        turn: &mut Turn<'_>,
        context: &RunContext,
        guard: LockGuard,
        mut journal: Journal,
    ) -> Result<Exit> {
        let before = journal.record.clone();
        let history = History::new(
            &context.store,
            turn.reporter,
            turn.program(),
            Some(self.slot.to_string()),
        );
        let (claimed, signal) = {
            let mut claiming = pin!(self.claim(&mut journal, &history, &guard));
            tokio::select! {
                biased;
                claimed = &mut claiming => (Some(claimed?), None),
                // The store may apply a claim even if it is dropped midway. Then the slot could
                // count as done without a run.
                signal = context.signals.end() => {
                    (timeout(UNDOING, claiming).await.ok().transpose()?, Some(signal))
                }
            }
        };
        let claimed = match (claimed, signal) {
            (Some(claimed), _) => claimed,
            (None, Some(signal)) => {
                return self.interrupted(turn, context, guard, signal, RecordOutcome::Lost).await;
            }
            (None, None) => RecordOutcome::Lost,
        };
        if claimed != RecordOutcome::Written {
            let reason =
                format!("{:?} was lost before lockkit started the command", turn.order.name);
            turn.reporter.insist(&reason);
            (turn.status.outcome, turn.status.reason) = ("lost", Some(reason));
            return Ok(Exit::Lost);
        }
        let mut history = history.begun(journal);
        if let Some(signal) = signal {
            let undone = self.undo(&mut history, &guard, &before, "interrupted").await;
            return self.interrupted(turn, context, guard, signal, undone).await;
        }
        match turn.work(&guard, context, &mut history).await {
            CommandOutcome::Ended(ended, exit, tail) => {
                let work = Work { ended, exit, tail };
                self.end(turn, context, guard, history, &before, work).await
            }
            CommandOutcome::Interrupted(signal) => {
                let undone = self.undo(&mut history, &guard, &before, "interrupted").await;
                self.interrupted(turn, context, guard, signal, undone).await
            }
        }
    }

    /// Undoes the mark that a slot is done, if its command was never begun.
    async fn undo(
        &self,
        history: &mut History<'_>,
        guard: &LockGuard,
        before: &Record,
        outcome: &str,
    ) -> RecordOutcome {
        let Some(journal) = history.journal() else { return RecordOutcome::Lost };
        let token = guard.fencing_token().get();
        let at = unix_ms(SystemTime::now());
        let write = journal.write(guard, |record| {
            record.end(token, at, outcome);
            record.restore_done(before);
        });
        match timeout(UNDOING, write).await {
            Ok(Ok(kept)) => kept,
            _ => RecordOutcome::Lost,
        }
    }

    /// Ends because of a signal that came before the command was started.
    async fn interrupted(
        &self,
        turn: &mut Turn<'_>,
        context: &RunContext,
        guard: LockGuard,
        signal: Signal,
        undone: RecordOutcome,
    ) -> Result<Exit> {
        if undone != RecordOutcome::Written && self.arguments.on_fail == OnFail::Done {
            self.tell_stays_done(turn);
        }
        drop(guard);
        turn.not_held(Waited::Signal(signal), context).await
    }

    fn tell_stays_done(&self, turn: &Turn<'_>) {
        turn.reporter.insist(&format!(
            "the slot {} may count as done, although lockkit ran no command: the store did not \
             answer in time",
            self.slot
        ));
    }

    /// Writes that the run begins; with `--on-fail done`, also that its slot is done. If there is
    /// no room for that, this fails before the command runs in vain.
    async fn claim(
        &self,
        journal: &mut Journal,
        history: &History<'_>,
        guard: &LockGuard,
    ) -> Result<RecordOutcome> {
        let mut after = journal.record.clone();
        after.begin(history.run(guard));
        self.mark(&mut after);
        if !after.has_room() {
            return Err(journal::no_room(&self.name));
        }
        let run = history.run(guard);
        let write = journal.write(guard, |record| {
            record.begin(run);
            if self.arguments.on_fail == OnFail::Done {
                self.mark(record);
            }
        });
        write.await
    }

    async fn end(
        &self,
        turn: &mut Turn<'_>,
        context: &RunContext,
        guard: LockGuard,
        mut history: History<'_>,
        before: &Record,
        Work { ended, exit, mut tail }: Work<'_>,
    ) -> Result<Exit> {
        let written = match &ended {
            Ok(ended) => {
                let writing = self.written(&mut history, &guard, before, ended);
                let written = tail.before_lease_end(Duration::MAX, writing).await;
                written.unwrap_or_else(|| Err(Error::new("the store did not answer in time")))
            }
            Err(_) => Ok(RecordOutcome::Written),
        };
        if was_not_begun(&ended)
            && self.arguments.on_fail == OnFail::Done
            && !matches!(written, Ok(RecordOutcome::Written))
        {
            self.tell_stays_done(turn);
        }
        let succeeded = matches!(ended, Ok(Ended::Exited(0)));
        let ran = turn.finish(guard, context, ended, exit, tail).await?;
        let unwritten =
            |why: &str| format!("the command succeeded, but its slot {} {why}", self.slot);
        match written {
            _ if !succeeded || self.arguments.on_fail == OnFail::Done => Ok(ran.exit),
            Ok(RecordOutcome::Written) => Ok(ran.exit),
            Ok(kept) => {
                let reason = unwritten(match kept {
                    RecordOutcome::Perhaps => {
                        "may stay open, because the lock was lost while lockkit recorded the slot; \
                         then the command runs again"
                    }
                    _ => {
                        "stays open, because the lock was lost before lockkit recorded the slot; \
                         the command runs again"
                    }
                });
                turn.reporter.insist(&reason);
                (turn.status.outcome, turn.status.reason) = ("lost", Some(reason));
                Ok(Exit::Lost)
            }
            Err(error) => {
                Err(Error::of(unwritten("may stay open, and then the command runs again"), error))
            }
        }
    }

    /// Writes how the run ended. The slot is done if the command succeeded, and not done if it
    /// could not be executed.
    async fn written(
        &self,
        history: &mut History<'_>,
        guard: &LockGuard,
        before: &Record,
        ended: &Ended,
    ) -> Result<RecordOutcome> {
        let Some(outcome) = outcome(ended) else { return Ok(RecordOutcome::Lost) };
        let Some(journal) = history.journal() else { return Ok(RecordOutcome::Lost) };
        let token = guard.fencing_token().get();
        let at = unix_ms(SystemTime::now());
        let write = journal.write(guard, |record| {
            record.end(token, at, &outcome);
            match ended {
                Ended::NotExecutable(_) | Ended::NotFound => record.restore_done(before),
                // Written again, because the slot is remembered from the end of the run on.
                _ if self.arguments.on_fail == OnFail::Done => self.mark(record),
                Ended::Exited(0) => self.mark(record),
                _ => {}
            }
        });
        write.await
    }

    fn mark(&self, record: &mut Record) {
        match &self.slot {
            Slot::Tick(tick) => record.tick_done(*tick),
            Slot::Key(key) => {
                let keep = u64::try_from(self.arguments.keep.as_millis()).unwrap_or(u64::MAX);
                // A key is remembered from the end of the run on, so that a long run shortens
                // nothing.
                let now = self.now.saturating_add(millis(self.began.elapsed()));
                record.key_done(key, now, now.saturating_add(keep));
            }
        }
    }

    /// Why the slot needs no run; `None` if it needs one.
    ///
    /// # Errors
    /// The last slot that is done is so far ahead that the store's clock must have been wrong.
    /// Without an error no slot would run for a long time, and no user would notice.
    fn done(&self, record: &Record) -> Result<Option<Done>> {
        if let (Slot::Tick(tick), Some(last)) = (&self.slot, record.last_tick())
            && last > tick.max(&self.seconds()).saturating_add(far_ahead())
        {
            return Err(Error::new(format!(
                "the last finished slot of {}, {}, is far ahead of the store's clock, so lockkit \
                 runs nothing until then; was the clock wrong? use another name, or remove the \
                 note beside the lock",
                self.name,
                Slot::Tick(last)
            )));
        }
        let done = match &self.slot {
            Slot::Tick(tick) => record.is_tick_done(*tick),
            Slot::Key(key) => record.is_key_done(key, self.now),
        };
        let by = |run: &journal::Run| {
            format!(" by process {} on {}, token {}", run.pid, run.host, run.token)
        };
        let by = record.run_of(&self.slot.to_string()).map(by).unwrap_or_default();
        Ok(done.then(|| format!("slot {} is done{by}", self.slot)))
    }

    fn seconds(&self) -> i64 {
        i64::try_from(self.now / 1_000).unwrap_or(i64::MAX)
    }

    async fn journal(&self, store: &Store) -> Result<Journal> {
        let journal = Journal::read(&store.locker, &self.name).await?;
        journal.ok_or_else(|| Error::new("the store no longer supports notes"))
    }
}

/// Whether the command was not even begun, because it could not be executed.
const fn was_not_begun(ended: &Result<Ended>) -> bool {
    matches!(ended, Ok(Ended::NotExecutable(_) | Ended::NotFound))
}

fn nothing_to_do(turn: &mut Turn<'_>, done: &str) -> Exit {
    let text = format!("{:?}: {done}", turn.order.name);
    // A log of cron stays empty. A user at a terminal wants to know why nothing ran.
    if stderr().is_terminal() {
        turn.reporter.say(&text);
    } else {
        turn.reporter.remark(&text);
    }
    (turn.status.outcome, turn.status.reason) = ("done", Some(done.to_owned()));
    Exit::Done
}

async fn release_early(turn: &Turn<'_>, guard: LockGuard) {
    if let Err(error) = guard.release().await {
        turn.reporter.insist(&format!("could not confirm the release of the lock: {error}"));
    }
}
