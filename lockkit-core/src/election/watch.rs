//! Watches the leader of an election. All watches of one election share one look at the store at a
//! time. They have no task: the watch that waits drives the look.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{self, BoxFuture, WeakShared},
};

use super::Leader;
use crate::{
    chance::between,
    clock::Tick,
    driver::finishing::Finishing,
    error::{Error, ErrorKind, ErrorStatus, Result},
    handle::Handle,
    locker::operator::Inspector,
    name::LockName,
    options::MAX_TTL,
    spi::change_of,
    token::FencingToken,
};

/// The longest time between two looks by default. It is shorter if waiters poll the store more
/// often.
const LONGEST_INTERVAL: Duration = Duration::from_millis(250);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// The shortest time between two looks, however often the store says that something may have
/// changed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// The share by which a pause may be shorter or longer.
const JITTER: f64 = 0.25;
/// The longest pause while the store can't be asked, unless the interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The state that the watches of an election share.
pub(super) type Shared = Arc<Mutex<Weak<Lookout>>>;

/// A watch that follows the leader of an election as it changes.
///
/// The store reports changes to a watch, where it can. A watch always also looks by itself from
/// time to time. It looks every 250 ms, or more often where waiters poll the store more often
/// ([`poll`](crate::spi::Descriptor::poll)).
///
/// A watch looks only while a call of [`changed`](Self::changed) is awaited. Then it sees each
/// leader that leads for longer than one and a quarter of the [interval](Self::with_interval) plus
/// one look. It may miss some leaders that lead for a shorter time.
///
/// Clones share their looks, and so do all watches of one [`Election`](super::Election) value and
/// its clones. Each watch sees every settled leader by itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = lockkit_core::Locker::memory();
/// let election = locker.election("scheduler")?;
/// let mut watch = election.watch();
/// let leadership = election.campaign("10.0.0.7:8080").await?;
/// let leader = watch.changed().await?.expect("somebody leads");
/// assert_eq!(leader.value, "10.0.0.7:8080");
/// leadership.resign().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderWatch {
    handle: Handle,
    lookout: Arc<Lookout>,
    /// The leader that `changed` returned last; the outer `None` before the first time.
    told: Option<Option<Leader>>,
    /// The instant since which the store could not be asked, and the instant of the last failure.
    store_failing: Option<(Tick, Tick)>,
}

impl LeaderWatch {
    pub(super) fn new(handle: &Handle, shared: &Shared) -> Self {
        let interval = LONGEST_INTERVAL.min(handle.locker().descriptor().poll.max);
        let mut shared = lock(shared);
        let lookout = shared.upgrade().unwrap_or_else(|| {
            let lookout = Lookout::new(handle, interval);
            *shared = Arc::downgrade(&lookout);
            lookout
        });
        drop(shared);
        Self { handle: handle.clone(), lookout, told: None, store_failing: None }
    }

