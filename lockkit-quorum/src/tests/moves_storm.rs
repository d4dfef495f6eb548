//! A move at random. Services of two consecutive configurations use stores that are late, silent or
//! down. Calls are cut, leases run out, and processes die.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_core::{
    Clock, Tick,
    chance::below as any,
    fake::{Fake, Fault, Op},
    spi::{Attempt, Claim, Grant, RenewalOutcome, Wait},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    members::{OP_TIMEOUT, TTL, advance, member, ms, spec},
    moves::{BASED, Config, RAISED, Stores, unraised},
    storm::storm_seed,
};

/// Each round has three moves between stores that can raise tokens, and one to a store that cannot.
/// All moves go there and back.
const ROUNDS: usize = 10;
const SERVICES: usize = 5;
/// The turns of each service in each step.
const TURNS: usize = 15;

/// The resource that the lock protects.
#[derive(Default)]
struct Register {
    grants: usize,
    largest: u64,
    inside: Vec<(u64, Tick)>,
    faults: Vec<String>,
}

impl Register {
    fn enter(&mut self, config: Config, token: u64, until: Tick) {
        let now = Clock::Tokio.now();
        if let Some((other, _)) = self.inside.iter().find(|(_, until)| *until > now) {
            self.faults.push(format!("C1: {token} of {config:?} came while {other} was there"));
        }
        if token <= self.largest {
            self.faults.push(format!("C4: {token} of {config:?} after {}", self.largest));
        }
        (self.grants, self.largest) = (self.grants + 1, self.largest.max(token));
        self.inside.push((token, until));
    }

    fn stay(&mut self, token: u64, longer: Tick) {
        let stays = self.inside.iter_mut().filter(|(inside, _)| *inside == token);
        stays.for_each(|(_, until)| *until = longer.max(*until));
    }

    fn leave(&mut self, token: u64) {
        self.inside.retain(|(inside, _)| *inside != token);
    }
}

struct World {
    stores: Stores,
    register: Mutex<Register>,
}

impl World {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, config: Config) {
        let (backend, base) = self.stores.of(config);
        let mut claim = backend.claim(spec("x")).unwrap();
        if let Some((asked, grant)) = ask(&mut *claim).await {
            let token = grant.token.get() + base;
            let until = grant.lease.deadline(asked);
            if until > Clock::Tokio.now() {
                self.register().enter(config, token, until);
                self.hold(&mut *claim, token, until).await;
                self.register().leave(token);
            }
        }
        if any(40) == 0 {
            // The process ends, and its grants stay.
            mem::forget(claim);
        } else {
            let _ = timeout(OP_TIMEOUT * 2, claim.release()).await;
        }
    }

    async fn hold(&self, claim: &mut dyn Claim, token: u64, mut until: Tick) {
        for _ in 0..any(4) {
            sleep(if any(6) == 0 { TTL / 2 } else { ms(any(300)) }).await;
            let sent = Clock::Tokio.now();
            if sent >= until {
                return;
            }
            let outcome = timeout(OP_TIMEOUT, claim.renew(None)).await;
            if Clock::Tokio.now() >= until {
                return;
            }
            match outcome {
                Ok(Ok(RenewalOutcome::Alive(lease))) => {
                    until = until.max(lease.deadline(sent));
                    self.register().stay(token, until);
                }
                Ok(Ok(RenewalOutcome::Lost(_))) => return,
                _ => {}
            }
        }
    }
}

/// Asks some times. A call may be cut off.
async fn ask(claim: &mut dyn Claim) -> Option<(Tick, Grant)> {
    for _ in 0..=any(3) {
        let asked = Clock::Tokio.now();
        let cut = if any(4) == 0 { ms(any(1_500)) } else { OP_TIMEOUT * 3 };
        match timeout(cut, claim.attempt(Wait::No)).await {
            Ok(Ok(Attempt::Granted(grant))) => return Some((asked, grant)),
            Ok(Ok(_)) => sleep(ms(any(4_000))).await,
            Ok(Err(_)) | Err(_) => {}
        }
    }
    None
}

async fn disturb(fakes: [Fake; 2]) {
    loop {
        for fake in &fakes {
            for op in [Op::Attempt, Op::KeepAlive, Op::RaiseToken, Op::Release] {
                fake.always(op, any_act());
            }
        }
        sleep(ms(any(60))).await;
    }
}

fn any_act() -> Fault {
    match any(50) {
        0 => Fault::SlowRequest(ms(any(900))),
        1 => Fault::SlowReply(ms(any(900))),
        2 => Fault::SlowRequest(ms(any(40))),
        3 => Fault::SlowReply(ms(any(40))),
        4 => Fault::Hang,
        5 => Fault::HangAfter,
        6 => Fault::DOWN,
        _ => Fault::Pass,
    }
}

/// Runs the steps of a move, in one direction or there and back.
async fn storm(stores: Stores, steps: impl IntoIterator<Item = Config>) -> Register {
    let world = Arc::new(World { stores, register: Mutex::default() });
    let steps: Vec<_> = steps.into_iter().collect();
    for pair in steps.windows(2) {
        let pair = [pair[0], pair[1]];
        let mut services = JoinSet::new();
        for _ in 0..SERVICES {
            let world = Arc::clone(&world);
            services.spawn(async move {
                for _ in 0..TURNS {
                    world.turn(pair[usize::from(any(2) == 0)]).await;
                    sleep(ms(any(20))).await;
                }
            });
        }
        let Stores { new, old } = &world.stores;
        let faults = tokio::spawn(disturb([new.clone(), old.clone()]));
        services.join_all().await;
        faults.abort();
        let _ = faults.await;
        new.all(Fault::Pass);
        old.all(Fault::Pass);
        sleep(TTL * 4).await;
        let token = world.stores.turn(pair[1]).await.unwrap().get();
        world.register().enter(pair[1], token, Clock::Tokio.now());
    }
    mem::take(&mut *world.register())
}

fn and_back<const N: usize>(steps: [Config; N]) -> impl Iterator<Item = Config> {
    steps.into_iter().chain(steps.into_iter().rev().skip(1))
}

#[tokio::test(start_paused = true)]
async fn c1_c4_a_move_in_a_storm_breaks_nothing() {
    let _seeded = storm_seed();
    for _ in 0..ROUNDS {
        for (new, old) in [(0, 0), (0, 5_000), (5_000, 0)] {
            let stores = Stores::new(member(), member());
            advance(&stores.new, new).await;
            advance(&stores.old, old).await;
            let register = storm(stores, and_back(RAISED)).await;
            println!("{new} and {old}: {} grants", register.grants);
            assert_eq!(register.faults, [""; 0], "{new} and {old}");
            assert!(register.grants > 10, "{} grants", register.grants);
        }
        let stores = Stores::new(unraised(), member());
        advance(&stores.old, 9_000).await;
        let register = storm(stores, and_back(BASED)).await;
        assert_eq!(register.faults, [""; 0], "with a base");
        assert!(register.grants > 10, "{} grants", register.grants);
    }
}

/// Proves that the storm finds the fault that it looks for.
#[tokio::test(start_paused = true)]
async fn c4_a_move_in_a_storm_without_the_raise_is_seen_to_fall() {
    let _seeded = storm_seed();
    let stores = Stores::new(unraised(), unraised());
    advance(&stores.old, 5_000).await;
    let register = storm(stores, RAISED).await;
    assert!(register.faults.iter().any(|fault| fault.starts_with("C4")), "{:?}", register.faults);
}
