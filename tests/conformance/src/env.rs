//! The environment of a case: its store, lockers, leases and bounds.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lockkit_core::{
    Error, ErrorKind, FencingToken, LockGuard, LockName, LockOptions, Locker, LockerBuilder,
    OwnerId, Renewal,
    spi::{Backend, Claim, ClaimSpec, Descriptor, Inspection, LeaseScope, Mode, Released, Wait},
};

use tokio::time::{sleep, timeout};

use crate::{
    answers::slowest_of,
    faulty::{Faulty, Line},
    harness::{BoxError, Harness, Link, Store},
    lock::{AnyLock, Flavor},
    wait::{STEP, a_minute, eventually, ms, soon},
};

/// A lease that ends several times during a case.
pub(crate) const BRIEF: Duration = ms(60);
/// A lease with time for several requests and renewals on a busy machine.
pub(crate) const SHORT: Duration = ms(1_000);
/// A lease with time for requests that a fault delays. No case waits for its end.
pub(crate) const AMPLE: Duration = ms(10_000);

/// The least lease, in answers of the store: a busy disk is not the subject of a test.
const ANSWERS_IN_A_LEASE: u32 = 20;
/// A request's time, longer than any pause of a store that pauses for seconds.
pub(crate) const OP_TIMEOUT: Duration = ms(10_000);
/// A request gets a third of the lease by default. A third of this lease is more than the two
/// seconds for which servers pause under stress. A case repeats its request where the store was
/// slower.
pub(crate) const LONGEST_SHORT_LEASE: Duration = ms(12_000);
const ANSWERS_IN_A_BOUND: u32 = 2;
const LONGEST_BOUND: Duration = ms(5_000);
const ANSWERS_IN_A_MOMENT: u32 = 10;
const SHORTEST_MOMENT: Duration = ms(100);
/// A request whose timeout is several moments must fit into the lease of [`long`].
const LONGEST_MOMENT: Duration = ms(500);

/// One case's own store, the lock that it runs over, and shortcuts. A case fails by a panic.
#[derive(Clone)]
pub(crate) struct Env(Arc<Inner>);

struct Inner {
    pub(crate) harness: Box<dyn Harness>,
    descriptor: Descriptor,
    flavor: Flavor,
    /// The slowest of this site's recent answers.
    slowest_answer: Duration,
    names: Mutex<BTreeSet<LockName>>,
    faulty_lockers: Mutex<Vec<Locker>>,
}

impl Env {
    /// # Errors
    /// The store can't be reached.
    pub(crate) async fn new(
        harness: Box<dyn Harness>,
        store: &dyn Store,
        flavor: Flavor,
    ) -> Result<Self, BoxError> {
        let descriptor = store.descriptor();
        let names = Mutex::default();
        let faulty_lockers = Mutex::default();
        let slowest_answer = Duration::ZERO;
        let mut inner =
            Inner { harness, descriptor, flavor, slowest_answer, names, faulty_lockers };
        let answer = in_the_end(async || inner.measure().await).await?;
        inner.slowest_answer = slowest_of(&store.site(), answer);
        Ok(Self(Arc::new(inner)))
    }

