//! Asks the server on behalf of all waiters of this process, for all locks.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lockkit_core::{Clock, ErrorKind, Kind, LockName, Result, Tick, spi::Mode};
use tokio::{runtime::Handle, sync::Notify, time};

use super::{
    look::{ALMOST_OVER, Looks, OVER},
    record::Look,
    store::Store,
};
use crate::{
    error,
    schedule::{MOST_NAMES, Pace},
    waiting::polling::{Batch, LookLimits, Turn},
};

/// How often the task shows that it is alive.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// How long due names wait for the look that is under way. After that, the look is late, and the
/// names get another look.
const LATE: Duration = Duration::from_millis(50);
/// How many looks are under way at most. A small pool has fewer. There is more than one only if the
/// server is slow or silent.
const MOST_LOOKS: usize = 4;

/// Makes sure that a task polls for the waiters of a lock. There is one task for all locks, for as
/// long as there are waiters. It reads many names with one statement, and rarely writes, because a
/// write locks the row that a holder wants to release. Its only write is the record that this
/// client waits.
pub(crate) fn poll(store: &Arc<Store>, name: &LockName) {
    // Without a runtime there are no waiters either.
    let Ok(runtime) = Handle::try_current() else { return };
    let Some((number, signal)) = store.waiters.start_polling(name, runtime.id()) else { return };
    let task = PollerTask { store: Arc::clone(store), number, signal };
    #[expect(clippy::disallowed_methods, reason = "one task for all locks that are waited for")]
    runtime.spawn(task.work());
}

/// Marks the presence of the task. When the task ends, even by the shutdown of its runtime, the
/// next waiter starts another.
struct PollerTask {
    store: Arc<Store>,
    number: u64,
    /// Wakes the task when there is a waiter for another name.
    signal: Arc<Notify>,
}

impl Drop for PollerTask {
    fn drop(&mut self) {
        self.store.waiters.abandon(self.number);
    }
}

/// The answer to a request.
enum Answer {
    Looked { batch: Batch, looks: Result<Looks> },
    Wanted(Result<()>),
}

/// The requests that are under way, and how many there may be.
struct Progress {
    /// When each look was sent.
    looks: Vec<Tick>,
    most_looks: usize,
    /// How many names a look may have. There are fewer after a failed look, because one of its
    /// names or their number may have been the cause.
    most_names: usize,
    is_wanting: bool,
    /// Before this time, the task does not record again that the client waits.
    quiet: Tick,
}

impl Progress {
    fn new(pool_size: usize, now: Tick) -> Self {
        let most_looks = (pool_size / 2).clamp(1, MOST_LOOKS);
        Self {
            looks: Vec::new(),
            most_looks,
            most_names: MOST_NAMES,
            is_wanting: false,
            quiet: now,
        }
    }

    /// Which names the next look may have; none if there may be no look now. The last look is kept
    /// for hasty waiters. The other looks may be lost, and then they end only when their most
    /// patient waiters give up.
    fn limits(&self, now: Tick) -> LookLimits {
        let are_late = self.looks.iter().all(|sent| sent.after(LATE) <= now);
        let may_look = are_late && self.looks.len() < self.most_looks;
        let is_last = !self.looks.is_empty() && self.looks.len() + 1 == self.most_looks;
        LookLimits { names: if may_look { self.most_names } else { 0 }, only_hasty: is_last }
    }

    fn begin(&mut self, batch: &Batch) {
        self.looks.push(batch.sent);
    }

    fn end(&mut self, batch: &Batch, is_answered: bool) {
        if let Some(index) = self.looks.iter().position(|sent| *sent == batch.sent) {
            self.looks.remove(index);
        }
        self.most_names = if is_answered {
            (self.most_names + self.most_names / 8 + 1).min(MOST_NAMES)
        } else {
            (batch.names.len() / 2).max(1)
        };
    }

