//! Whether a short lease was lost by a fault, or because this machine or its store stood still for
//! so long.

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

/// How many times longer than at first a lease may become.
const MOST: u32 = 16;

/// What the holder of a short lease has lost, and when: to be judged.
pub(crate) type Loss = String;

/// One turn of a case: the length of its lease, the name of its lock, and how slow everything was
/// meanwhile.
pub(crate) struct Turn<'a> {
    env: &'a Env,
    pub(crate) ttl: Duration,
    pub(crate) name: String,
    meter: StallMeter,
    pinger: &'a Pinger,
    lines: RefCell<Vec<Arc<Line>>>,
    slowest_answer: Cell<Duration>,
    /// How much later than that the case itself makes each answer.
    delay: Cell<Duration>,
    /// So slow may everything be without an excuse.
    patience: Cell<Duration>,
}

/// Runs a case that must not lose a lease of [about](Env::ttl) this length.
///
/// A loss fails the case if nothing stood still for long enough. Else it has another turn, with a
/// lease of twice the length, or of the session's where no lease is longer: what was at fault loses
/// that one, too.
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
        // What is left of the turn before does not get in the way.
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
            // A lease is renewed for two thirds of it at worst. To send that and to hear of it
            // takes some turns of threads and an answer, and each of them may be late.
            patience: Cell::new(ttl / 6),
        }
    }

    fn may_lose_it(&self) -> bool {
        self.meter.longest() + self.slowest() + self.delay.get() >= self.patience.get()
    }

    /// Makes each answer so much later from now on, which leaves less time for others to be late.
    pub(crate) fn delay_answers(&self, link: &dyn Link, delay: Duration) {
        link.set(Faults { reply_delay: delay, ..Faults::NONE });
        self.delay.set(delay);
    }

    /// What kept others waiting, too. No renewal counts: one that hangs would excuse the loss that
    /// it leads to.
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

    /// This turn's lease, renewed by requests of a tenth of it: several of them fit in.
    pub(crate) fn renewed_by_short_requests(&self) -> LockOptions {
        let op_timeout = self.ttl / 10;
        self.patience.set(op_timeout / 2);
        self.renewed().with_op_timeout(op_timeout)
    }

    /// This turn's lease, which nobody renews.
    pub(crate) fn fleeting(&self) -> LockOptions {
        self.renewed().with_renewal(Renewal::Manual)
    }

    pub(crate) fn lock(&self, locker: &Locker, options: LockOptions) -> AnyLock {
        self.env.lock(locker, &self.name, options)
    }

    /// A try that must get it, if it is answered within the short time of this lease's requests.
    pub(crate) async fn take(&self, lock: &AnyLock) -> Result<LockGuard, Loss> {
        let got = self.answer(lock.try_lock()).await?;
        Ok(got.unwrap_or_else(|| panic!("{} is taken", lock.name())))
    }

    /// Times an answer, which must not be that to a renewal; an error may come of a lease or a
    /// request that the machine was too slow for.
    pub(crate) async fn answer<T>(
        &self,
        request: impl Future<Output = StoreResult<T>>,
    ) -> Result<T, Loss> {
        let asked = Instant::now();
        let answer = request.await;
        self.slowest_answer.set(self.slowest_answer.get().max(asked.elapsed()));
        answer.map_err(loss_of)
    }

    /// Whether another one, who asks now, is granted what these hold.
    ///
    /// The store's grant came before its answer: so it came too early if a holder had until then
    /// when it was asked, or thinks so still.
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

/// What an error says that may come of a machine that stood still; any other is a failure at once.
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
