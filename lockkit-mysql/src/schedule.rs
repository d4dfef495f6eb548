//! Plans when to ask the server about a name that has waiters.

use std::time::Duration;

use lockkit_core::{Kind, Tick};

/// The pauses between two looks. They are short while the lock changes hands, and longer while one
/// holder keeps it.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
/// The pause after another holder was seen, if a lock can have several. A waiting writer can do
/// nothing until the last of them has left, and each reader that comes changes the lock.
const SHORTEST_IF_SHARED: Duration = Duration::from_millis(5);
/// A server in trouble is asked after this pause at the earliest.
const TROUBLED: Duration = Duration::from_millis(250);
/// How many names one statement looks at, at most.
pub(crate) const MOST_NAMES: usize = 250;

/// The factor between the usual pauses and the real ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(f64);

impl Pace {
    /// One statement looks at a limited number of names. With more names, all pauses grow in
    /// proportion, so that the number of statements does not grow. The random `chance`, from 0 to
    /// 1, keeps processes from asking in step with each other.
    pub(crate) fn new(names: usize, chance: f64) -> Self {
        let statements = u32::try_from(names.div_ceil(MOST_NAMES)).unwrap_or(u32::MAX).max(1);
        Self(f64::from(statements) * (0.75 + 0.5 * chance))
    }

    fn apply(self, pause: Duration) -> Duration {
        pause.mul_f64(self.0)
    }
}

/// Plans the looks at one name.
#[derive(Debug)]
pub(crate) struct Schedule {
    due: Tick,
    /// From then on, this name joins a look at other names, because half of its pause has passed.
    ripe: Tick,
    /// The next pause.
    pause: Duration,
    /// The pause after the lock has changed.
    after_change: Duration,
    /// The version of the lock when it was last seen.
    version: u64,
    /// How often a waiter in the line had been called when this was planned.
    calls: u64,
    /// When the first look was sent that has had no answer since.
    unanswered: Option<Tick>,
    /// When the last look was sent.
    sent: Option<Tick>,
    /// When the look was sent that gave the latest known answer.
    known: Option<Tick>,
}

impl Schedule {
    /// For a waiter that has just asked for a lock of this kind.
    pub(crate) fn new(kind: Kind, now: Tick, calls: u64) -> Self {
        let due = now.after(SHORTEST);
        let after_change = match kind {
            Kind::RwLock | Kind::Semaphore => SHORTEST_IF_SHARED,
            _ => SHORTEST,
        };
        Self {
            due,
            ripe: due,
            pause: SHORTEST * 2,
            after_change,
            version: 0,
            calls,
            unanswered: None,
            sent: None,
            known: None,
        }
    }

    pub(crate) fn due(&self) -> Tick {
        self.due
    }

    pub(crate) fn is_ripe(&self, now: Tick) -> bool {
        self.ripe <= now
    }

    /// Since when the server has not answered.
    pub(crate) fn unanswered(&self) -> Option<Tick> {
        self.unanswered
    }

    /// Whether a waiter was called since this was planned. That waiter finds out without a look.
    pub(crate) fn is_overtaken(&self, calls: u64) -> bool {
        self.calls != calls
    }

    /// Starts with the shortest pause, because the effect of a call to a waiter is soon visible.
    pub(crate) fn restart(&mut self, now: Tick, pace: Pace, calls: u64) {
        self.pause = SHORTEST;
        self.plan(now, pace, None, calls);
    }

    /// Makes an unanswered look due again, because the task that sent it is gone, and so is the
    /// answer.
    pub(crate) fn forget(&mut self, now: Tick) {
        if self.unanswered.is_some() {
            (self.due, self.ripe, self.unanswered, self.sent) = (now, now, None, None);
        }
    }

    /// Notes that a look is sent. If no answer comes for as long as the waiters have `patience`,
    /// the next look follows.
    pub(crate) fn send(&mut self, now: Tick, patience: Duration) {
        self.sent = Some(now);
        self.unanswered.get_or_insert(now);
        self.due = now.after(patience).after(TROUBLED);
        self.ripe = self.due;
    }

    /// Notes the answer to the look that was sent at `sent`. False if a later look was answered
    /// before.
    pub(crate) fn answer(&mut self, sent: Tick, version: u64) -> bool {
        if self.known.is_some_and(|known| known > sent) {
            return false;
        }
        self.known = Some(sent);
        self.unanswered = None;
        if self.version != version {
            self.version = version;
            self.pause = self.after_change;
        }
        true
    }

