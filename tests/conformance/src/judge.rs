//! Judges whether a short lease was lost by a fault, or because this machine or its store paused
//! for too long.

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    Error, ErrorKind, LockGuard, LockOptions, Locker, Renewal, Result as StoreResult,
};

use crate::{
    env::Env,
    faulty::Line,
    harness::{Faults, Link},
    lock::AnyLock,
    pinger::Pinger,
    stall::StallMeter,
};

/// By how much a lease may be lengthened at most.
const MOST: u32 = 16;

/// A description of the loss of a short lease, and of its time.
pub(crate) type Loss = String;

/// One turn of a case: the length of its lease, the name of its lock, and the slowest answers of
/// the turn.
pub(crate) struct Turn<'a> {
    env: &'a Env,
    pub(crate) ttl: Duration,
    pub(crate) name: String,
    meter: StallMeter,
    pinger: &'a Pinger,
    lines: RefCell<Vec<Arc<Line>>>,
    slowest_answer: Cell<Duration>,
    /// By how much the case itself delays each answer, in addition to that time.
    delay: Cell<Duration>,
    /// How slow the machine and the store may be before a loss is excused.
    patience: Cell<Duration>,
}

/// Runs a case that must not lose a lease of [about](Env::ttl) this length.
///
/// A loss fails the case if neither machine nor store paused for long enough. Otherwise the case
/// has another turn. Its lease is twice as long, or the session's where no lease is longer. A real
/// fault loses that lease, too.
pub(crate) async fn judged(
    env: &Env,
    wanted: Duration,
    case: impl AsyncFn(&Turn<'_>) -> Result<(), Loss>,
) {
    let shortest = env.ttl(wanted);
    let pinger = Pinger::start(env, shortest).await;
    let mut times = 1;
    loop {
        let turn = Turn::begin(env, &pinger, shortest, times);
        let Err(loss) = case(&turn).await else { break };
        assert!(turn.may_lose_it() && times < MOST, "{loss}; {turn}");
        times *= 2;
    }
    pinger.end().await;
}

impl<'a> Turn<'a> {
    fn begin(env: &'a Env, pinger: &'a Pinger, shortest: Duration, times: u32) -> Self {
        // The new name keeps remains of the turn before out of the way.
        let name = if times == 1 { "x".to_owned() } else { format!("x{times}") };
        let ttl = env.at_least(shortest * times);
        pinger.restart();
        Self {
            env,
            ttl,
            name,
            meter: StallMeter::start(),
            pinger,
            lines: RefCell::default(),
            slowest_answer: Cell::default(),
            delay: Cell::default(),
            // In the worst case, two thirds of the lease remain for a renewal. The request and its
            // answer take some turns of threads, and each of them may be late.
            patience: Cell::new(ttl / 6),
        }
    }

    fn may_lose_it(&self) -> bool {
        self.meter.longest() + self.slowest() + self.delay.get() >= self.patience.get()
    }

    /// Delays each answer from now on. This leaves less time for the machine and the store to be
    /// late.
    pub(crate) fn delay_answers(&self, link: &dyn Link, delay: Duration) {
        link.set(Faults { reply_delay: delay, ..Faults::NONE });
        self.delay.set(delay);
    }

    /// The longest wait, also of other claims. Renewals do not count, because a renewal that hangs
    /// would excuse the loss that it causes.
    fn slowest(&self) -> Duration {
        let of_lines = self.lines.borrow().iter().map(|line| line.slowest()).max();
        self.slowest_answer.get().max(of_lines.unwrap_or_default()).max(self.pinger.slowest())
    }

    /// A locker with a connection of its own, whose answers are timed.
    pub(crate) async fn locker(&self) -> Locker {
        self.spied_locker().await.0
    }

    pub(crate) async fn spied_locker(&self) -> (Locker, Arc<Line>) {
        let (locker, line) = self.env.spied_locker().await;
        self.lines.borrow_mut().push(Arc::clone(&line));
        (locker, line)
    }

    /// This turn's lease, renewed.
    pub(crate) fn renewed(&self) -> LockOptions {
        LockOptions::new().with_ttl(self.ttl)
    }

    /// This turn's lease, renewed by requests of a tenth of the lease, so that several of them fit
    /// in.
    pub(crate) fn renewed_by_short_requests(&self) -> LockOptions {
        let op_timeout = self.ttl / 10;
        self.patience.set(op_timeout / 2);
        self.renewed().with_op_timeout(op_timeout)
    }

    /// This turn's lease, without renewals.
    pub(crate) fn fleeting(&self) -> LockOptions {
        self.renewed().with_renewal(Renewal::Manual)
    }

    pub(crate) fn lock(&self, locker: &Locker, options: LockOptions) -> AnyLock {
        self.env.lock(locker, &self.name, options)
    }

    /// An attempt that must be granted, if it is answered within the short time of this lease's
    /// requests.
    pub(crate) async fn take(&self, lock: &AnyLock) -> Result<LockGuard, Loss> {
        let got = self.answer(lock.try_lock()).await?;
        Ok(got.unwrap_or_else(|| panic!("{} is taken", lock.name())))
    }

    /// Measures the time of an answer, which must not be the answer to a renewal. An error may come
    /// of a lease or a request that was too short for the machine.
    pub(crate) async fn answer<T>(
        &self,
        request: impl Future<Output = StoreResult<T>>,
    ) -> Result<T, Loss> {
        let asked = Instant::now();
        let answer = request.await;
        self.slowest_answer.set(self.slowest_answer.get().max(asked.elapsed()));
        answer.map_err(loss_of)
    }

    /// Whether another owner that asks now is granted a lock that these guards hold.
    ///
    /// The store grants before its answer arrives. So the grant came too early if, at the answer, a
    /// deadline from before the request had not passed. It also came too early if a guard still
    /// says that it is held.
    pub(crate) async fn is_granted_beside<T>(
        &self,
        holders: &[LockGuard],
        request: impl Future<Output = StoreResult<Option<T>>>,
    ) -> Result<bool, Loss> {
        let asked = Instant::now();
        let promised =
            holders.iter().filter_map(|guard| asked.checked_add(guard.remaining())).max();
        let granted = self.answer(request).await?.is_some();
        let answered = Instant::now();
        if granted {
            assert!(
                !holders.iter().any(|guard| guard.is_held()),
                "C1: granted to another one beside its holder"
            );
            let early =
                promised.map_or(Duration::ZERO, |end| end.saturating_duration_since(answered));
            assert!(
                early.is_zero(),
                "C1: granted to another one {early:?} before its holder's deadline"
            );
        }
        Ok(granted)
    }
}

/// The text of an error that a paused machine may cause. Any other error is a failure at once.
pub(crate) fn loss_of(error: Error) -> Loss {
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Lost), "{error:?}");
    error.to_string()
}

impl fmt::Display for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ttl, .. } = self;
        let stall = self.meter.longest();
        let slowest = self.slowest();
        write!(
            f,
            "the lease is {ttl:?}; the longest stall was {stall:?}, the slowest answer to others took {slowest:?}"
        )
    }
}
