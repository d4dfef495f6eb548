//! Watching who leads. All watches of one election share one look at the store at a time, and no
//! task: whichever of them waits drives it.

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
    token::FencingToken,
};

/// How often a watch asks, unless the store is polled more often anyhow.
const LONGEST_INTERVAL: Duration = Duration::from_millis(250);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// However often the store says that something may have changed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// How much shorter or longer than asked for a pause may be.
const JITTER: f64 = 0.25;
/// The longest pause while the store can't be asked, unless the interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the watches of an election share.
pub(super) type Shared = Arc<Mutex<Weak<Lookout>>>;

/// Who leads, as it changes.
///
/// A watch is told of changes where the store can tell, and always also looks now and then: every
/// 250 ms, or more often where the store is polled more often anyhow
/// ([`poll`](crate::spi::Descriptor::poll)). It looks only while [`changed`](Self::changed) is
/// awaited. Then each leader that stands for longer than one and a quarter of the
/// [interval](Self::with_interval) and a look is seen; of those who lead for a shorter time, some
/// may be missed.
///
/// Clones, and all watches of one [`Election`](super::Election) value and its clones, share their
/// looks; each sees every settled leader by itself.
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
    /// What was told last; `None` before the first time.
    told: Option<Option<Leader>>,
    /// Since when the store could not be asked, and when that was seen last.
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

    /// Looks this often, ±25 %, and at least every millisecond. An interval of more than a day
    /// counts as one. The watch and its clones then share no looks with others.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        let lookout = Lookout::new(&self.handle, interval.clamp(SHORTEST_INTERVAL, MAX_TTL));
        lock(&lookout.place.state).term = lock(&self.lookout.place.state).term;
        self.lookout = lookout;
        self
    }

    /// The leader that [`changed`](Self::changed) told last. No I/O.
    #[must_use]
    pub fn current(&self) -> Option<&Leader> {
        self.told.as_ref()?.as_ref()
    }

    /// Completes when the leader differs from what was told last; the first time, when it is known
    /// who leads, or that nobody does. `None` is nobody.
    ///
    /// The terms that it tells never fall: an older leader, as a replica that lags behind names it,
    /// is ignored. `None` has no term. A replica that lags behind may say that nobody leads while
    /// somebody does: `None` then comes before the present leader, or between two looks at it. So
    /// `None` is a reason to campaign, and never to act as the leader.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Locker::shutdown`](crate::Locker::shutdown). A store that
    /// can't be asked is asked again, with pauses of at most a second; after one ttl, or three
    /// times the operation timeout if that is longer, this says so. What asking again can't mend is
    /// said at once. It may be called again after any error.
    ///
    /// # Cancel safety
    /// Cancel safe: no change is missed, and nothing is left. Called anew in each turn of a
    /// `select!` loop, it is told of changes by the polls alone; pin it outside the loop to hear of
    /// them at once.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        let keeper = &self.handle.locker().keeper;
        let locker = keeper.locker();
        let called = locker.clock.now();
        // A look that nobody has awaited for long tells of the past.
        let stale = |look: &Look| look.asked.after(self.lookout.longest()) < called;
        let mut news = self.lookout.latest_since(called);
        loop {
            // Hears what comes from here on, also before it is polled.
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
                    // Of a time in which nobody awaited anything, nothing is known.
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

/// What one look told.
#[derive(Clone, Debug)]
struct Look {
    /// From before its request.
    asked: Tick,
    leader: Option<Leader>,
}

/// Errors are shared by all watches.
type Outcome = Result<Look, Arc<Error>>;
type Looking = future::Shared<BoxFuture<'static, Outcome>>;

/// One look after the other, for all watches that share it.
pub(super) struct Lookout {
    place: Arc<Place>,
    /// Driven by whichever watch is polled: a pinned one that is not polled stops no other. It goes
    /// with the last call that awaits it.
    looking: Mutex<Option<WeakShared<BoxFuture<'static, Outcome>>>>,
}

impl Lookout {
    fn new(handle: &Handle, interval: Duration) -> Arc<Self> {
        let place = Place { handle: handle.clone(), interval, state: Mutex::default() };
        Arc::new(Self { place: Arc::new(place), looking: Mutex::default() })
    }

    /// What was seen last, unless that is longer ago than a watch that looks on by itself would let
    /// it be.
    fn latest_since(&self, now: Tick) -> Option<Outcome> {
        let latest = lock(&self.place.state).latest.clone();
        latest.filter(|look| look.asked.after(self.place.longest_pause()) >= now).map(Ok)
    }

    /// The look that is under way, or the next one.
    fn next(&self) -> Looking {
        let mut looking = lock(&self.looking);
        let under_way =
            looking.as_ref().and_then(WeakShared::upgrade).filter(|next| next.peek().is_none());
        let next = under_way.unwrap_or_else(|| look(Arc::clone(&self.place)).boxed().shared());
        *looking = next.downgrade();
        next
    }

    /// How old an answer may be that was awaited all the time.
    fn longest(&self) -> Duration {
        self.place.longest_pause() + self.place.handle.limits().op_timeout
    }
}

/// What the looks have in common.
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
    /// The largest term seen.
    term: Option<FencingToken>,
    /// When the latest look began, and how long after that the next one is to; `None` for the first
    /// one.
    next: Option<(Tick, Duration)>,
    /// How many looks in a row have failed.
    failures: u32,
    /// What the store is to tell of changes since the latest look or before.
    push: Option<BoxFuture<'static, ()>>,
}

