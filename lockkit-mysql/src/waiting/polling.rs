//! The poller, which asks the server for all lines: which names it looks at, and when.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Clock, Error, LockName, Tick, spi::Mode};
use tokio::{runtime::Id, sync::Notify};

use super::{Line, Poller, State, Waiters};
use crate::schedule::{Pace, Schedule};

/// Somebody in another runtime takes over from one that was not seen for so long.
const ABSENT: Duration = Duration::from_secs(1);
/// How long the names of one look may be together, in bytes. In a statement they are twice as long,
/// which is still far below what any server takes.
pub(super) const MOST_BYTES: usize = 24 * 1024;

/// The names of one look.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) names: Vec<LockName>,
    pub(crate) sent: Tick,
    /// Of the most patient of those who wait for these names.
    pub(crate) patience: Duration,
}

/// How many names the next look may have, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookLimits {
    /// How many; if none, there may be no look now.
    pub(crate) names: usize,
    /// Only those whose waiters are about as hasty as any.
    pub(crate) only_hasty: bool,
}

/// What the poller is to do.
#[derive(Debug)]
pub(crate) enum Turn {
    /// To look at these names.
    Ask(Batch),
    /// Nothing, until then at least.
    Wait(Tick),
    /// Nothing any more: nobody waits, or another one polls.
    Over,
}

impl Waiters {
    /// Has a line looked at. Returns a number and a signal for the one who is to poll from now on,
    /// in this runtime; `None` if somebody does, or nobody waits. A runtime that nobody drives any
    /// more polls for nobody.
    pub(crate) fn start_polling(&self, name: &LockName, runtime: Id) -> Option<(u64, Arc<Notify>)> {
        let now = Clock::Boot.now();
        let mut state = self.lock();
        let line = state.lines.get_mut(name)?;
        let is_new = line.schedule.is_none();
        line.schedule.get_or_insert_with(|| Schedule::new(now, line.calls));
        if let Some(one) = &state.poller
            && (one.runtime == runtime || one.seen.until(now) < ABSENT)
        {
            if is_new {
                one.signal.notify_one();
            }
            return None;
        }
        for schedule in state.lines.values_mut().filter_map(|line| line.schedule.as_mut()) {
            schedule.forget(now);
        }
        let number = state.next_poller;
        state.next_poller += 1;
        let signal = Arc::new(Notify::new());
        state.poller = Some(Poller { number, runtime, seen: now, signal: Arc::clone(&signal) });
        Some((number, signal))
    }

    /// The one who polled has gone, for whatever reason.
    pub(crate) fn abandon(&self, poller: u64) {
        self.lock().poller.take_if(|one| one.number == poller);
    }

    /// What the poller is to do now, within the `limits` of a look.
    pub(crate) fn turn(&self, poller: u64, now: Tick, limits: LookLimits) -> Turn {
        let mut state = self.lock();
        if !state.is_needed(poller) {
            return Turn::Over;
        }
        if let Some(one) = &mut state.poller {
            one.seen = now;
        }
        state.take(now, limits)
    }

    /// True if its time is over: nobody waits, or another one polls. The next waiter finds no
    /// poller then.
    pub(crate) fn resign(&self, poller: u64) -> bool {
        let mut state = self.lock();
        if state.is_needed(poller) {
            return false;
        }
        state.poller.take_if(|one| one.number == poller);
        true
    }

    /// A look was answered that was sent at `sent`. Returns what those want who are not called, in
    /// order; `None` if nobody waits any more, or if more is known already.
    pub(crate) fn answered(&self, name: &LockName, sent: Tick, version: u64) -> Option<Vec<Mode>> {
        let mut state = self.lock();
        let line = state.lines.get_mut(name)?;
        if !line.schedule.as_mut()?.answer(sent, version) {
            return None;
        }
        line.trouble = None;
        let uncalled = line.waiting.iter().filter(|waiting| !waiting.is_called);
        Some(uncalled.map(|waiting| waiting.mode).collect())
    }

    /// Plans the next look, after an answer.
    pub(crate) fn plan(&self, name: &LockName, pace: Pace, left: Option<Duration>) {
        if let Some(line) = self.lock().lines.get_mut(name)
            && let Some(schedule) = &mut line.schedule
        {
            schedule.plan(Clock::Boot.now(), pace, left, line.calls);
        }
    }

    /// A look failed that was sent at `sent`. Those who wait for its names hear of it.
    pub(crate) fn failed(&self, names: &[LockName], sent: Tick, pace: Pace, error: &Error) {
        let now = Clock::Boot.now();
        let mut state = self.lock();
        for name in names {
            if let Some(line) = state.lines.get_mut(name)
                && let Some(schedule) = &mut line.schedule
                && schedule.fail(sent, now, pace, line.calls)
            {
                line.trouble = Some(error.context().to_owned());
            }
        }
    }
}

impl State {
    fn is_needed(&self, poller: u64) -> bool {
        self.poller.as_ref().is_some_and(|one| one.number == poller)
            && self.lines.values().any(|line| line.schedule.is_some())
    }

    fn next_due(&self) -> Tick {
        let schedules = self.lines.values().filter_map(|line| line.schedule.as_ref());
        schedules.map(Schedule::due).min().unwrap_or(Tick::NEVER)
    }

    /// If a line is due, takes it and those that are ripe, as many as there is room for: those
    /// first that are due for the longest time.
    fn take(&mut self, now: Tick, limits: LookLimits) -> Turn {
        if limits.names == 0 || self.next_due() > now {
            return Turn::Wait(self.next_due());
        }
        let most_patient =
            if limits.only_hasty { self.least_patience() * 2 } else { Duration::MAX };
        let pace = Pace::new(self.lines.len(), rand::random());
        let mut ripe = Vec::new();
        for (name, line) in &mut self.lines {
            let is_hasty = line.patience() <= most_patient;
            let schedule = line.schedule.as_mut().filter(|one| is_hasty && one.is_ripe(now));
            let Some(schedule) = schedule else { continue };
            if schedule.is_overtaken(line.calls) {
                schedule.restart(now, pace, line.calls);
            } else {
                ripe.push((schedule.due(), name.clone()));
            }
        }
        ripe.sort_unstable_by_key(|(due, _)| *due);
        if ripe.first().is_none_or(|(due, _)| *due > now) {
            let due = self.next_due();
            // Those that are due and patient have to wait for an answer.
            return Turn::Wait(if due > now { due } else { Tick::NEVER });
        }
        let mut names = Vec::new();
        let mut bytes = 0;
        let mut patience = Duration::ZERO;
        for (_, name) in ripe {
            bytes += name.as_str().len();
            if names.len() >= limits.names || (bytes > MOST_BYTES && !names.is_empty()) {
                break;
            }
            if let Some(line) = self.lines.get_mut(&name) {
                let own = line.patience();
                patience = patience.max(own);
                if let Some(schedule) = &mut line.schedule {
                    schedule.send(now, own);
                }
            }
            names.push(name);
        }
        Turn::Ask(Batch { names, sent: now, patience })
    }

    fn least_patience(&self) -> Duration {
        self.lines.values().map(Line::patience).min().unwrap_or(Duration::MAX)
    }
}

impl Line {
    /// Of the most patient of its waiters.
    fn patience(&self) -> Duration {
        self.waiting.iter().map(|waiting| waiting.patience).max().unwrap_or_default()
    }
}
