//! Helpers to use the claims of any backend as the core does.

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

/// A test fails if something that must happen takes longer. Some tests need a wake-up: their leases
/// are longer than this, because the end of a lease wakes waiters as well. No test waits for this
/// time to pass.
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

/// The request of a new owner for a mutex.
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

/// Gives up what a claim has in its store, by releasing the claim.
///
/// # Panics
/// The release fails.
pub async fn given_up(release: impl Future<Output = Result<Released>>) {
    // The result does not matter: the claim may have held the lock, waited for it, or lost it.
    let _ = release.await.unwrap();
}

/// The grant of an attempt.
///
/// # Panics
/// The attempt was not granted.
#[track_caller]
pub fn granted(attempt: Result<Attempt>) -> Grant {
    match attempt.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

/// Whether a claim that was not granted waits in a queue, and when it should ask again.
///
/// # Panics
/// The attempt was granted.
#[track_caller]
pub fn busy(attempt: Result<Attempt>) -> (bool, Option<Duration>) {
    match attempt.unwrap() {
        Attempt::Busy { queued, retry_after } => (queued, retry_after),
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}

/// All texts of an error that a user can see.
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

/// Waits until the condition is true.
///
/// # Panics
/// The condition takes too long.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            sleep(LOOK_AGAIN).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"));
}

/// Asks again for as long as the error says that this may help. A stalled server may answer too
/// late.
///
/// # Panics
/// Another error, or there is no answer in time.
pub async fn persistently<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> T {
    let mut answer = None;
    until("there is an answer", async || {
        match ask().await {
            Ok(told) => answer = Some(told),
            Err(error) => assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}"),
        }
        answer.is_some()
    })
    .await;
    answer.unwrap()
}

/// The resource that a lock protects. As the last line of defence it refuses smaller tokens than it
/// has seen.
#[derive(Debug, Default)]
pub struct Register(Mutex<Option<FencingToken>>);

impl Register {
    /// Returns false if a write with a larger token came before.
    pub fn write(&self, token: FencingToken) -> bool {
        let mut largest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = largest.is_none_or(|largest| token >= largest);
        if accepted {
            *largest = Some(token);
        }
        accepted
    }
}

/// Does the job of the core's waiter: remembers one wake-up, and counts all.
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
        assert!(self.heard_within(SOON).await, "no signal came");
    }

    /// Waits for a wake-up, but no longer than `bound`. Returns whether there was one.
    pub async fn heard_within(&self, bound: Duration) -> bool {
        timeout(bound, self.notify.notified()).await.is_ok()
    }
}
