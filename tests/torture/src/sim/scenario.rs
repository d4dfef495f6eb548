//! The settings of a run, which follow from a seed.

use std::time::Duration;

use lockkit::spi::{Capabilities, Descriptor, LeaseScope, Poll};
use lockkit_conformance::mutant::Flaw;

use super::dice::Dice;
use crate::ear::Ear;

/// All decisions that are made before a run begins.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The source of all random choices.
    pub seed: u64,
    /// The store's flaw, if it is a wrong store.
    pub flaw: Option<Flaw>,
    /// How holders get the loss signal.
    pub ear: Ear,
    /// The number of processes that run at a time.
    pub processes: u32,
    /// Tasks of each process.
    pub tasks: u32,
    /// Claims of each task.
    pub claims: u32,
    /// The sort of the store.
    pub store: StoreSort,
    /// The frequency of each fault.
    pub weather: Weather,
    /// Leases to choose from.
    pub ttls: Vec<Duration>,
    /// The number of a holder's rests, in a thousand, that are longer than its lease.
    pub long_rests: u32,
}

/// The way in which a waiter learns that its turn may have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It asks repeatedly, and leaves nothing in the store.
    Polls,
    /// It queues, and the store wakes it.
    Rung,
    /// It queues, and watches.
    Watches,
    /// It waits inside the store.
    Inside,
}

/// The event that ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// Each lease has its own time.
    Own,
    /// A lease ends with the session of its process, which lasts for this long after each of its
    /// requests.
    Session(Duration),
    /// A lease ends with its process. The store notices the end of the process after this time.
    Bound(Duration),
}

/// The sort of a scripted store.
#[derive(Clone, Copy, Debug)]
pub struct StoreSort {
    /// The way in which a waiter learns that its turn may have come.
    pub waiting: Waiting,
    /// The event that ends a lease.
    pub leases: Leases,
    /// The store supports leases of another length.
    pub extend: bool,
    /// The store transfers the lock inside a process.
    pub transfer: bool,
    /// Tokens can be raised.
    pub raise_token: bool,
    /// The store ignores requests that arrive too late.
    pub not_after: bool,
    /// A retry extends the lease. Otherwise it only returns what is left of the lease.
    pub retry_extends: bool,
    /// A refusal says when the lease of the holder ends.
    pub tells_lapse: bool,
}

/// The number of faults of each kind in a thousand requests or wake-ups.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The least time of a request, one way.
    pub far: Duration,
    /// The longest additional time of a request without a fault.
    pub latency: Duration,
    /// The request gets lost.
    pub lost: u32,
    /// The reply gets lost.
    pub lost_reply: u32,
    /// The request arrives after its sender gave it up.
    pub late: u32,
    /// The request is refused for certain, and may be repeated.
    pub refused: u32,
    /// The request is refused for certain, and for good.
    pub failed: u32,
    /// The request takes many times as long.
    pub slow: u32,
    /// A wake-up gets lost.
    pub deaf: u32,
    /// Pauses, silences, deaths and evictions.
    pub episodes: u32,
}

const CALM: Weather = Weather {
    far: Duration::ZERO,
    latency: Duration::from_millis(2),
    lost: 0,
    lost_reply: 0,
    late: 0,
    refused: 0,
    failed: 0,
    slow: 0,
    deaf: 0,
    episodes: 0,
};

impl Scenario {
    /// The scenario of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let dice = Dice::new(seed, 1);
        let ttls = [60, 120, 250, 500].map(Duration::from_millis);
        let ttls = vec![dice.pick(&ttls), dice.pick(&ttls)];
        let shortest = ttls.iter().copied().min().unwrap_or_default();
        Self {
            seed,
            flaw: None,
            ear: Ear::default(),
            processes: dice.small(2..=3),
            tasks: dice.small(1..=3),
            claims: dice.small(3..=6),
            store: StoreSort::drawn(&dice, shortest),
            weather: Weather::drawn(&dice, shortest),
            ttls,
            long_rests: dice.pick(&[50, 120, 400]),
        }
    }

    /// The same with a flawed store.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// The same with another kind of loss signal.
    #[must_use]
    pub fn with_ear(mut self, ear: Ear) -> Self {
        self.ear = ear;
        self
    }

    pub(super) fn longest_ttl(&self) -> Duration {
        self.ttls.iter().copied().max().unwrap_or_default()
    }
}

