//! `lockkit once`: at most one completed run for each slot, one at a time.
//!
//! What is done is written beside the lock by its holder, under the token of the run: whoever holds the lock later, reads
//! it.

use std::time::{Duration, SystemTime};

use lockkit::{LockGuard, LockName};

use crate::{
    cli::{OnFail, OnceArguments, OutputArguments, StoreArguments},
    error::{Error, Result},
    exit::Exit,
    history::History,
    job::Ended,
    journal::{self, Journal, Kept, Record, unix_ms},
    slot::{Schedule, Slot},
    store::Store,
    turn::{Lock, Order, Shop, Turn, Waited, outcome, with_status},
    voice::Voice,
};

pub(crate) async fn once(
    arguments: OnceArguments,
    store: &StoreArguments,
    output: &OutputArguments,
) -> Result<Exit> {
    let OnceArguments { name, wait, job, .. } = &arguments;
    let order = Order { name, lock: Lock::Mutex, wait: Some(wait), hold_for: Duration::ZERO, job };
    with_status(order, Voice::new(output), async |turn| {
        let schedule = Schedule::new(&arguments)?;
        let shop = turn.open(store).await?;
        check(&shop.store)?;
        let once = Once::begin(&arguments, &schedule, &shop.store).await?;
        let done = once.run(turn, &shop).await;
        shop.close().await;
        done
    })
    .await
}

/// A store in which nothing can be remembered would have each host run each slot.
fn check(store: &Store) -> Result<()> {
    let can = store.locker.capabilities();
    if can.notes && can.time {
        return Ok(());
    }
    let name = store.locker.descriptor().name;
    Err(Error::new(format!("a {name} store can't remember which slots are done: `once` does not work on it")))
}

struct Once<'a> {
    arguments: &'a OnceArguments,
    name: LockName,
    slot: Slot,
    /// The store's clock when it began, in milliseconds since 1970.
    now: u64,
}

/// No slot begins so early, in seconds, that this could be one of now.
const FAR_AHEAD: i64 = 3_600;

/// Why there is nothing to do.
type Done = String;

impl<'a> Once<'a> {
    async fn begin(arguments: &'a OnceArguments, schedule: &Schedule, store: &Store) -> Result<Self> {
        let time = store.locker.time().await?;
        let name = store.name(lockkit::Kind::Mutex, &arguments.name)?;
        Ok(Self { arguments, name, slot: schedule.slot_at(time)?, now: unix_ms(time) })
    }

    async fn run(&self, turn: &mut Turn<'_>, shop: &Shop) -> Result<Exit> {
        // Most hosts come late, and need no lock to see that.
        if let Some(done) = self.done(&self.journal(&shop.store).await?.record)? {
            return Ok(nothing_to_do(turn, &done));
        }
        let guard = match turn.wait(shop).await? {
            Waited::Held(guard) => guard,
            ended => return turn.not_held(ended, shop).await,
        };
        let mut journal = self.journal(&shop.store).await?;
        if let Some(done) = self.done(&journal.record)? {
            release_early(turn, guard).await;
            return Ok(nothing_to_do(turn, &done));
        }
        let history = History::new(&shop.store, turn.voice, turn.program(), Some(self.slot.to_string()));
        if self.claim(&mut journal, &history, &guard).await? == Kept::Lost {
            let reason = format!("{:?} was lost before the command was started", turn.order.name);
            turn.voice.insist(&reason);
            (turn.status.outcome, turn.status.reason) = ("lost", Some(reason));
            return Ok(Exit::Lost);
        }
        self.work(turn, shop, guard, history.begun(journal)).await
    }

