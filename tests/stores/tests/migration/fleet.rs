//! Six services that share three locks, and that are deployed one by one.

use std::{
    array,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lockkit::{LockOptions, Locker, Result};
use lockkit_conformance::{Stay, Witness};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

pub(crate) const NAMES: [&str; 3] = ["orders", "stock", "mail"];
pub(crate) const TTL: Duration = Duration::from_secs(36);
pub(crate) const OP_TIMEOUT: Duration = Duration::from_secs(8);
const SERVICES: usize = 6;
/// How often each service gets each lock between two deploys.
const TURNS: usize = 2;
/// The bound for a turn, which is far shorter.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct World {
    /// One witness for each lock.
    witnesses: [Witness; NAMES.len()],
    faults: Mutex<Vec<String>>,
    /// How often each service got each lock.
    turns: [[AtomicUsize; NAMES.len()]; SERVICES],
}

impl World {
    fn find(&self, fault: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    fn counts(&self) -> [[usize; NAMES.len()]; SERVICES] {
        array::from_fn(|service| array::from_fn(|place| self.turns[service][place].load(SeqCst)))
    }

    /// Waits until each service has had each lock twice more. Panics if a check fails.
    async fn go_on(&self) {
        let before = self.counts();
        let start = Instant::now();
        let behind = |now: [[usize; NAMES.len()]; SERVICES]| {
            let mut pairs = now.iter().flatten().zip(before.iter().flatten());
            pairs.any(|(now, before)| *now < before + TURNS)
        };
        while behind(self.counts()) {
            self.check();
            assert!(
                start.elapsed() < PATIENCE,
                "a service gets no turn: {before:?}, {:?}",
                self.counts()
            );
            sleep(Duration::from_millis(2)).await;
        }
        self.check();
    }

    fn check(&self) {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(faults.is_empty(), "{faults:?}");
        drop(faults);
        for witness in &self.witnesses {
            witness.verify();
        }
    }
}

/// Rolls the fleet from each URL to the next one, and panics if a promise is broken on the way.
pub(crate) async fn roll(urls: &[&str]) {
    let world = Arc::new(World::default());
    let mut services = JoinSet::new();
    let mut orders = Vec::new();
    for service in 0..SERVICES {
        let (order, told) = watch::channel(Some(urls[0].to_owned()));
        services.spawn(serve(service, told, Arc::clone(&world)));
        orders.push(order);
    }
    world.go_on().await;
    for url in &urls[1..] {
        for order in &orders {
            order.send(Some((*url).to_owned())).unwrap();
            world.go_on().await;
        }
    }
    orders.iter().for_each(|order| order.send(None).unwrap());
    timeout(PATIENCE, services.join_all()).await.expect("a service does not end");
    world.check();
}

/// A client whose requests may take long: the first one to a store opens a connection.
pub(crate) async fn connect(url: &str) -> Locker {
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    let connecting = async {
        loop {
            match lockkit::connect(url).await {
                Err(error) if error.is_temporary() => sleep(Duration::from_millis(100)).await,
                locker => return locker.unwrap(),
            }
        }
    };
    let locker = timeout(PATIENCE, connecting).await.expect("no connection");
    locker.with_defaults(options).unwrap()
}

/// Locks, works and releases, again and again; starts anew when it gets another URL.
async fn serve(service: usize, mut told: watch::Receiver<Option<String>>, world: Arc<World>) {
    loop {
        let Some(url) = told.borrow_and_update().clone() else { return };
        let locker = connect(&url).await;
        let mut place = service;
        while !told.has_changed().unwrap() {
            place = (place + 1) % NAMES.len();
            if let Err(error) = work(&locker, service, place, &world).await {
                world.find(format!("{}: {error} (service {service}, {url})", NAMES[place]));
                return;
            }
        }
        locker.shutdown().await.unwrap();
    }
}

async fn work(locker: &Locker, service: usize, place: usize, world: &World) -> Result<()> {
    let guard = locker.mutex(NAMES[place])?.lock_timeout(PATIENCE).await?;
    let mut stay = Stay::begin(&guard);
    sleep(Duration::from_millis(rand::random_range(1..4))).await;
    if !stay.look(&guard) {
        world.find(format!("{}: {} was lost", NAMES[place], stay.token));
    }
    world.witnesses[place].record(stay);
    guard.release().await?;
    world.turns[service][place].fetch_add(1, SeqCst);
    sleep(Duration::from_millis(rand::random_range(5..30))).await;
    Ok(())
}