    /// Sets the interval of looks, with a jitter of ±25 %. An interval below a millisecond counts
    /// as a millisecond, and an interval of more than a day counts as a day. The watch and its
    /// clones then share no looks with other watches.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        let lookout = Lookout::new(&self.handle, interval.clamp(SHORTEST_INTERVAL, MAX_TTL));
        lock(&lookout.place.state).term = lock(&self.lookout.place.state).term;
        self.lookout = lookout;
        self
    }

    /// The leader that [`changed`](Self::changed) returned last. No I/O.
    #[must_use]
    pub fn current(&self) -> Option<&Leader> {
        self.told.as_ref()?.as_ref()
    }

    /// Completes when the leader differs from the last returned one. The first call completes as
    /// soon as the watch knows the leader, or knows that there is none. `None` means that there is
    /// no leader.
    ///
    /// The returned terms never fall: if a replica that lags behind names an older leader, the
    /// watch ignores it. `None` has no term. A replica that lags behind may report no leader while
    /// there is one. So `None` may come before the present leader, or between two looks at it. Use
    /// `None` as a reason to campaign, and never as a reason to act as the leader.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Locker::shutdown`](crate::Locker::shutdown).
    ///
    /// If the store can't be asked, the watch asks again, with pauses of at most a second. It
    /// returns the error after one ttl, or after three times the operation timeout if that is
    /// longer. It returns an error that asking again can't mend at once. The call may be made again
    /// after any error.
    ///
    /// # Cancel safety
    /// Cancel safe: no change is missed, and nothing is left. If each turn of a `select!` loop
    /// makes the call anew, only the polls find changes. Pin the call outside the loop to hear of
    /// changes at once.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        let keeper = &self.handle.locker().keeper;
        let locker = keeper.locker();
        let called = locker.clock.now();
        // A look that no call awaited for a long time reports an old state.
        let stale = |look: &Look| look.asked.after(self.lookout.longest()) < called;
        let mut news = self.lookout.latest_since(called);
        loop {
            // The future hears a shutdown from here on, even before it is polled.
            let closing = locker.closing.notified();
            if locker.is_draining() {
                let closed = Error::new(ErrorKind::Closed, "the locker was shut down");
                return Err(self.explain(closed));
            }
            keeper.ensure().map_err(|error| self.explain(error))?;
            match news.take() {
                Some(Ok(look)) if !stale(&look) => {
                    self.store_failing = None;
                    if self.differs(look.leader.as_ref()) {
                        self.told = Some(look.leader.clone());
                        return Ok(look.leader);
                    }
                }
                Some(Err(error)) => {
                    let now = locker.clock.now();
                    let limits = self.handle.limits();
                    let patience = limits.ttl.max(limits.op_timeout * 3);
                    // Nothing is known about a time in which no call was awaited.
                    let gap = self.lookout.longest() + LONGEST_PAUSE * 2;
                    let known = self.store_failing.filter(|(_, seen)| seen.until(now) <= gap);
                    let since = known.map_or(now, |(since, _)| since);
                    self.store_failing = Some((since, now));
                    let lasts = since.until(now) >= patience;
                    if lasts || error.status() == ErrorStatus::Permanent {
                        self.store_failing = None;
                        return Err(self.explain(copy_of(&error, lasts)));
                    }
                }
                Some(Ok(_)) | None => {}
            }
            tokio::select! {
                biased;
                () = closing => {}
                outcome = self.lookout.next() => news = Some(outcome),
            }
        }
    }

    fn differs(&self, leader: Option<&Leader>) -> bool {
        match (&self.told, leader) {
            (Some(Some(told)), Some(leader)) => !told.is(leader),
            (Some(None), None) => false,
            _ => true,
        }
    }

    fn explain(&self, error: Error) -> Error {
        self.handle.explain(error, "watch")
    }
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWatch")
            .field("name", self.handle.name())
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}

/// The result of one look.
#[derive(Clone, Debug)]
struct Look {
    /// The instant before its request was sent.
    asked: Tick,
    leader: Option<Leader>,
}

/// All watches share the error.
type Outcome = Result<Look, Arc<Error>>;
type Looking = future::Shared<BoxFuture<'static, Outcome>>;

/// The looks of all watches that share it, one after the other.
pub(super) struct Lookout {
    place: Arc<Place>,
    /// Any watch that is polled drives the look, so a pinned watch that is not polled stops no
    /// other. The look ends with the last call that awaits it.
    looking: Mutex<Option<WeakShared<BoxFuture<'static, Outcome>>>>,
}

impl Lookout {
    fn new(handle: &Handle, interval: Duration) -> Arc<Self> {
        let place = Place { handle: handle.clone(), interval, state: Mutex::default() };
        Arc::new(Self { place: Arc::new(place), looking: Mutex::default() })
    }

    /// The latest look, unless it is older than the longest pause of a watch that looks by itself.
    fn latest_since(&self, now: Tick) -> Option<Outcome> {
        let latest = lock(&self.place.state).latest.clone();
        latest.filter(|look| look.asked.after(self.place.longest_pause()) >= now).map(Ok)
    }

    /// Returns the look that is under way, or starts the next one.
    fn next(&self) -> Looking {
        let mut looking = lock(&self.looking);
        let under_way =
            looking.as_ref().and_then(WeakShared::upgrade).filter(|next| next.peek().is_none());
        let next = under_way.unwrap_or_else(|| look(Arc::clone(&self.place)).boxed().shared());
        *looking = next.downgrade();
        next
    }

    /// The greatest age of an answer that was awaited all the time.
    fn longest(&self) -> Duration {
        self.place.longest_pause() + self.place.handle.limits().op_timeout
    }
}

/// The state that all looks share.
struct Place {
    handle: Handle,
    interval: Duration,
    state: Mutex<State>,
}

impl Place {
    fn longest_pause(&self) -> Duration {
        self.interval.mul_f64(1.0 + JITTER)
    }

    fn longer_pause(&self, failures: u32) -> Duration {
        let doubled = self.interval.saturating_mul(1 << failures.min(16));
        doubled.min(LONGEST_PAUSE.max(self.interval))
    }

    fn jittered(&self, pause: Duration) -> Duration {
        between(pause, 1.0 - JITTER, 1.0 + JITTER)
    }
}

#[derive(Default)]
struct State {
    latest: Option<Look>,
    /// The largest term that was seen.
    term: Option<FencingToken>,
    /// The beginning of the latest look, and the pause from then to the next one; `None` before the
    /// first look.
    next: Option<(Tick, Duration)>,
    /// The number of looks in a row that have failed.
    failures: u32,
    /// The future in which the store reports a change since the latest look or before.
    push: Option<BoxFuture<'static, ()>>,
}