    /// When there may be something to do, if the next name is due at `due`.
    fn next(&self, now: Tick, due: Tick) -> Tick {
        let due = if self.limits(now).names > 0 { due } else { Tick::NEVER };
        let late = self.looks.iter().map(|sent| sent.after(LATE)).filter(|late| *late > now).min();
        due.min(late.unwrap_or(Tick::NEVER)).min(now.after(HEARTBEAT))
    }
}

impl PollerTask {
    async fn work(self) {
        let mut progress = Progress::new(self.store.pool.config().pool_size, Clock::Boot.now());
        let mut requests = FuturesUnordered::<BoxFuture<'_, Answer>>::new();
        loop {
            let now = Clock::Boot.now();
            let due = match self.store.waiters.turn(self.number, now, progress.limits(now)) {
                Turn::Ask(batch) => {
                    progress.begin(&batch);
                    requests.push(self.look(batch).boxed());
                    continue;
                }
                Turn::Over if requests.is_empty() => {
                    // A new waiter may have come in between.
                    if self.store.waiters.resign(self.number) {
                        return;
                    }
                    continue;
                }
                Turn::Over => Tick::NEVER,
                Turn::Wait(due) => due,
            };
            let pause = now.until(progress.next(now, due));
            tokio::select! {
                // Answers are handled before any answer counts as missing.
                biased;
                Some(answer) = requests.next() => {
                    if let Some((names, patience)) = self.heed(answer, &mut progress) {
                        requests.push(self.want(names, patience).boxed());
                    }
                }
                () = self.signal.notified() => {}
                () = time::sleep(pause) => {}
            }
        }
    }

    async fn look(&self, batch: Batch) -> Answer {
        let patience = batch.patience;
        let looks = time::timeout(patience, self.store.look(&batch.names, patience)).await;
        let looks = looks.unwrap_or_else(|_| {
            Err(error::ours(
                ErrorKind::Unavailable,
                format!(
                    "the server did not answer within {patience:?}; is it running and reachable?"
                ),
            ))
        });
        Answer::Looked { batch, looks }
    }

    async fn want(&self, names: Vec<LockName>, patience: Duration) -> Answer {
        let said = time::timeout(patience, self.store.want(&names, patience)).await;
        Answer::Wanted(said.unwrap_or(Ok(())))
    }

    /// Returns the names for which the task has to record that this client waits.
    fn heed(&self, answer: Answer, progress: &mut Progress) -> Option<(Vec<LockName>, Duration)> {
        let now = Clock::Boot.now();
        let (batch, looks) = match answer {
            Answer::Looked { batch, looks } => (batch, looks),
            Answer::Wanted(said) => {
                progress.is_wanting = false;
                if let Err(error) = said {
                    // A waiter whose wait can't be recorded waits nevertheless.
                    tracing::debug!(
                        "could not record that this process waits, so others may get locks \
                         earlier: {error}"
                    );
                    progress.quiet = now.after(OVER);
                }
                return None;
            }
        };
        progress.end(&batch, looks.is_ok());
        let pace = Pace::new(self.store.waiters.len(), rand::random());
        let looks = match looks {
            Ok(looks) => looks,
            Err(error) => {
                self.store.waiters.failed(&batch.names, batch.sent, pace, &error);
                return None;
            }
        };
        let mut unsaid = Vec::new();
        let mut is_urgent = false;
        for (name, look) in batch.names.iter().zip(looks) {
            let wanted = match look {
                Some(look) => self.heed_look(name, look, batch.sent, pace),
                None => {
                    let error = error::nonsense("reading the holders");
                    self.store.waiters.failed(std::slice::from_ref(name), batch.sent, pace, &error);
                    None
                }
            };
            if let Some(wanted) = wanted.filter(|wanted| *wanted < ALMOST_OVER) {
                is_urgent |= wanted < OVER;
                unsaid.push(name.clone());
            }
        }
        let may_say = is_urgent && !progress.is_wanting && progress.quiet <= now;
        progress.is_wanting |= may_say;
        may_say.then_some((unsaid, batch.patience))
    }