    /// Writes that the run begins; with `--on-fail done`, that its slot is done. Before anything is done in vain.
    async fn claim(&self, journal: &mut Journal, history: &History<'_>, guard: &LockGuard) -> Result<Kept> {
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

    async fn work(
        &self,
        turn: &mut Turn<'_>,
        shop: &Shop,
        guard: LockGuard,
        mut history: History<'_>,
    ) -> Result<Exit> {
        let (ended, exit) = turn.work(&guard, shop, &mut history).await;
        let written = match &ended {
            Ok(ended) => self.written(&mut history, &guard, ended).await,
            Err(_) => Ok(Kept::Written),
        };
        let succeeded = matches!(ended, Ok(Ended::Exited(0)));
        let ran = turn.finish(guard, shop, ended, exit).await?;
        let unwritten = |why: &str| format!("the command has succeeded, and its slot {} {why}", self.slot);
        match written {
            _ if !succeeded || self.arguments.on_fail == OnFail::Done => Ok(ran.exit),
            Ok(Kept::Written) => Ok(ran.exit),
            Ok(Kept::Lost) => {
                let reason =
                    unwritten("stays open, as the lock was lost before that was written: it will run again");
                turn.voice.insist(&reason);
                (turn.status.outcome, turn.status.reason) = ("lost", Some(reason));
                Ok(Exit::Lost)
            }
            Err(error) => Err(Error::of(unwritten("may stay open and run again"), error)),
        }
    }

    /// Writes how the run ended, and that its slot is done if it succeeded.
    async fn written(&self, history: &mut History<'_>, guard: &LockGuard, ended: &Ended) -> Result<Kept> {
        let Some(outcome) = outcome(ended) else { return Ok(Kept::Lost) };
        let Some(journal) = history.journal() else { return Ok(Kept::Lost) };
        let (token, at) = (guard.fencing_token().get(), unix_ms(SystemTime::now()));
        let write = journal.write(guard, |record| {
            record.end(token, at, &outcome);
            if *ended == Ended::Exited(0) {
                self.mark(record);
            }
        });
        write.await
    }

    fn mark(&self, record: &mut Record) {
        match &self.slot {
            Slot::Tick(tick) => record.tick_done(*tick),
            Slot::Key(key) => {
                let keep = u64::try_from(self.arguments.keep.as_millis()).unwrap_or(u64::MAX);
                record.key_done(key, self.now, self.now.saturating_add(keep));
            }
        }
    }

    /// Why there is nothing to do, if there is nothing.
    ///
    /// # Errors
    /// The last slot is so far ahead that the store's clock must have been wrong: for long nothing would be run, and
    /// nobody would know.
    fn done(&self, record: &Record) -> Result<Option<Done>> {
        if let (Slot::Tick(tick), Some(last)) = (&self.slot, record.last_tick())
            && last > tick.max(&self.seconds()).saturating_add(FAR_AHEAD)
        {
            return Err(Error::new(format!(
                "the last slot of {} that is done, {}, is far ahead of the store's clock: nothing is run until then; \
                 was the clock wrong? use another name, or remove the note beside the lock",
                self.name,
                Slot::Tick(last)
            )));
        }
        let done = match &self.slot {
            Slot::Tick(tick) => record.is_tick_done(*tick),
            Slot::Key(key) => record.is_key_done(key, self.now),
        };
        let by = |run: &journal::Run| format!(" by process {} on {}, token {}", run.pid, run.host, run.token);
        let by = record.run_of(&self.slot.to_string()).map(by).unwrap_or_default();
        Ok(done.then(|| format!("slot {} is done{by}", self.slot)))
    }

    fn seconds(&self) -> i64 {
        i64::try_from(self.now / 1_000).unwrap_or(i64::MAX)
    }

    async fn journal(&self, store: &Store) -> Result<Journal> {
        let journal = Journal::read(&store.locker, &self.name).await?;
        journal.ok_or_else(|| Error::new("the store has no notes any more"))
    }
}

fn nothing_to_do(turn: &mut Turn<'_>, done: &str) -> Exit {
    turn.voice.remark(&format!("{:?}: {done}", turn.order.name));
    (turn.status.outcome, turn.status.reason) = ("done", Some(done.to_owned()));
    Exit::Done
}

async fn release_early(turn: &Turn<'_>, guard: LockGuard) {
    if let Err(error) = guard.release().await {
        turn.voice.insist(&format!("whether the lock was released is unknown: {error}"));
    }
}
