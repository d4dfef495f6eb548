//! The scripted store as the backend of one virtual process.

use std::{future::pending, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit::{
    Error, FencingToken, LockName, OwnerId, Released, Result,
    spi::{
        Admin, Attempt, Backend, Claim, ClaimSpec, Descriptor, Grant, Inspection, Lease, Note,
        Noted, QueuePolicy, RenewalOutcome, Role, Transferred, Wait,
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    link::{Link, Sort, World, pause},
    row::Asker,
    scenario::Waiting,
    store::Wakes,
};

/// The time after which the backend gives up a request that belongs to no claim.
const PATIENCE: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct Simulator {
    link: Arc<Link>,
    descriptor: Descriptor,
}

impl Simulator {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let descriptor = link.world.store.sort.descriptor();
        Self { link, descriptor }
    }
}

#[async_trait]
impl Backend for Simulator {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let asker = Asker { process: self.link.process, spec };
        let link = Arc::clone(&self.link);
        let life = Arc::clone(&self.link.claims);
        Ok(Box::new(Contender { link, asker, previous: Vec::new(), _life: life }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let link = Arc::clone(&self.link);
        let name = name.clone();
        self.link
            .carry(
                Sort::Other,
                PATIENCE,
                async move { link.world.store.inspect(link.process, &name) },
            )
            .await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let link = Arc::clone(&self.link);
        let name = name.clone();
        self.link
            .carry(Sort::Other, PATIENCE, async move {
                link.world.store.free(link.process, &name, token)
            })
            .await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Admin for Simulator {
    async fn probe(&self) -> Result<Role> {
        self.link.carry(Sort::Other, PATIENCE, async { (Role::Primary, Wakes::new()) }).await
    }
}

/// One claim.
#[derive(Debug)]
struct Contender {
    link: Arc<Link>,
    asker: Asker,
    /// The owners before transfers that got no answer.
    previous: Vec<OwnerId>,
    _life: Arc<()>,
}

impl Contender {
    /// The time after which the core gives up a request that waits in the store.
    fn given_up(&self, waits: Duration) -> Duration {
        self.asker.spec.op_timeout + waits
    }

    /// The time after which the store ignores the request. `None` if the store can't check the
    /// time.
    fn not_after(&self, waits: Duration) -> Option<Instant> {
        self.link.world.store.sort.not_after.then(|| Instant::now() + self.given_up(waits))
    }

    async fn renewed(&self, lease: Duration) -> Result<RenewalOutcome> {
        let world = Arc::clone(&self.link.world);
        let asker = self.asker.clone();
        self.link
            .carry(Sort::Other, self.given_up(Duration::ZERO), async move {
                world.store.renew(&asker, lease)
            })
            .await
    }

    async fn ask(&self, wait: Wait) -> Result<Attempt> {
        let world = Arc::clone(&self.link.world);
        let asker = self.asker.clone();
        let not_after = self.not_after(Duration::ZERO);
        let request = async move {
            if is_past(not_after) {
                return (REFUSED, Wakes::new());
            }
            world.store.attempt(&asker, wait)
        };
        self.link.carry(Sort::Other, self.given_up(Duration::ZERO), request).await
    }

    /// Waits inside the store, and then asks for the rest of the lease.
    async fn wait_inside(&self, patience: Duration) -> Result<Attempt> {
        let world = Arc::clone(&self.link.world);
        let asker = self.asker.clone();
        let not_after = self.not_after(patience);
        let gone = Arc::new(Notify::new());
        let leaves = Arc::clone(&gone);
        let request = async move {
            if is_past(not_after) {
                return ((REFUSED, false), Wakes::new());
            }
            waits(&world, &asker, patience, &leaves).await
        };
        let mut asking =
            std::pin::pin!(self.link.carry(Sort::Other, self.given_up(patience), request));
        let (attempt, waited) = tokio::select! {
            biased;
            answer = &mut asking => answer?,
            () = self.asker.spec.caller.gone() => {
                pause(self.link.world.dice.up_to(self.link.world.weather().latency)).await;
                gone.notify_one();
                asking.await?
            }
        };
        let Attempt::Granted(grant) = attempt else { return Ok(attempt) };
        if !waited || grant.lease == Lease::Session {
            return Ok(attempt);
        }
        let at = self.asker.spec.clock.now();
        // The store has granted the lock by now, even if the following request fails.
        match self.renewed(self.asker.spec.ttl).await.map_err(Error::with_outcome_unknown)? {
            RenewalOutcome::Alive(Lease::For(lasts)) => {
                Ok(Attempt::Granted(Grant { lease: Lease::Proven { at, lasts }, ..grant }))
            }
            RenewalOutcome::Alive(lease) => Ok(Attempt::Granted(Grant { lease, ..grant })),
            RenewalOutcome::Lost(_) => Ok(REFUSED),
        }
    }
}

const REFUSED: Attempt = Attempt::Busy { queued: false, retry_after: None };

fn is_past(not_after: Option<Instant>) -> bool {
    not_after.is_some_and(|not_after| Instant::now() > not_after)
}

/// Runs in the store: waits in the queue for the grant. Returns whether the claim waited.
async fn waits(
    world: &Arc<World>,
    asker: &Asker,
    patience: Duration,
    gone: &Notify,
) -> ((Attempt, bool), Wakes) {
    let stop = Instant::now() + patience;
    let mut waited = false;
    loop {
        let signal = world.store.signal.notified();
        if waited && !world.store.waits(asker) {
            return ((REFUSED, true), Wakes::new());
        }
        let (attempt, wakes) = world.store.attempt(asker, Wait::Queue);
        if let Attempt::Granted(_) = attempt {
            return ((attempt, waited), wakes);
        }
        world.wake(wakes);
        if Instant::now() >= stop {
            let (_, wakes) = world.store.release(asker);
            return ((REFUSED, true), wakes);
        }
        waited = true;
        let until = world.store.changes_at(&asker.spec.name).map_or(stop, |at| at.min(stop));
        tokio::select! {
            biased;
            () = gone.notified() => {
                let (_, wakes) = world.store.release(asker);
                return ((REFUSED, true), wakes);
            }
            () = signal => {}
            () = sleep_until(until) => {}
        }
    }
}

#[async_trait]
impl Claim for Contender {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        match wait {
            Wait::Block(patience) => self.wait_inside(patience).await,
            wait => self.ask(wait).await,
        }
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        self.renewed(lease.unwrap_or(self.asker.spec.ttl)).await
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let world = Arc::clone(&self.link.world);
        let asker = self.asker.clone();
        self.link
            .carry(Sort::Other, self.given_up(Duration::ZERO), async move {
                world.store.raise(&asker, floor)
            })
            .await
    }

    async fn write_note(&mut self, _: &Note) -> Result<Noted> {
        let world = Arc::clone(&self.link.world);
        let asker = self.asker.clone();
        let not_after = self.not_after(Duration::ZERO);
        let request = async move {
            if is_past(not_after) {
                return (Noted::NotHeld, Wakes::new());
            }
            world.store.note(&asker)
        };
        self.link.carry(Sort::Other, self.given_up(Duration::ZERO), request).await
    }

    async fn release(&mut self) -> Result<Released> {
        let world = Arc::clone(&self.link.world);
        let asker = self.asker.clone();
        let previous = self.previous.clone();
        let request = async move {
            let (mut released, mut wakes) = world.store.release(&asker);
            for owner in previous {
                let mut previous = asker.clone();
                previous.spec.owner = owner;
                let (freed, more) = world.store.release(&previous);
                wakes.extend(more);
                if freed == Released::Freed {
                    released = freed;
                }
            }
            (released, wakes)
        };
        self.link.carry(Sort::Release, self.given_up(Duration::ZERO), request).await
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let world = Arc::clone(&self.link.world);
        let from = self.asker.clone();
        let successor = Asker { process: from.process, spec: to.clone() };
        let not_after = self.not_after(Duration::ZERO);
        self.previous.push(from.spec.owner);
        self.asker = successor.clone();
        let request = async move {
            if is_past(not_after) {
                return (Transferred::NotHeld, Wakes::new());
            }
            world.store.transfer(&from, &successor, policy)
        };
        let answer = self.link.carry(Sort::Other, self.given_up(Duration::ZERO), request).await;
        match &answer {
            Ok(Transferred::Granted(_)) => self.previous.clear(),
            Ok(_) => {}
            // The store has certainly not applied the transfer.
            Err(error) if !error.is_outcome_unknown() => {
                if let Some(owner) = self.previous.pop() {
                    self.asker.spec.owner = owner;
                }
            }
            Err(_) => {}
        }
        answer
    }

    async fn changed(&mut self) {
        let World { store, .. } = &*self.link.world;
        if store.sort.waiting != Waiting::Watches {
            return pending().await;
        }
        store.signal.notified().await;
        if self.link.world.dice.chance(self.link.world.weather().deaf) {
            self.link.world.log.count("wake-up lost");
            return pending().await;
        }
        pause(self.link.world.dice.up_to(self.link.world.weather().latency)).await;
        if self.link.is_dead() {
            return pending().await;
        }
    }
}
