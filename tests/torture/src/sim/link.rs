//! The connection between one virtual process and the store. A request travels independently of its
//! sender. The store may receive and apply it long after the sender gave it up.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit::{Error, ErrorKind, Result};
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};

use super::{
    dice::Dice,
    log::{Log, lock},
    scenario::{Leases, Weather},
    store::{Store, Wakes},
};

/// The state that all processes share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) store: Store,
    pub(super) log: Arc<Log>,
    pub(super) dice: Dice,
    weather: Mutex<Weather>,
    silent_until: Mutex<Instant>,
    links: Mutex<Vec<Arc<Link>>>,
}

impl World {
    pub(super) fn new(store: Store, log: Arc<Log>, dice: Dice, weather: Weather) -> Arc<Self> {
        let weather = Mutex::new(weather);
        let silent_until = Mutex::new(Instant::now());
        Arc::new(Self { store, log, dice, weather, silent_until, links: Mutex::default() })
    }

    pub(super) fn weather(&self) -> Weather {
        *lock(&self.weather)
    }

    /// Stops all faults of requests and wake-ups.
    pub(super) fn calm(&self) {
        let calm = self.weather().calmed();
        *lock(&self.weather) = calm;
    }

    /// The store does nothing until then.
    pub(super) fn fall_silent(&self, until: Instant) {
        *lock(&self.silent_until) = until;
    }

    async fn awake(&self) {
        let until = *lock(&self.silent_until);
        sleep_until(until).await;
    }

    /// Sends the wake-ups. Each one arrives a little later, or gets lost.
    pub(super) fn wake(self: &Arc<Self>, wakes: Wakes) {
        for (process, wake) in wakes {
            let weather = self.weather();
            if self.dice.chance(weather.deaf) {
                self.log.count("wake-up lost");
                continue;
            }
            let link =
                lock(&self.links).iter().find(|link| link.process == process).map(Arc::clone);
            let delay = self.dice.up_to(weather.latency);
            if delay.is_zero() && link.is_none() {
                wake.wake();
                continue;
            }
            tokio::spawn(async move {
                pause(delay).await;
                if let Some(link) = link {
                    link.thawed().await;
                    if link.is_dead() {
                        return;
                    }
                }
                wake.wake();
            });
        }
    }
}

/// The connection of one process.
pub(super) struct Link {
    pub(super) world: Arc<World>,
    pub(super) process: u32,
    paused_until: Mutex<Instant>,
    dead: Mutex<bool>,
    /// Has one more reference for each live claim.
    pub(super) claims: Arc<()>,
}

/// The sort of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Never refused for good, because a holder without the right to release would keep the lock
    /// until its lease ends.
    Release,
    Other,
}

/// The fate of one request.
enum Fate {
    Refused(ErrorKind),
    Lost,
    /// The time to the store and, unless the reply is lost, the time back.
    Arrives(Duration, Option<Duration>),
}

impl Link {
    pub(super) fn new(world: Arc<World>, process: u32) -> Arc<Self> {
        let paused_until = Mutex::new(Instant::now());
        let dead = Mutex::default();
        let link = Arc::new(Self { world, process, paused_until, dead, claims: Arc::default() });
        lock(&link.world.links).push(Arc::clone(&link));
        link
    }

    /// Holds requests and replies back until then.
    pub(super) fn pause(&self, until: Instant) {
        *lock(&self.paused_until) = until;
    }

    /// From here on the process sends and receives nothing.
    pub(super) fn die(&self) {
        *lock(&self.dead) = true;
    }

    pub(super) fn is_dead(&self) -> bool {
        *lock(&self.dead)
    }

    /// The number of live claims.
    pub(super) fn live_claims(&self) -> usize {
        Arc::strong_count(&self.claims) - 1
    }

    pub(super) async fn thawed(&self) {
        let until = *lock(&self.paused_until);
        sleep_until(until).await;
    }

    fn fate(&self, sort: Sort, given_up: Duration) -> Fate {
        let World { dice, log, .. } = &*self.world;
        let weather = self.world.weather();
        let way = |slow: bool| {
            let latency = weather.far + dice.up_to(weather.latency);
            if slow { latency + dice.up_to(given_up) } else { latency }
        };
        if dice.chance(weather.refused) {
            log.count("refused");
            return Fate::Refused(dice.pick(&[ErrorKind::Unavailable, ErrorKind::StoreLoading]));
        }
        if sort != Sort::Release && dice.chance(weather.failed) {
            log.count("failed for good");
            return Fate::Refused(ErrorKind::PermissionDenied);
        }
        if dice.chance(weather.lost) {
            log.count("request lost");
            return Fate::Lost;
        }
        if dice.chance(weather.late) {
            log.count("request late");
            return Fate::Arrives(given_up + dice.ms(1..=300), Some(way(false)));
        }
        let slow = dice.chance(weather.slow);
        if slow {
            log.count("slow");
        }
        let there = way(slow && dice.chance(500));
        if dice.chance(weather.lost_reply) {
            log.count("reply lost");
            return Fate::Arrives(there, None);
        }
        Fate::Arrives(there, Some(way(slow)))
    }

    /// Brings a request to the store and its answer back, unless one of them gets lost. `given_up`
    /// is the time when the sender stops waiting for the answer.
    pub(super) async fn carry<T: Send + 'static>(
        self: &Arc<Self>,
        sort: Sort,
        given_up: Duration,
        request: impl Future<Output = (T, Wakes)> + Send + 'static,
    ) -> Result<T> {
        let World { dice, log, .. } = &*self.world;
        log.count("requests");
        for _ in 0..dice.number(0..=2) {
            yield_now().await;
        }
        let (there, back) = match self.fate(sort, given_up) {
            Fate::Refused(kind) => {
                pause(dice.up_to(self.world.weather().latency)).await;
                return Err(Error::new(kind, "the simulated weather refused the request"));
            }
            Fate::Lost => return self.no_reply().await,
            Fate::Arrives(there, back) => (there, back),
        };
        let (reply, answer) = oneshot::channel();
        let link = Arc::clone(self);
        tokio::spawn(async move {
            if link.is_dead() {
                return;
            }
            link.thawed().await;
            pause(there).await;
            link.world.awake().await;
            // The request ends with the connection if the leases are bound to it.
            if link.is_dead() && matches!(link.world.store.sort.leases, Leases::Bound(_)) {
                return;
            }
            let (done, wakes) = request.await;
            link.world.wake(wakes);
            let Some(back) = back else { return };
            pause(back).await;
            link.thawed().await;
            // A sender that gave up the request no longer listens.
            let _ = reply.send(done);
        });
        match answer.await {
            Ok(_) if self.is_dead() => std::future::pending().await,
            Ok(done) => Ok(done),
            Err(_) => self.no_reply().await,
        }
    }

    /// Either never returns, or returns the error of a broken connection.
    async fn no_reply<T>(&self) -> Result<T> {
        if self.is_dead() || self.world.dice.chance(500) {
            std::future::pending::<()>().await;
        }
        pause(self.world.dice.ms(0..=10)).await;
        Err(Error::new(ErrorKind::Unavailable, "the connection broke").with_outcome_unknown())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Even a sleep of zero can cost a millisecond.
pub(super) async fn pause(length: Duration) {
    if !length.is_zero() {
        sleep(length).await;
    }
}