/// Waits until it is time, and looks.
async fn look(place: Arc<Place>) -> Outcome {
    // A timer of a runtime that has gone panics; the next look has a new one.
    match AssertUnwindSafe(look_at(&place)).catch_unwind().await {
        Ok(outcome) => outcome.map_err(Arc::new),
        Err(_) => Err(Arc::new(Error::new(ErrorKind::Unavailable, "a look at the store panicked"))),
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
    // Before the look: what changes during it is told as well.
    let mut push = push.unwrap_or_else(|| told(place));
    let asked = clock.now();
    lock(&place.state).next = Some((asked, place.jittered(place.interval)));
    // Dropped midway, it is finished in the background: a call that is made anew in each turn of a
    // `select!` loop finds what the one before has asked for.
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
    // The watch of a broken connection may end at once, each time: it is set anew once all is well.
    state.push = (seen.is_ok() && !woken).then_some(push);
    seen
}

/// Waits for the next look, or for the store to say that it is time. Returns what that has not used
/// up.
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

/// Asks the store, and keeps what it says for as long as somebody watches.
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
        // A lost connection is there again at once, as a rule: the first pause is no longer than
        // any.
        state.next = Some((asked, place.jittered(place.longer_pause(state.failures))));
        state.failures = state.failures.saturating_add(1);
    }
    seen
}

/// What the store says of changes. A backend that panics says nothing.
fn told(place: &Place) -> BoxFuture<'static, ()> {
    let backend = Arc::clone(&place.handle.locker().backend);
    let name = place.handle.name().clone();
    async move {
        if AssertUnwindSafe(backend.changed(&name)).catch_unwind().await.is_err() {
            future::pending().await
        }
    }
    .boxed()
}

impl State {
    /// # Errors
    /// Temporary: a replica that lags behind has answered, or the store has lost its past.
    fn see(&mut self, look: Look) -> Result<Look> {
        let term = look.leader.as_ref().map(|leader| leader.term);
        if let (Some(term), Some(largest)) = (term, self.term)
            && term < largest
        {
            let text = format!(
                "the store tells of the term {term} after {largest}: a replica lags behind, or the store has lost its \
                 data, which a larger token_base mends"
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        self.term = self.term.max(term);
        match &self.latest {
            // The answer to an earlier look, which nobody awaited any more, has come last.
            Some(latest) if latest.asked > look.asked => Ok(latest.clone()),
            _ => Ok(self.latest.insert(look).clone()),
        }
    }
}

/// An error of all watches, for one of them.
fn copy_of(error: &Arc<Error>, lasted: bool) -> Error {
    let status = if lasted { ErrorStatus::Persistent } else { error.status() };
    let copy = Error::new(error.kind(), error.context().to_owned()).with_status(status);
    copy.with_source(Arc::clone(error))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
