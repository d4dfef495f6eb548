//! Decides which names the poller looks at, and when.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Clock, Error, LockName, Tick, spi::Mode};
use tokio::{runtime::Id, sync::Notify};

use super::{Line, Poller, State, Waiters};
use crate::schedule::{Pace, Schedule};

/// A waiter in another runtime takes over from a poller that was not seen for so long.
const ABSENT: Duration = Duration::from_secs(1);
/// How long the names of one look may be together, in bytes. In a statement they are twice as long,
/// which is still far below the limit of any server.
pub(super) const MOST_BYTES: usize = 24 * 1024;

/// The names of one look.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) names: Vec<LockName>,
    pub(crate) sent: Tick,
    /// The patience of the most patient waiter for these names.
    pub(crate) patience: Duration,
}

/// How many names the next look may have, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookLimits {
    /// How many names. If none, there may be no look now.
    pub(crate) names: usize,
    /// Only names whose waiters are about as hasty as the hastiest.
    pub(crate) only_hasty: bool,
}

/// The next step of the poller.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Look at these names.
    Ask(Batch),
    /// Do nothing, until then at least.
    Wait(Tick),
    /// End: there are no waiters, or another poller has taken over.
    Over,
}

impl Waiters {
    /// Schedules looks at a line. Returns a number and a signal if the caller has to start a poller
    /// in this runtime. `None` if there is a poller, or if there are no waiters. A poller in
    /// another runtime that is not driven any more does not count.
    pub(crate) fn start_polling(&self, name: &LockName, runtime: Id) -> Option<(u64, Arc<Notify>)> {
        let now = Clock::Boot.now();
        let mut state = self.lock();
        let line = state.lines.get_mut(name)?;
        let is_new = line.schedule.is_none();
        line.schedule.get_or_insert_with(|| Schedule::new(name.kind(), now, line.calls));
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

    /// Notes that the poller is gone, for whatever reason.
    pub(crate) fn abandon(&self, poller: u64) {
        self.lock().poller.take_if(|one| one.number == poller);
    }

    /// The next step of the poller, within the `limits` of a look.
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

    /// Ends this poller if there are no waiters, or if another one has taken over. Then it returns
    /// true, and the next waiter finds no poller.
    pub(crate) fn resign(&self, poller: u64) -> bool {
        let mut state = self.lock();
        if state.is_needed(poller) {
            return false;
        }
        state.poller.take_if(|one| one.number == poller);
        true
    }

    /// Notes the answer to the look that was sent at `sent`. Returns the modes of the waiters that
    /// are not called, in order. `None` if there are no waiters any more, or if the answer of a
    /// later look is known.
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

    /// Notes the failure of the look that was sent at `sent`. The waiters for its names get the
    /// error.
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

    /// If a line is due, takes it and the ripe lines, as many as there is room for. The lines that
    /// are due for longest come first.
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
            // Due names with patient waiters have to wait for an answer.
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
    /// The patience of the most patient waiter in the line.
    fn patience(&self) -> Duration {
        self.waiting.iter().map(|waiting| waiting.patience).max().unwrap_or_default()
    }
}
