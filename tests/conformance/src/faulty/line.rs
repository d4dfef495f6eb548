//! The line between core and backend, which can delay and lose calls.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lockkit_core::{
    Error, ErrorKind, OwnerId, Result,
    spi::{Wake, Wakeable},
};
use tokio::{sync::watch, time::sleep};

use crate::harness::{Faults, Link};

/// One call that reached the backend.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The owner of the claim; `None` for calls of the backend itself.
    pub owner: Option<OwnerId>,
    /// The kind of call.
    pub op: Op,
    /// When the backend got the call, after all delays.
    pub at: Instant,
}

/// The calls of a backend or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `Claim::attempt`
    Attempt,
    /// `Admin::diagnose`
    Diagnose,
    /// `Claim::renew` for a lease of another length
    Extend,
    /// `Backend::force_release`
    ForceRelease,
    /// `Backend::inspect`
    Inspect,
    /// `Claim::renew`
    KeepAlive,
    /// `Admin::names`
    Names,
    /// `Admin::note`
    Note,
    /// `Admin::probe`
    Probe,
    /// `Claim::raise_token`
    RaiseToken,
    /// `Claim::transfer`
    Transfer,
    /// `Claim::release`
    Release,
    /// `Admin::time`
    Time,
    /// `Claim::write_note`
    WriteNote,
}

/// A [`Link`] made of code. It has a log of the calls that came through, and can swallow wake-ups.
#[derive(Debug)]
pub struct Line {
    backend: &'static str,
    state: watch::Sender<State>,
    calls: Mutex<Vec<Call>>,
    bells: Mutex<Vec<Weak<WakeSignal>>>,
    wake_ups: AtomicUsize,
    live_claims: AtomicUsize,
    slowest: Mutex<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    faults: Faults,
    mute: bool,
    cuts: u64,
}

impl Line {
    pub(super) fn new(backend: &'static str) -> Self {
        let (state, _) = watch::channel(State { faults: Faults::NONE, mute: false, cuts: 0 });
        Self {
            backend,
            state,
            calls: Mutex::default(),
            bells: Mutex::default(),
            wake_ups: AtomicUsize::new(0),
            live_claims: AtomicUsize::new(0),
            slowest: Mutex::default(),
        }
    }

    /// Swallows wake-ups from now on, or passes them on again.
    pub fn set_mute(&self, mute: bool) {
        self.state.send_modify(|state| state.mute = mute);
    }

    /// How many wake-ups the backend has sent since the last call of this.
    pub fn take_wake_ups(&self) -> usize {
        self.wake_ups.swap(0, SeqCst)
    }

    pub(super) fn woke(&self) {
        self.wake_ups.fetch_add(1, SeqCst);
    }

    /// How many claims live. The claim of an abandoned call lives until its attempt has ended and
    /// the background task has removed the attempt's effects.
    #[must_use]
    pub fn live_claims(&self) -> usize {
        self.live_claims.load(SeqCst)
    }

    pub(super) fn claim_born(&self) {
        self.live_claims.fetch_add(1, SeqCst);
    }

    pub(super) fn claim_died(&self) {
        self.live_claims.fetch_sub(1, SeqCst);
    }

    /// Wakes each live claim, without a reason.
    pub fn wake_all(&self) {
        let bells = mem::take(&mut *self.bells.lock().unwrap_or_else(PoisonError::into_inner));
        for signal in bells.iter().filter_map(Weak::upgrade) {
            signal.outer.wake();
        }
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).extend(bells);
    }

    /// The log since the last call of this, in the order in which the backend got the calls.
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The longest time that the core has waited for an answer, whether it came or not. Renewals do
    /// not count.
    pub(crate) fn slowest(&self) -> Duration {
        *self.slowest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_mute(&self) -> bool {
        self.state.borrow().mute
    }

    pub(super) fn signal(self: &Arc<Self>, outer: Wake) -> Arc<WakeSignal> {
        let signal = Arc::new(WakeSignal { line: Arc::clone(self), outer });
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|signal| signal.strong_count() > 0);
        bells.push(Arc::downgrade(&signal));
        signal
    }

    /// Carries a request to the backend, and its reply back, as far as the faults let them.
    pub(super) async fn carry<T>(
        &self,
        owner: Option<OwnerId>,
        op: Op,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let _timed = Timed { line: self, op, asked: Instant::now() };
        let cuts = self.state.borrow().cuts;
        let mut state = self.state.subscribe();
        let faults = state.borrow().faults;
        if faults.refuse {
            return Err(
                Error::new(ErrorKind::Unavailable, "connection refused").with_backend(self.backend)
            );
        }
        let journey = async {
            pause(faults.request_delay).await;
            drop(state.wait_for(|s| !s.faults.hold_requests).await);
            let call = Call { owner, op, at: Instant::now() };
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            let reply = request.await;
            let faults = self.state.borrow().faults;
            pause(faults.reply_delay).await;
            if faults.lose_replies {
                drop(state.wait_for(|s| !s.faults.lose_replies).await);
                return Err(self.broken());
            }
            reply
        };
        let mut cut = self.state.subscribe();
        // The cut comes first: a reply that is ready at the cut is lost.
        tokio::select! {
            biased;
            _ = cut.wait_for(|s| s.cuts != cuts) => Err(self.broken()),
            reply = journey => reply,
        }
    }

    fn broken(&self) -> Error {
        Error::new(ErrorKind::Unavailable, "connection reset")
            .with_outcome_unknown()
            .with_backend(self.backend)
    }
}

impl Link for Line {
    fn set(&self, faults: Faults) {
        self.state.send_modify(|state| state.faults = faults);
    }

    fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }
}

/// Measures the time of an answer, also of one that its caller gives up.
struct Timed<'a> {
    line: &'a Line,
    op: Op,
    asked: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        // A renewal that hangs would excuse the loss that it causes.
        if matches!(self.op, Op::KeepAlive | Op::Extend) {
            return;
        }
        let mut slowest = self.line.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        *slowest = slowest.max(self.asked.elapsed());
    }
}

/// Does not sleep for zero, because even such a sleep can cost a millisecond.
async fn pause(length: Duration) {
    if !length.is_zero() {
        sleep(length).await;
    }
}

/// Passes a backend's wake-up on to the core.
pub(super) struct WakeSignal {
    line: Arc<Line>,
    outer: Wake,
}

impl Wakeable for WakeSignal {
    fn wake(self: Arc<Self>) {
        if !self.line.is_mute() {
            self.line.woke();
            self.outer.wake();
        }
    }
}

impl fmt::Debug for WakeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeSignal")
    }
}
