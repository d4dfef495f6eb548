//! A runner: one process that runs the slots of the schedule in order, by its own clock.

use std::{
    fs::File,
    io::Write as _,
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use libtest_mimic::Failed;
use lockkit::{ErrorKind, ErrorStatus, Hold, LockOptions, Locker, OnceOutcome, OnceRun};
use lockkit_fixture::end_with_parent;
use rand::RngExt as _;
use tokio::{runtime::Builder, time::sleep};

use super::history::{Event, Line};

/// The lease, unless the store has a longer shortest one.
const TTL: Duration = Duration::from_secs(2);
/// The pause after an error, as from a server that restarts.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the work of a slot takes that the test waits for, so that a kill hits it.
const LONG: Duration = Duration::from_millis(500);
/// How long the work of any other slot takes at most.
const SHORT_MS: u64 = 3;

struct Runner {
    number: usize,
    /// By how many milliseconds its clock is ahead.
    ahead: i64,
    slots: Range<u64>,
    /// The work of each slot after so many others is long.
    step: u64,
    file: File,
}

/// Plays a runner.
pub(crate) fn run(words: &[String]) -> Result<(), Failed> {
    let [url, number, ahead, first, end, step, file] = words else {
        return Err("what is this process to be?".into());
    };
    end_with_parent();
    let runner = Runner {
        number: number.parse()?,
        ahead: ahead.parse()?,
        slots: first.parse()?..end.parse()?,
        step: step.parse()?,
        file: File::options().append(true).open(file)?,
    };
    Builder::new_current_thread().enable_all().build()?.block_on(runner.work(url))
}

/// The present time by a clock that is ahead by this much, in milliseconds since 1970.
pub(super) fn now(ahead: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    u64::try_from(now).unwrap().saturating_add_signed(ahead)
}

impl Runner {
    async fn work(&self, url: &str) -> Result<(), Failed> {
        let locker = connect(url).await?;
        let ttl = TTL.max(locker.descriptor().min_ttl);
        let label = format!("runner {}", self.number);
        let options = LockOptions::new().with_ttl(ttl).with_label(label);
        let once = locker.once("schedule")?.with_options(options)?;
        let mut slot = self.slots.start;
        while slot < self.slots.end {
            self.until(slot).await;
            match once.run(slot, |hold, earlier| self.slot(slot, hold, earlier)).await {
                Ok(outcome) => slot = self.next(slot, outcome),
                Err(error) => {
                    if error.status() == ErrorStatus::Permanent && error.kind() != ErrorKind::Lost {
                        eprintln!("runner {}: {error:?}", self.number);
                    }
                    sleep(PAUSE).await;
                }
            }
        }
        println!("bye");
        Ok(())
    }

    /// Waits until a slot begins by its own clock.
    async fn until(&self, slot: u64) {
        loop {
            let left = slot.saturating_sub(now(self.ahead));
            if left == 0 {
                return;
            }
            sleep(Duration::from_millis(left)).await;
        }
    }

    /// The work of one slot. Returns the token of the run.
    async fn slot(&self, slot: u64, hold: Hold, earlier: Option<OnceRun>) -> Result<u64, ()> {
        let token = hold.fencing_token().get();
        let earlier = earlier.filter(|run| run.slot == slot).map_or(0, |run| run.token.get());
        self.write(Event::Begins, slot, token, earlier);
        let is_long = (slot - self.slots.start).is_multiple_of(self.step);
        let short = Duration::from_millis(rand::rng().random_range(0..=SHORT_MS));
        sleep(if is_long { LONG } else { short }).await;
        self.write(Event::Ends, slot, token, earlier);
        Ok(token)
    }

    /// The slot that this runner asks for next. No runner leaves a slot before it knows that the
    /// slot is finished.
    fn next(&self, slot: u64, outcome: OnceOutcome<u64, ()>) -> u64 {
        match outcome {
            OnceOutcome::Ran { output: token, .. } => {
                self.write(Event::Recorded, slot, token, 0);
                slot + 1
            }
            OnceOutcome::Done(_) => slot + 1,
            OnceOutcome::Passed(run) if run.finished.is_some() => run.slot + 1,
            // Another runner has begun that slot, so it knew that all slots before are finished.
            OnceOutcome::Passed(run) => run.slot,
            OnceOutcome::Unrecorded { .. } | OnceOutcome::Failed { .. } | OnceOutcome::Busy(_) => {
                slot
            }
        }
    }

    /// Writes the whole line in one call, so that the lines of all runners stay apart.
    fn write(&self, event: Event, slot: u64, token: u64, earlier: u64) {
        let line = format!("{}\n", Line { event, runner: self.number, slot, token, earlier });
        (&self.file).write_all(line.as_bytes()).unwrap();
    }
}

async fn connect(url: &str) -> lockkit::Result<Locker> {
    loop {
        match lockkit::connect(url).await {
            Err(error) if error.status() != ErrorStatus::Permanent => sleep(PAUSE).await,
            locker => return locker,
        }
    }
}
