//! Keeps the waiters of this process, in one line for each lock. So only one of them asks the
//! server, and not all.

pub(crate) mod polling;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lockkit_core::{
    Clock, LockName, Tick,
    spi::{ClaimSpec, Mode, Wake},
};
use tokio::{runtime::Id, sync::Notify};

use crate::schedule::Schedule;

/// The lines of a locker's waiters, one for each lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<LockName, Line>,
    /// The task that polls the server for all lines.
    poller: Option<Poller>,
    next_poller: u64,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    next_number: u64,
    /// How often a waiter was called.
    calls: u64,
    /// When the poller looks at this line; `None` if no poller does.
    schedule: Option<Schedule>,
    /// The error of the last look.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Poller {
    number: u64,
    runtime: Id,
    seen: Tick,
    /// Wakes the poller when there is a new line.
    signal: Arc<Notify>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    mode: Mode,
    wake: Wake,
    /// How long the waiter waits for an answer of the server. Less than the whole budget, so that
    /// the caller still receives the reason of a failure.
    patience: Duration,
    is_called: bool,
    /// The waiter was called while it asks, so its answer may be older than the call.
    is_recalled: bool,
    /// When the waiter was called, or last began to ask.
    seen: Tick,
}

impl Waiters {
    /// Puts a claim at the end of its line.
    pub(crate) fn join(self: &Arc<Self>, spec: &ClaimSpec) -> Place {
        let mut state = self.lock();
        let line = state.lines.entry(spec.name.clone()).or_default();
        let number = line.next_number;
        line.next_number += 1;
        line.waiting.push_back(Waiting {
            number,
            mode: spec.mode,
            wake: spec.wake.clone(),
            patience: spec.op_timeout * 3 / 4,
            is_called: false,
            is_recalled: false,
            seen: Clock::Boot.now(),
        });
        Place { waiters: Arc::clone(self), name: spec.name.clone(), number }
    }

    pub(crate) fn is_any(&self, name: &LockName) -> bool {
        self.lock().lines.contains_key(name)
    }

    /// How many names have waiters.
    pub(crate) fn len(&self) -> usize {
        self.lock().lines.len()
    }

    /// Calls the first waiter that was not called yet: it may ask the server. False if there is
    /// none.
    pub(crate) fn call_next(&self, name: &LockName) -> bool {
        self.lock().lines.get_mut(name).is_some_and(Line::call_next)
    }

    /// Calls the first waiter of this mode that was not called yet, even if others are before it.
    pub(crate) fn call_next_in(&self, name: &LockName, mode: Mode) {
        if let Some(line) = self.lock().lines.get_mut(name) {
            line.call_next_of(|waiting| waiting.mode == mode);
        }
    }

    /// Calls the first waiter in line, because there is something to ask.
    pub(crate) fn call_first(&self, name: &LockName) {
        let mut state = self.lock();
        let Some(line) = state.lines.get_mut(name) else { return };
        match line.waiting.front_mut() {
            Some(first) if first.is_called => first.is_recalled = true,
            _ => {
                line.call_next();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn call_next(&mut self) -> bool {
        self.call_next_of(|_| true)
    }

    fn call_next_of(&mut self, is_meant: impl Fn(&Waiting) -> bool) -> bool {
        let mut uncalled = self.waiting.iter_mut().filter(|waiting| !waiting.is_called);
        let Some(next) = uncalled.find(|waiting| is_meant(waiting)) else { return false };
        next.is_called = true;
        next.seen = Clock::Boot.now();
        next.wake.wake();
        self.calls += 1;
        true
    }
}

/// A place in a line. A waiter that was called and leaves passes the call on.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    name: LockName,
    number: u64,
}

impl Place {
    /// Whether the waiter may ask the server.
    pub(crate) fn is_called(&self) -> bool {
        self.with(|waiting| waiting.is_called).unwrap_or(true)
    }

    /// Calls this waiter, without a wake-up, if it is the first in line. Does the same if all
    /// waiters before it were called and have not asked for `patience`. A future that is not polled
    /// must not delay the rest. Returns whether this waiter is called, and so asks now.
    pub(crate) fn step_up(&self, patience: Duration) -> bool {
        let now = Clock::Boot.now();
        let mut state = self.waiters.lock();
        let Some(line) = state.lines.get_mut(&self.name) else { return true };
        for waiting in &mut line.waiting {
            if waiting.number == self.number {
                line.calls += u64::from(!waiting.is_called);
                (waiting.is_called, waiting.seen) = (true, now);
                return true;
            }
            if !waiting.is_called || waiting.seen.until(now) < patience {
                break;
            }
        }
        let mine = line
            .waiting
            .iter_mut()
            .find(|waiting| waiting.number == self.number && waiting.is_called);
        mine.is_some_and(|mine| {
            mine.seen = now;
            true
        })
    }

    /// Takes back a call that led nowhere or to a grant, without passing it on. A call that came in
    /// between remains.
    pub(crate) fn put_back(&self) {
        self.with(|waiting| {
            waiting.is_called = std::mem::take(&mut waiting.is_recalled);
            if waiting.is_called {
                waiting.wake.wake();
            }
        });
    }

    /// The error of the last look, or an error if its answer is missing for longer than this
    /// waiter's patience. A missing answer counts only if the poller has looked for it in vain,
    /// because the poller may have been away.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.waiters.lock();
        let line = state.lines.get(&self.name)?;
        if line.trouble.is_some() {
            return line.trouble.clone();
        }
        let patience = line.waiting.iter().find(|waiting| waiting.number == self.number)?.patience;
        let silence = line.schedule.as_ref()?.unanswered()?.until(state.poller.as_ref()?.seen);
        (silence >= patience).then(|| {
            format!("the server did not answer within {patience:?}; is it running and reachable?")
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Waiting) -> T) -> Option<T> {
        let mut state = self.waiters.lock();
        let line = state.lines.get_mut(&self.name)?;
        line.waiting.iter_mut().find(|waiting| waiting.number == self.number).map(act)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.waiters.lock();
        let Some(line) = state.lines.get_mut(&self.name) else { return };
        let place = line.waiting.iter().position(|waiting| waiting.number == self.number);
        let gone = place.and_then(|index| line.waiting.remove(index));
        if line.waiting.is_empty() {
            state.lines.remove(&self.name);
        } else if gone.is_some_and(|gone| gone.is_called) {
            line.call_next();
        }
    }
}