    /// Notes the failure of the look that was sent at `sent`. False if another look has followed.
    pub(crate) fn fail(&mut self, sent: Tick, now: Tick, pace: Pace, calls: u64) -> bool {
        if self.sent != Some(sent) {
            return false;
        }
        self.unanswered = None;
        self.pause = TROUBLED;
        self.plan(now, pace, None, calls);
        true
    }

    /// Plans the next look. `left` says for how long the first of the present leases lasts.
    pub(crate) fn plan(&mut self, now: Tick, pace: Pace, left: Option<Duration>, calls: u64) {
        let pause = pace.apply(self.pause).min(left.unwrap_or(Duration::MAX)).max(SHORTEST);
        self.due = now.after(pause);
        self.ripe = now.after(pause / 2);
        self.pause = (self.pause * 2).min(LONGEST);
        self.calls = calls;
    }
}

#[cfg(test)]
mod tests {
    use lockkit_core::Clock;

    use super::*;

    const USUAL: f64 = 0.5;

    fn pauses(schedule: &mut Schedule, start: Tick, pace: Pace, looks: u32) -> Vec<u128> {
        let look = |number| {
            let now = start.after(Duration::from_secs(number));
            assert!(schedule.answer(now, 7));
            schedule.plan(now, pace, None, 0);
            now.until(schedule.due()).as_millis()
        };
        (1..=u64::from(looks)).map(look).collect()
    }

    #[test]
    fn c8_a_pause_doubles_up_to_its_longest_and_begins_anew_when_something_has_changed() {
        let start = Clock::Boot.now();
        let mut schedule = Schedule::new(Kind::Mutex, start, 0);
        assert_eq!(start.until(schedule.due()), SHORTEST);
        let pace = Pace::new(MOST_NAMES, USUAL);
        assert_eq!(pauses(&mut schedule, start, pace, 8), [1, 2, 4, 8, 16, 32, 50, 50]);
        let later = start.after(Duration::from_secs(60));
        assert!(schedule.answer(later, 8));
        schedule.plan(later, pace, None, 0);
        assert_eq!(later.until(schedule.due()), SHORTEST, "another version");
        pauses(&mut schedule, later, pace, 8);
        assert!(schedule.is_overtaken(1));
        schedule.restart(later, pace, 1);
        assert_eq!(later.until(schedule.due()), SHORTEST, "a call");
        assert!(!schedule.is_overtaken(1));
    }

    /// Catches a look for each reader that comes while a writer waits.
    #[test]
    fn c8_a_lock_that_several_have_is_looked_at_less_often_after_a_change() {
        let start = Clock::Boot.now();
        let mut schedule = Schedule::new(Kind::RwLock, start, 0);
        assert_eq!(start.until(schedule.due()), SHORTEST);
        let pace = Pace::new(MOST_NAMES, USUAL);
        assert_eq!(pauses(&mut schedule, start, pace, 5), [5, 10, 20, 40, 50]);
    }

    #[test]
    fn c8_with_many_names_all_pauses_grow_and_the_end_of_a_lease_stays() {
        let start = Clock::Boot.now();
        for (names, longest) in
            [(1, 50), (MOST_NAMES, 50), (MOST_NAMES + 1, 100), (12 * MOST_NAMES, 600)]
        {
            let mut schedule = Schedule::new(Kind::Mutex, start, 0);
            let pace = Pace::new(names, USUAL);
            assert_eq!(pauses(&mut schedule, start, pace, 9).last(), Some(&longest), "{names}");
            let left = Duration::from_millis(20);
            schedule.plan(start, pace, Some(left), 0);
            assert_eq!(start.until(schedule.due()), left);
        }
    }

    #[test]
    fn c8_an_unanswered_poll_is_followed_by_another() {
        let start = Clock::Boot.now();
        let patience = Duration::from_secs(3);
        let pace = Pace::new(1, USUAL);
        let mut schedule = Schedule::new(Kind::Mutex, start, 0);
        schedule.send(start, patience);
        assert_eq!(
            (schedule.unanswered(), start.until(schedule.due())),
            (Some(start), patience + TROUBLED)
        );
        let second = schedule.due();
        schedule.send(second, patience);
        assert_eq!(schedule.unanswered(), Some(start));
        assert!(!schedule.fail(start, second, pace, 0), "it is the first one's error");
        assert_eq!(schedule.unanswered(), Some(start));
        assert!(schedule.answer(second, 7));
        assert_eq!(schedule.unanswered(), None);
        assert!(!schedule.answer(start, 6), "it is older than what is known");
        let third = second.after(patience);
        schedule.send(third, patience);
        assert!(schedule.fail(third, third, pace, 0));
        assert_eq!((schedule.unanswered(), third.until(schedule.due())), (None, TROUBLED));
    }
}
