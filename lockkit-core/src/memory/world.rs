//! Holds what the tests of the model share: a store under a clock that only the tests move, and
//! claims that count their wake-ups.

use std::{
    mem,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::store::Store;
use crate::{
    clock::Tick,
    error::Result,
    name::{Kind, LockName},
    spi::{
        Attempt, ClaimSpec, Inspection, Lease, Mode, Released, RenewalOutcome, Wait, Wake, Wakeable,
    },
    token::{FencingToken, OwnerId},
};

pub(super) const TTL: Duration = Duration::from_secs(10);
pub(super) const FIRST_TOKEN: u64 = 1_000;

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn permits(count: u32, limit: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).unwrap();
    Mode::Permits { count: number(count), limit: number(limit) }
}

pub(super) fn spec(mode: Mode) -> ClaimSpec {
    let name = LockName::new(Kind::Mutex, "orders/42").unwrap();
    ClaimSpec::new(name, OwnerId::random(), mode, TTL, secs(1))
}

/// Counts its wake-ups.
#[derive(Debug, Default)]
pub(super) struct WakeSignal(AtomicUsize);

impl Wakeable for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl WakeSignal {
    /// Returns how often the claim was woken since the last call.
    pub(super) fn wakes(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) spec: ClaimSpec,
    signal: Arc<WakeSignal>,
}

impl Client {
    pub(super) fn new(mode: Mode) -> Self {
        Self::with_spec(spec(mode))
    }

    pub(super) fn with_spec(mut spec: ClaimSpec) -> Self {
        let signal = Arc::default();
        spec.wake = Wake::to(&signal);
        Self { spec, signal }
    }

    pub(super) fn wakes(&self) -> usize {
        self.signal.wakes()
    }
}

pub(super) fn clients<const N: usize>(modes: [Mode; N]) -> [Client; N] {
    modes.map(Client::new)
}

/// Returns how often each client was woken since the last call.
pub(super) fn wakes<const N: usize>(clients: [&Client; N]) -> [usize; N] {
    clients.map(Client::wakes)
}

pub(super) struct World {
    store: Store,
    pub(super) now: Tick,
    wakes: Vec<Wake>,
}

impl World {
    pub(super) fn new() -> Self {
        Self { store: Store::new(FIRST_TOKEN - 1), now: Tick::from_nanos(1), wakes: Vec::new() }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub(super) fn try_attempt(&mut self, client: &Client, wait: Wait) -> Result<Attempt> {
        let answer = self.store.attempt(&client.spec, wait, self.now, &mut self.wakes);
        self.wake();
        answer
    }

    pub(super) fn attempt(&mut self, client: &Client, wait: Wait) -> Attempt {
        self.try_attempt(client, wait).unwrap()
    }

    /// Attempts, and expects a grant.
    pub(super) fn win(&mut self, client: &Client) -> u64 {
        match self.attempt(client, Wait::Queue) {
            Attempt::Granted(grant) => grant.token.get(),
            busy => panic!("{busy:?}"),
        }
    }

    /// Attempts, and expects a place in the queue.
    pub(super) fn queue(&mut self, client: &Client) -> Duration {
        match self.attempt(client, Wait::Queue) {
            Attempt::Busy { queued: true, retry_after: Some(time) } => time,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn queue_all<const N: usize>(&mut self, clients: [&Client; N]) {
        for client in clients {
            self.queue(client);
        }
    }

    /// Attempts without waiting, and expects that the lock is taken.
    pub(super) fn fail(&mut self, client: &Client) {
        let answer = self.attempt(client, Wait::No);
        assert!(matches!(answer, Attempt::Busy { queued: false, .. }), "{answer:?}");
    }

    pub(super) fn keep_alive(&mut self, client: &Client) -> RenewalOutcome {
        let outcome = self.store.keep_alive(&client.spec, self.now, &mut self.wakes);
        self.wake();
        outcome
    }

    pub(super) fn release(&mut self, client: &Client) -> Released {
        let released = self.store.release(&client.spec, self.now, &mut self.wakes);
        self.wake();
        released
    }

    pub(super) fn force_release(&mut self, client: &Client, token: u64) -> Released {
        let token = FencingToken::new(token);
        let released =
            self.store.force_release(&client.spec.name, token, self.now, &mut self.wakes);
        self.wake();
        released
    }

    pub(super) fn inspect(&self, client: &Client) -> Inspection {
        self.inspect_name(&client.spec.name)
    }

    pub(super) fn inspect_name(&self, name: &LockName) -> Inspection {
        self.store.inspect(name, self.now)
    }

    /// The number of names in use, after a sweep.
    pub(super) fn names(&mut self) -> usize {
        let names = self.store.len(self.now, &mut self.wakes);
        self.wake();
        names
    }

    /// The number of names with a record, without a sweep.
    pub(super) fn records(&self) -> usize {
        self.store.records()
    }

    pub(super) fn has_record(&self, name: &LockName) -> bool {
        self.store.has_record(name)
    }

    fn wake(&mut self) {
        mem::take(&mut self.wakes).iter().for_each(Wake::wake);
    }
}

pub(super) fn alive(time: Duration) -> RenewalOutcome {
    RenewalOutcome::Alive(Lease::For(time))
}
