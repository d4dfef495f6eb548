//! Claims of any backend, asked as the core would ask them.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lockkit_core::{
    Error, FencingToken, Kind, LockName, OwnerId, Result,
    spi::{Attempt, Backend, Claim, ClaimSpec, Grant, Mode, Released, Wake, Wakeable},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// What must happen, happens within this, or a test fails. The leases of tests that can't do
/// without a wake-up are longer, as their ends wake waiters as well. No test waits for it to pass.
const SOON: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The name of a mutex.
///
/// # Panics
/// No lock can have that name.
#[must_use]
pub fn mutex(name: &str) -> LockName {
    LockName::new(Kind::Mutex, name).unwrap()
}

/// What an owner, who has nothing else, asks for who wants a mutex.
///
/// # Panics
/// As for [`mutex`].
#[must_use]
pub fn spec(name: &str, ttl: Duration, op_timeout: Duration) -> ClaimSpec {
    ClaimSpec::new(mutex(name), OwnerId::random(), Mode::Exclusive, ttl, op_timeout)
}

/// A claim that waits, and the signal that counts its wake-ups.
///
/// # Panics
/// The backend refuses it.
pub fn waiter(backend: &dyn Backend, mut spec: ClaimSpec) -> (Box<dyn Claim>, Arc<WakeSignal>) {
    let signal = Arc::new(WakeSignal::default());
    spec.wake = Wake::to(&signal);
    (backend.claim(spec).unwrap(), signal)
}

/// Gives up what a claim has in its store, by the release of it.
///
/// # Panics
/// The release fails.
pub async fn given_up(release: impl Future<Output = Result<Released>>) {
    // The test is done with the claim, whether that held the lock, waited for it, or had lost it.
    let _ = release.await.unwrap();
}

/// What was granted.
///
/// # Panics
/// Nothing was.
#[track_caller]
pub fn granted(attempt: Result<Attempt>) -> Grant {
    match attempt.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

/// Whether a claim that was not granted stands in a queue, and when it is to ask again.
///
/// # Panics
/// It was granted.
#[track_caller]
pub fn busy(attempt: Result<Attempt>) -> (bool, Option<Duration>) {
    match attempt.unwrap() {
        Attempt::Busy { queued, retry_after } => (queued, retry_after),
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}

/// What a user sees of an error.
#[must_use]
pub fn texts(error: &Error) -> String {
    let mut texts = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        texts.push_str(&format!(" {error} {error:?}"));
        source = error.source();
    }
    texts
}

/// Waits until it is so.
///
/// # Panics
/// That takes too long.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            sleep(LOOK_AGAIN).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"));
}

/// What a lock protects, as the last line of defence: it refuses smaller tokens than it has seen.
#[derive(Debug, Default)]
pub struct Register(Mutex<Option<FencingToken>>);

impl Register {
    /// False if somebody with a larger token has written before.
    pub fn write(&self, token: FencingToken) -> bool {
        let mut largest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = largest.is_none_or(|largest| token >= largest);
        if accepted {
            *largest = Some(token);
        }
        accepted
    }
}

/// What the core's waiter would be: remembers one wake-up, and counts all.
#[derive(Debug, Default)]
pub struct WakeSignal {
    notify: Notify,
    wakes: AtomicUsize,
}

impl Wakeable for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.notify.notify_one();
    }
}

impl WakeSignal {
    /// How often it was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }

    /// Waits for a wake-up.
    ///
    /// # Panics
    /// No wake-up comes.
    pub async fn heard(&self) {
        assert!(self.heard_within(SOON).await, "nobody rang");
    }

    /// Waits for a wake-up, but not for long. Says whether there was one.
    pub async fn heard_within(&self, bound: Duration) -> bool {
        timeout(bound, self.notify.notified()).await.is_ok()
    }
}
