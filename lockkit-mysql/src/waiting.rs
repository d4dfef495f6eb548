//! Who in this process waits for which lock. Waiters stand in line, so that one of them talks to the server and not all.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_core::{
    Clock, LockName, Tick,
    spi::{Hint, Mode},
};
use tokio::runtime::Id;

/// Somebody in another runtime takes over from one that was not seen for so long.
const ABSENT: Duration = Duration::from_secs(1);

/// The lines of a locker's waiters, one for each lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lines: Mutex<HashMap<LockName, Line>>,
    attendants: AtomicU64,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    next_number: u64,
    /// How often somebody was called.
    calls: u64,
    /// Who polls the server for this line.
    attendant: Option<Attendant>,
    /// What the last poll failed with.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Attendant {
    number: u64,
    runtime: Id,
    seen: Tick,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    mode: Mode,
    hint: Hint,
    is_called: bool,
    /// Called while it asks: its answer may be older than the call.
    is_recalled: bool,
    /// When it was called, or last began to ask.
    seen: Tick,
}

/// What a look at a line found.
#[derive(Debug)]
pub(crate) struct Glance {
    /// How often somebody was called so far.
    pub(crate) calls: u64,
    /// What those want who are not called, in order.
    pub(crate) modes: Vec<Mode>,
}

impl Waiters {
    /// Puts somebody at the end of a line.
    pub(crate) fn join(self: &Arc<Self>, name: &LockName, mode: Mode, hint: Hint) -> Place {
        let mut lines = self.lock();
        let line = lines.entry(name.clone()).or_default();
        let number = line.next_number;
        line.next_number += 1;
        line.waiting.push_back(Waiting {
            number,
            mode,
            hint,
            is_called: false,
            is_recalled: false,
            seen: Clock::Boot.now(),
        });
        Place { waiters: Arc::clone(self), name: name.clone(), number }
    }

    pub(crate) fn is_any(&self, name: &LockName) -> bool {
        self.lock().contains_key(name)
    }

    /// Calls the first who was not called yet: it may ask the server. False if there is none.
    pub(crate) fn call_next(&self, name: &LockName) -> bool {
        self.lock().get_mut(name).is_some_and(Line::call_next)
    }

    /// Calls the first who was not called yet and wants it in this mode, over the heads of others.
    pub(crate) fn call_next_in(&self, name: &LockName, mode: Mode) {
        if let Some(line) = self.lock().get_mut(name) {
            line.call_next_of(|waiting| waiting.mode == mode);
        }
    }

    /// Calls the first in line: there is something to ask.
    pub(crate) fn call_first(&self, name: &LockName) {
        let mut lines = self.lock();
        let Some(line) = lines.get_mut(name) else { return };
        match line.waiting.front_mut() {
            Some(first) if first.is_called => first.is_recalled = true,
            _ => {
                line.call_next();
            }
        }
    }

    /// A number for the one who is to poll from now on, in this runtime; `None` if somebody does, or nobody waits. A
    /// runtime that nobody drives any more polls for nobody.
    pub(crate) fn attend(&self, name: &LockName, runtime: Id) -> Option<u64> {
        let (mut lines, now) = (self.lock(), Clock::Boot.now());
        let line = lines.get_mut(name)?;
        if line.attendant.as_ref().is_some_and(|one| one.runtime == runtime || one.seen.until(now) < ABSENT) {
            return None;
        }
        let number = self.attendants.fetch_add(1, Relaxed);
        line.attendant = Some(Attendant { number, runtime, seen: now });
        Some(number)
    }

    /// The one who polled has gone, for whatever reason.
    pub(crate) fn abandon(&self, name: &LockName, attendant: u64) {
        if let Some(line) = self.lock().get_mut(name) {
            line.attendant.take_if(|one| one.number == attendant);
        }
    }

    /// What the attendant of a line sees; `None` if it is discharged: nobody waits any more, or another line has begun.
    pub(crate) fn look(&self, name: &LockName, attendant: u64) -> Option<Glance> {
        let mut lines = self.lock();
        let line = lines.get_mut(name)?;
        line.attendant.as_mut().filter(|one| one.number == attendant)?.seen = Clock::Boot.now();
        let uncalled = line.waiting.iter().filter(|waiting| !waiting.is_called);
        Some(Glance { calls: line.calls, modes: uncalled.map(|waiting| waiting.mode).collect() })
    }

    /// Remembers how the last poll went, for those who wait for it.
    pub(crate) fn report(&self, name: &LockName, trouble: Option<String>) {
        if let Some(line) = self.lock().get_mut(name) {
            line.trouble = trouble;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
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
        next.hint.ring();
        self.calls += 1;
        true
    }
}

/// A place in a line. Whoever is called and goes away passes the call on.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    name: LockName,
    number: u64,
}

impl Place {
    /// Whether it may ask the server.
    pub(crate) fn is_called(&self) -> bool {
        self.with(|waiting| waiting.is_called).unwrap_or(true)
    }