impl StoreSort {
    fn drawn(dice: &Dice, shortest_ttl: Duration) -> Self {
        let waiting =
            dice.pick(&[Waiting::Polls, Waiting::Rung, Waiting::Watches, Waiting::Inside]);
        let leases = match dice.small(0..=9) {
            // A real store refuses a ttl below its session's timeout.
            0..=1 => Leases::Session(shortest_ttl),
            2 => Leases::Bound(dice.ms(0..=200)),
            _ => Leases::Own,
        };
        let own = leases == Leases::Own;
        Self {
            waiting,
            leases,
            extend: own && dice.chance(600),
            transfer: dice.chance(500),
            raise_token: dice.chance(200),
            // A late request must lapse. A request whose lease belongs to a session does not lapse
            // while the session lives.
            not_after: !own || dice.chance(500),
            retry_extends: dice.chance(500),
            tells_lapse: dice.chance(500),
        }
    }

    /// Whether waiters wait in order.
    pub(super) fn has_queue(self) -> bool {
        self.waiting != Waiting::Polls
    }

    pub(super) fn longest_poll(self) -> Duration {
        Duration::from_millis(if self.waiting == Waiting::Polls { 100 } else { 600 })
    }

    /// The time that a place in the queue lasts after the last request of its owner.
    pub(super) fn place(self, ttl: Duration) -> Duration {
        ttl.max(self.longest_poll() * 4)
    }

    pub(super) fn descriptor(self) -> Descriptor {
        let mut capabilities = Capabilities {
            exclusive: true,
            shared: true,
            permits: true,
            labels: true,
            notes: true,
            waiter_count: true,
            ..Capabilities::NONE
        };
        capabilities.fair = self.has_queue();
        capabilities.push = self.has_queue();
        capabilities.extend = self.extend;
        capabilities.transfer = self.transfer;
        capabilities.raise_token = self.raise_token;
        let (patience, least) = match self.waiting {
            Waiting::Inside => (Duration::from_millis(150), Duration::from_millis(1)),
            Waiting::Polls => (Duration::ZERO, Duration::from_millis(10)),
            Waiting::Rung | Waiting::Watches => (Duration::ZERO, self.longest_poll()),
        };
        let scope = match self.leases {
            Leases::Own => LeaseScope::Claim,
            Leases::Session(_) => LeaseScope::Session,
            Leases::Bound(_) => LeaseScope::Connection,
        };
        Descriptor {
            capabilities,
            max_patience: patience,
            poll: Poll {
                min: least,
                max: if patience.is_zero() { self.longest_poll() } else { least },
            },
            lease_scope: scope,
            ..Descriptor::new("simulated")
        }
    }
}

impl Weather {
    /// Whether each request and each wake-up gets through in time, except while a whole process or
    /// the store is paused.
    pub(super) fn is_fair(&self) -> bool {
        let Self {
            far: _,
            latency: _,
            lost,
            lost_reply,
            late,
            refused,
            failed,
            slow,
            deaf,
            episodes: _,
        } = *self;
        [lost, lost_reply, late, refused, failed, slow, deaf].iter().all(|often| *often == 0)
    }

    /// The same weather without any faults.
    pub(super) fn calmed(self) -> Self {
        Self { far: self.far, latency: self.latency, ..CALM }
    }

    fn drawn(dice: &Dice, shortest_ttl: Duration) -> Self {
        let latency = Duration::from_millis(dice.pick(&[0, 1, 3, 8]));
        // Each way takes a 24th or a tenth of a lease, so a round trip takes a twelfth or a fifth.
        let far =
            if dice.chance(150) { shortest_ttl / dice.pick(&[24, 10]) } else { Duration::ZERO };
        let calm = Self { latency, far, ..CALM };
        let strength = dice.pick(&[0, 1, 3, 6]);
        if strength == 0 {
            return calm;
        }
        if dice.chance(150) {
            return Self { episodes: dice.small(100..=400), ..calm };
        }
        let drawn = |most: u32| if dice.chance(600) { dice.small(1..=most * strength) } else { 0 };
        Self {
            lost: drawn(12),
            lost_reply: drawn(20),
            late: drawn(12),
            refused: drawn(15),
            failed: drawn(3),
            slow: drawn(15),
            deaf: drawn(40),
            episodes: drawn(60),
            ..calm
        }
    }
}