    pub(crate) fn harness(&self) -> &dyn Harness {
        &*self.0.harness
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    pub(crate) fn flavor(&self) -> Flavor {
        self.0.flavor
    }

    /// How long a waiter may sleep without a wake-up.
    pub(crate) fn poll(&self) -> Duration {
        self.descriptor().poll.max.mul_f64(1.25)
    }

    /// Whether all claims end only with their session.
    pub(crate) fn has_session_leases(&self) -> bool {
        self.descriptor().lease_scope == LeaseScope::Session
    }

    /// How long a case lets others act, in which time the store answers several times.
    pub(crate) fn moment(&self) -> Duration {
        let answers = self.0.slowest_answer * ANSWERS_IN_A_MOMENT;
        answers.clamp(SHORTEST_MOMENT, LONGEST_MOMENT)
    }

    /// Lets others act where a case can't observe them.
    pub(crate) async fn pause(&self) {
        sleep(self.moment()).await;
    }

    /// Delays before, during and after a request of this store.
    pub(crate) fn delays(&self) -> [Duration; 5] {
        let moment = self.moment();
        [Duration::ZERO, STEP, moment / 20, moment / 5, moment]
    }

    /// As [`patience`](Self::patience), or longer where the store has paused lately. It is for
    /// requests that a case expects to time out during a fault, and to be answered before and after
    /// it.
    pub(crate) fn bound(&self) -> Duration {
        let answers = self.0.slowest_answer * ANSWERS_IN_A_BOUND;
        answers.clamp(self.patience(), LONGEST_BOUND)
    }

    /// A bound for a call or a request that a case expects to time out.
    pub(crate) fn patience(&self) -> Duration {
        self.moment() * 3
    }

    /// Waits until the store has seen this many waiters.
    pub(crate) async fn queued(
        &self,
        count: usize,
        inspect: impl AsyncFn() -> lockkit_core::Result<Inspection>,
    ) {
        if !self.descriptor().capabilities.waiter_count {
            return self.pause().await;
        }
        eventually(soon(), async || match inspect().await.unwrap().waiters {
            Some(waiters) if usize::try_from(waiters) == Ok(count) => Ok(()),
            waiters => Err(format!("{waiters:?} wait, not {count}")),
        })
        .await;
    }

    /// A lease of this length, or longer where the store's answers are slow or its leases are
    /// longer. A case must derive its waits and assertions from the returned length.
    pub(crate) fn ttl(&self, wanted: Duration) -> Duration {
        let answers = self.0.slowest_answer * ANSWERS_IN_A_LEASE;
        // Redis counts a lease in whole milliseconds, and the cases compare leases exactly.
        let answers = answers - Duration::from_nanos(u64::from(answers.subsec_nanos() % 1_000_000));
        self.at_least(wanted.max(answers.min(LONGEST_SHORT_LEASE)))
    }

    /// The store's only lease, where it has just one; otherwise this length, or the store's least
    /// lease if that is longer.
    pub(crate) fn at_least(&self, wanted: Duration) -> Duration {
        let shortest = self.descriptor().min_ttl;
        // A session's timeout is the same for each claim on it.
        if self.has_session_leases() && !shortest.is_zero() {
            shortest
        } else {
            wanted.max(shortest)
        }
    }

    /// A lease of [about](Self::ttl) this length, without renewals.
    pub(crate) fn fleeting(&self, wanted: Duration) -> LockOptions {
        LockOptions::new().with_ttl(self.ttl(wanted)).with_renewal(Renewal::Manual)
    }

    /// A lease that no case outlives, and that no driver renews.
    ///
    /// A session's timeout is shorter than that: there the lease is renewed, because a case may
    /// outlive it.
    pub(crate) fn unrenewed(&self) -> LockOptions {
        if self.has_session_leases() { long() } else { long().with_renewal(Renewal::Manual) }
    }

    /// This many rounds with a [`BRIEF`] lease, or fewer where the store makes each round longer.
    /// There are at least two rounds, because the second shows what the first has left behind.
    pub(crate) fn rounds(&self, wanted: usize) -> usize {
        let times = self.ttl(BRIEF).div_duration_f64(BRIEF).clamp(1.0, 4.0);
        wanted.div_ceil(if times < 2.0 { 1 } else { 4 }).max(2)
    }

    /// A locker with a connection of its own.
    pub(crate) async fn locker(&self) -> Locker {
        self.built_locker(|builder| builder).await
    }

    /// As [`locker`](Self::locker), with settings that are chosen before its first use.
    pub(crate) async fn built_locker(
        &self,
        choose: impl FnOnce(LockerBuilder) -> LockerBuilder,
    ) -> Locker {
        patient(choose(Locker::builder(self.backend().await)).build())
    }

    pub(crate) async fn backend(&self) -> Arc<dyn Backend> {
        in_the_end(async || self.harness().connect().await).await.expect("the store can be reached")
    }

    /// A locker whose connection can be broken. It has been used, so the store already knows what
    /// it must learn first, such as a script.
    pub(crate) async fn faulty_locker(&self) -> (Locker, Arc<dyn Link>) {
        let connected = in_the_end(async || self.harness().connect_through_faults().await).await;
        let (backend, link) = connected.expect("the store can be reached");
        let locker = patient(Locker::builder(backend).build());
        self.0.faulty_lockers.lock().unwrap_or_else(PoisonError::into_inner).push(locker.clone());
        give_back(take(&self.lock(&locker, "used before", long())).await).await;
        (locker, link)
    }

    /// Waits for the work that the case left to lockers whose connection ends with the harness.
    pub(crate) async fn shut_faulty_lockers_down(&self) -> Result<(), String> {
        let lockers = std::mem::take(
            &mut *self.0.faulty_lockers.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for locker in lockers {
            // The outcome of a request without an answer may only be certain when no task carries
            // the request out any more.
            let shutdown = timeout(OP_TIMEOUT + soon(), locker.shutdown()).await;
            let outcome = shutdown.map_err(|_| "C6: the shutdown of a locker hangs".to_owned())?;
            outcome.map_err(|error| format!("C6: the shutdown of a locker failed: {error}"))?;
        }
        Ok(())
    }

    /// A locker whose calls between core and backend are recorded and can be broken.
    pub(crate) async fn spied_locker(&self) -> (Locker, Arc<Line>) {
        let faulty = Faulty::new(self.backend().await);
        let line = faulty.line();
        (patient(Locker::new(faulty)), line)
    }

    /// The lock of this case's flavor.
    pub(crate) fn lock(&self, locker: &Locker, name: &str, options: LockOptions) -> AnyLock {
        let lock = self.flavor().lock(locker, name, options).expect("a good name and good options");
        self.will_be_free(lock.name());
        lock
    }

    /// A claim of this case's flavor, without the driver.
    pub(crate) fn claim(
        &self,
        backend: &dyn Backend,
        name: &str,
        options: &LockOptions,
    ) -> Box<dyn Claim> {
        self.claim_of(backend, name, options, OwnerId::random(), self.flavor().mode())
    }

    pub(crate) fn claim_of(
        &self,
        backend: &dyn Backend,
        name: &str,
        options: &LockOptions,
        owner: OwnerId,
        mode: Mode,
    ) -> Box<dyn Claim> {
        let name = self.name(name);
        let op_timeout = options.op_timeout().unwrap_or(OP_TIMEOUT);
        let spec = ClaimSpec::new(name, owner, mode, options.ttl(), op_timeout);
        backend.claim(spec).expect("a claim that the capabilities allow")
    }

    /// A name in this case's kind.
    pub(crate) fn name(&self, text: &str) -> LockName {
        let name = LockName::new(self.flavor().kind(), text).expect("a good name");
        self.will_be_free(&name);
        name
    }

    /// Makes the end of the case check that this name is free.
    pub(crate) fn will_be_free(&self, name: &LockName) {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
    }

    pub(crate) fn names(&self) -> Vec<LockName> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Inner {
    /// How long the store takes for an answer: the longest of a few writes, without the first one.
    async fn measure(&self) -> Result<Duration, BoxError> {
        const TIMES: usize = 3;
        let backend = self.harness.connect().await?;
        let name = LockName::new(self.flavor.kind(), "measured")?;
        let mut slowest = Duration::ZERO;
        for time in 0..=TIMES {
            let options = long();
            let owner = OwnerId::random();
            let mode = self.flavor.mode();
            let spec = ClaimSpec::new(name.clone(), owner, mode, options.ttl(), options.ttl() / 3);
            let mut claim = backend.claim(spec)?;
            let start = Instant::now();
            claim.attempt(Wait::No).await?;
            let granted = Instant::now();
            assert_eq!(claim.release().await?, Released::Freed);
            let took = (granted - start).max(granted.elapsed());
            // The first write creates scripts and rows.
            if time > 0 {
                slowest = slowest.max(took);
            }
        }
        backend.close().await?;
        Ok(slowest)
    }
}

/// Repeats a request that the store did not answer: a busy machine is not the subject of a test.
pub(crate) async fn in_the_end<T>(
    ask: impl AsyncFn() -> Result<T, BoxError>,
) -> Result<T, BoxError> {
    let start = Instant::now();
    loop {
        match ask().await {
            Err(_) if start.elapsed() < a_minute() => sleep(ms(50)).await,
            answer => return answer,
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Env").field(&self.0.harness).finish()
    }
}

/// A locker whose requests for operators have a long bound.
fn patient(locker: Locker) -> Locker {
    locker.with_defaults(long()).expect("good options")
}

/// A lease that no case outlives, with requests that a store may answer late.
pub(crate) fn long() -> LockOptions {
    LockOptions::new().with_ttl(ms(30_000)).with_op_timeout(OP_TIMEOUT)
}

/// An attempt that must be granted. A store that pauses for a moment may be too slow for a request,
/// so the attempt is repeated.
pub(crate) async fn take(lock: &AnyLock) -> LockGuard {
    let mut got = None;
    let mut late: Option<Instant> = None;
    eventually(a_minute(), async || {
        match lock.try_lock().await {
            Ok(Some(guard)) => {
                got = Some(guard);
                Ok(())
            }
            // A late attempt may have been applied. The background task removes it before its lease
            // ends.
            Ok(None) if late.is_some_and(|late| late.elapsed() < soon()) => {
                Err(format!("{} stays taken", lock.name()))
            }
            Ok(None) => panic!("{} is taken", lock.name()),
            Err(error) => {
                late = Some(Instant::now());
                Err(too_slow(&error))
            }
        }
    })
    .await;
    got.unwrap()
}

/// Waits for a lock with a [`BRIEF`] lease. The lease doubles while the store is too slow for its
/// requests. A request may also have to open a connection, which takes much longer than the answers
/// that [`Env::ttl`] follows.
pub(crate) async fn lock_briefly(
    env: &Env,
    locker: &Locker,
    name: &str,
    renewal: Renewal,
) -> LockGuard {
    let start = Instant::now();
    let mut ttl = env.ttl(BRIEF);
    loop {
        let options = LockOptions::new().with_ttl(ttl).with_renewal(renewal);
        match env.lock(locker, name, options).lock().await {
            Ok(guard) => return guard,
            Err(error) => {
                let why = too_slow(&error);
                assert!(start.elapsed() < a_minute(), "{why}");
                ttl = env.at_least((ttl * 2).min(LONGEST_SHORT_LEASE));
            }
        }
    }
}

/// Waits for the lock, with requests as short as those of [`take`].
pub(crate) async fn lock_soon(lock: &AnyLock) -> LockGuard {
    let start = Instant::now();
    loop {
        match lock.lock().await {
            Ok(guard) => return guard,
            Err(error) => {
                let why = too_slow(&error);
                assert!(start.elapsed() < a_minute(), "{why}");
            }
        }
    }
}

/// Waits for a lock that another owner holds. The store must refuse it once it has time to answer.
pub(crate) async fn is_refused<T>(wait: impl AsyncFn() -> lockkit_core::Result<Option<T>>) {
    eventually(a_minute(), async || {
        assert!(wait().await.map_err(|error| too_slow(&error))?.is_none(), "C1: granted twice");
        Ok(())
    })
    .await;
}

/// Frees a grant by force, with retries: the store may pause for longer than an operator waits for
/// one answer.
pub(crate) async fn free_by_force(ask: impl AsyncFn() -> lockkit_core::Result<Released>) {
    let mut was_late = false;
    eventually(a_minute(), async || {
        match ask().await {
            Ok(Released::Freed) => {}
            // The request without an answer has freed it.
            Ok(Released::NotHeld) if was_late => {}
            Ok(other) => panic!("C14: {other:?} at the release by force of what is held"),
            Err(error) => {
                was_late = true;
                return Err(too_slow(&error));
            }
        }
        Ok(())
    })
    .await;
}

/// A late answer is no failure; any other error fails the case at once.
pub(crate) fn too_slow(error: &Error) -> String {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    error.to_string()
}

/// Releases a lock that must still be held.
pub(crate) async fn give_back(guard: LockGuard) {
    let name = guard.name().clone();
    let token = guard.fencing_token();
    let released = guard.release().await;
    released.unwrap_or_else(|error| panic!("C2: {name} is not token {token}'s: {error}"));
}

/// Waits until the lock is free, and gives it back. The lock must be free before a forgotten lease
/// would end.
pub(crate) async fn becomes_free(lock: &AnyLock) -> FencingToken {
    let mut got = None;
    eventually(soon(), async || {
        got = lock
            .try_lock()
            .await
            .map_err(|error| format!("{} can't be had: {error:?}", lock.name()))?;
        match got {
            Some(_) => Ok(()),
            None => Err(format!("{} stays locked: {:?}", lock.name(), lock.inspect().await)),
        }
    })
    .await;
    let guard = got.unwrap();
    let token = guard.fencing_token();
    give_back(guard).await;
    token
}