    /// Calls itself, without a ring, if it is the first in line, or if all who were called before it have not asked for
    /// `patience`: a future that nobody polls must not hold up the rest. Returns whether it is called, and so asks now.
    pub(crate) fn step_up(&self, patience: Duration) -> bool {
        let (mut lines, now) = (self.waiters.lock(), Clock::Boot.now());
        let Some(line) = lines.get_mut(&self.name) else { return true };
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
        let mine = line.waiting.iter_mut().find(|waiting| waiting.number == self.number && waiting.is_called);
        mine.is_some_and(|mine| {
            mine.seen = now;
            true
        })
    }

    /// The call led nowhere, or was answered by a grant: it is not passed on. One that came meanwhile stands.
    pub(crate) fn put_back(&self) {
        self.with(|waiting| {
            waiting.is_called = std::mem::take(&mut waiting.is_recalled);
            if waiting.is_called {
                waiting.hint.ring();
            }
        });
    }

    /// What is wrong with the server, if the last poll found it out.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.waiters.lock().get(&self.name)?.trouble.clone()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Waiting) -> T) -> Option<T> {
        let mut lines = self.waiters.lock();
        let line = lines.get_mut(&self.name)?;
        line.waiting.iter_mut().find(|waiting| waiting.number == self.number).map(act)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.waiters.lock();
        let Some(line) = lines.get_mut(&self.name) else { return };
        let place = line.waiting.iter().position(|waiting| waiting.number == self.number);
        let gone = place.and_then(|index| line.waiting.remove(index));
        if line.waiting.is_empty() {
            lines.remove(&self.name);
        } else if gone.is_some_and(|gone| gone.is_called) {
            line.call_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use lockkit_core::{Kind, spi::Ring};

    use super::*;

    #[derive(Debug, Default)]
    struct Bell(AtomicU32);

    impl Ring for Bell {
        fn ring(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn join(waiters: &Arc<Waiters>, name: &LockName) -> (Place, Arc<Bell>) {
        let bell = Arc::new(Bell::default());
        (waiters.join(name, Mode::Exclusive, Hint::to(&bell)), bell)
    }

    #[test]
    fn c6_a_call_is_passed_on_by_whoever_leaves_and_reaches_one_at_a_time() {
        let (waiters, name) = (Arc::<Waiters>::default(), LockName::new(Kind::Mutex, "a").unwrap());
        let ((first, bell_1), (second, bell_2), (third, bell_3)) =
            (join(&waiters, &name), join(&waiters, &name), join(&waiters, &name));
        waiters.call_first(&name);
        assert!(first.is_called() && !second.is_called());
        drop(first);
        assert!(second.is_called() && !third.is_called());
        second.put_back();
        drop(second);
        assert!(!third.is_called());
        assert_eq!([bell_1, bell_2, bell_3].map(|bell| bell.0.load(Relaxed)), [1, 1, 0]);
        drop(third);
        assert!(!waiters.is_any(&name));
        assert!(!waiters.call_next(&name));
    }

    #[test]
    fn c8_a_call_that_comes_while_its_answer_is_under_way_is_not_lost() {
        let (waiters, name) = (Arc::<Waiters>::default(), LockName::new(Kind::Mutex, "a").unwrap());
        let (first, bell) = join(&waiters, &name);
        waiters.call_first(&name);
        waiters.call_first(&name);
        first.put_back();
        assert!(first.is_called());
        assert_eq!(bell.0.load(Relaxed), 2);
        first.put_back();
        assert!(!first.is_called());
    }

    #[test]
    fn c8_one_who_was_called_and_does_not_ask_is_passed_after_a_while() {
        let (waiters, name) = (Arc::<Waiters>::default(), LockName::new(Kind::Mutex, "a").unwrap());
        let ((first, _), (second, _), (third, _)) =
            (join(&waiters, &name), join(&waiters, &name), join(&waiters, &name));
        let (long, none) = (Duration::from_secs(60), Duration::ZERO);
        assert!(!second.step_up(none), "the first was not called yet");
        assert!(first.step_up(long) && !second.step_up(long));
        assert!(second.step_up(none) && !third.step_up(long));
        assert!(first.is_called() && second.is_called() && !third.is_called());
    }

    #[test]
    fn one_attends_a_line_and_another_one_after_it_has_gone() {
        let (waiters, name) = (Arc::<Waiters>::default(), LockName::new(Kind::Mutex, "a").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let attend = || waiters.attend(&name, runtime.handle().id());
        assert_eq!(attend(), None, "nobody waits");
        let (place, _) = join(&waiters, &name);
        let first = attend().unwrap();
        assert_eq!(attend(), None);
        drop(place);
        let (_place, _) = join(&waiters, &name);
        let second = attend().unwrap();
        assert!(waiters.look(&name, first).is_none(), "its line has ended");
        waiters.abandon(&name, first);
        assert!(waiters.look(&name, second).is_some());
        waiters.abandon(&name, second);
        assert!(attend().is_some());
    }
}