/// Waits until the next look is due, and looks.
async fn look(place: Arc<Place>) -> Outcome {
    // A timer of an ended runtime panics. The next look has a new timer.
    match AssertUnwindSafe(look_at(&place)).catch_unwind().await {
        Ok(outcome) => outcome.map_err(Arc::new),
        Err(_) => Err(Arc::new(Error::new(
            ErrorKind::Unavailable,
            "the backend panicked while it inspected the election",
        ))),
    }
}

async fn look_at(place: &Arc<Place>) -> Result<Look> {
    let keeper = &place.handle.locker().keeper;
    let clock = keeper.locker().clock;
    let (next, push) = {
        let mut state = lock(&place.state);
        (state.next, state.push.take())
    };
    let push = match next {
        Some((asked, pause)) => wait(place, push, asked, pause).await,
        None => push,
    };
    // This starts before the look, so that changes during the look are reported as well.
    let mut push = push.unwrap_or_else(|| {
        change_of(Arc::clone(&place.handle.locker().backend), place.handle.name().clone())
    });
    let asked = clock.now();
    lock(&place.state).next = Some((asked, place.jittered(place.interval)));
    // If the look is dropped, the background task finishes it. So if each turn of a `select!` loop
    // makes a new call, that call finds the answer that the call before asked for.
    let inspector = place.handle.locker().inspector();
    let name = place.handle.name().clone();
    let mut looking =
        Finishing::new(keeper.agenda(), ask(inspector, name, Arc::downgrade(place), asked));
    let mut woken = false;
    let seen = loop {
        tokio::select! {
            biased;
            () = &mut push, if !woken => woken = true,
            seen = &mut looking => break seen,
        }
    };
    let mut state = lock(&place.state);
    if seen.is_ok() && woken {
        state.next = Some((asked, BETWEEN_LOOKS));
    }
    // The future of a broken connection may end at once, each time. So a new one is made only after
    // a look without an error.
    state.push = (seen.is_ok() && !woken).then_some(push);
    seen
}

/// Waits until the next look is due, or until the store reports a change. Returns the future of the
/// store if it is still pending.
async fn wait(
    place: &Place,
    push: Option<BoxFuture<'static, ()>>,
    asked: Tick,
    pause: Duration,
) -> Option<BoxFuture<'static, ()>> {
    let clock = place.handle.locker().keeper.locker().clock;
    let due = asked.after(pause);
    let Some(mut push) = push else {
        clock.sleep_until(due).await;
        return None;
    };
    tokio::select! {
        () = &mut push => {
            clock.sleep_until(due.min(asked.after(BETWEEN_LOOKS))).await;
            None
        }
        () = clock.sleep_until(due) => Some(push),
    }
}

/// Asks the store, and keeps the answer for as long as a watch lives.
async fn ask(
    inspector: Inspector,
    name: LockName,
    place: Weak<Place>,
    asked: Tick,
) -> Result<Look> {
    let look = inspector.inspect(&name).await.map(|seen| Look { asked, leader: Leader::of(seen) });
    let Some(place) = place.upgrade() else { return look };
    let mut state = lock(&place.state);
    let seen = look.and_then(|look| state.see(look));
    if seen.is_ok() {
        state.failures = 0;
    } else {
        // A lost connection is usually back at once, so the first pause is no longer than the
        // normal one.
        state.next = Some((asked, place.jittered(place.longer_pause(state.failures))));
        state.failures = state.failures.saturating_add(1);
    }
    seen
}

impl State {
    /// # Errors
    /// A temporary error: a replica that lags behind has answered, or the store has lost its data.
    fn see(&mut self, look: Look) -> Result<Look> {
        let term = look.leader.as_ref().map(|leader| leader.term);
        if let (Some(term), Some(largest)) = (term, self.term)
            && term < largest
        {
            let text = format!(
                "the store reports the term {term} after the term {largest}: a replica lags \
                 behind, or the store has lost its data; after a loss of data, set a larger \
                 token_base"
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        self.term = self.term.max(term);
        match &self.latest {
            // The answer to an earlier look, which no call awaited any more, has come last.
            Some(latest) if latest.asked > look.asked => Ok(latest.clone()),
            _ => Ok(self.latest.insert(look).clone()),
        }
    }
}

/// Copies an error that all watches share, for one of them.
fn copy_of(error: &Arc<Error>, lasted: bool) -> Error {
    let status = if lasted { ErrorStatus::Persistent } else { error.status() };
    let copy = Error::new(error.kind(), error.context().to_owned()).with_status(status);
    copy.with_source(Arc::clone(error))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