    /// Calls the waiters that would get their lock. If the store is to record that this client
    /// waits, returns how long the present record still lasts.
    fn heed_look(
        &self,
        name: &LockName,
        mut look: Look,
        sent: Tick,
        pace: Pace,
    ) -> Option<Duration> {
        let waiters = &self.store.waiters;
        let modes = waiters.answered(name, sent, look.version)?;
        let is_first = |mode| modes.first() == Some(&mode);
        let says = match name.kind() {
            Kind::Mutex | Kind::Election => !look.holders.is_empty(),
            // Otherwise, new readers would come in one after the other.
            Kind::RwLock => is_first(Mode::Exclusive) && look.is_read(),
            _ => false,
        };
        if is_first(Mode::Shared) && look.is_kept_for_a_writer() {
            // The writer may be in this line, behind the reader that it keeps away.
            waiters.call_next_in(name, Mode::Exclusive);
        }
        for mode in modes {
            // A waiter that was called and does not ask must not delay the rest. So the next one is
            // called, too.
            if !look.fits(mode) || !waiters.call_next(name) {
                break;
            }
            look.add(mode);
        }
        waiters.plan(name, pace, look.next_end());
        says.then_some(look.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn batch(names: usize, sent: Tick) -> Batch {
        let names =
            (0..names).map(|number| LockName::new(Kind::Mutex, &number.to_string()).unwrap());
        Batch { names: names.collect(), sent, patience: SECOND * 60 }
    }

    /// Catches a lost look that delays the later ones, and a silent server that gets more and more
    /// looks.
    #[test]
    fn c8_a_late_poll_delays_no_other_and_only_a_few_polls_run_at_once() {
        let now = Clock::Boot.now();
        let mut progress = Progress::new(16, now);
        let lost = batch(2, now);
        progress.begin(&lost);
        assert_eq!(progress.limits(now).names, 0, "it may be answered still");
        assert_eq!(now.until(progress.next(now, now)), LATE);
        let late = now.after(LATE);
        assert_eq!(progress.next(late, late), late);
        for round in 0..5 {
            let sent = late.after(SECOND * round);
            assert_eq!(progress.limits(sent), LookLimits { names: MOST_NAMES, only_hasty: false });
            let next = batch(1, sent);
            progress.begin(&next);
            assert_eq!(progress.limits(sent).names, 0);
            progress.end(&next, true);
            assert_eq!(progress.limits(sent).names, MOST_NAMES, "an answer makes room at once");
        }
        let mut sent = late;
        for look in 1..MOST_LOOKS {
            assert_eq!(
                progress.limits(sent),
                LookLimits { names: MOST_NAMES, only_hasty: look + 1 == MOST_LOOKS }
            );
            progress.begin(&batch(1, sent));
            sent = sent.after(LATE);
        }
        assert_eq!(progress.limits(sent.after(SECOND * 60)).names, 0);
        progress.end(&lost, true);
        assert!(progress.limits(sent).names > 0);
        let mut alone = Progress::new(1, now);
        assert_eq!(alone.limits(now), LookLimits { names: MOST_NAMES, only_hasty: false });
        alone.begin(&lost);
        assert_eq!(
            alone.limits(late).names,
            0,
            "the pool has one connection, which others need, too"
        );
    }

    #[test]
    fn c8_a_failed_poll_is_followed_by_shorter_polls_until_they_succeed() {
        let now = Clock::Boot.now();
        let mut progress = Progress::new(16, now);
        let mut sizes = Vec::new();
        while progress.most_names > 1 {
            let failed = batch(progress.most_names, now);
            progress.begin(&failed);
            progress.end(&failed, false);
            sizes.push(progress.most_names);
        }
        assert_eq!(sizes, [125, 62, 31, 15, 7, 3, 1]);
        let mut answered = 0;
        while progress.most_names < MOST_NAMES {
            let look = batch(1, now);
            progress.begin(&look);
            progress.end(&look, true);
            answered += 1;
        }
        assert!(answered < 50, "{answered}");
    }
}
