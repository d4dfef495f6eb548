//! Many holders and members at random. The members are late, silent or down, lose replies, and have
//! tokens far apart.

use std::{
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit_core::{
    Clock, FencingToken, LockGuard, LockOptions, Locker, OwnerId, Renewal,
    chance::{Seeded, below as any},
    fake::{Fake, Fault},
    spi::Released,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::members::{TTL, advance, fakes, ms, name, of, shown, without_leases};
use crate::Need;

/// In ms.
const SPAN: u64 = 60_000;
const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Stay {
    owner: OwnerId,
    token: FencingToken,
    from: Instant,
    until: Instant,
}

/// The answer to an observer between two instants: the holder, or none.
#[derive(Clone, Copy, Debug)]
struct Look {
    asked: Instant,
    answered: Instant,
    holder: Option<(OwnerId, FencingToken)>,
}

/// The events of a storm, as the participants saw them.
#[derive(Default)]
struct Observed {
    stays: Mutex<Vec<Stay>>,
    looks: Mutex<Vec<Look>>,
    /// The tokens that an operator tried to free, with the time of the answer that the token is not
    /// held.
    not_held: Mutex<Vec<(FencingToken, Look)>>,
    /// The tokens that an operator freed, and the start of that call.
    freed: Mutex<Vec<(FencingToken, Instant)>>,
}

/// Seeds all random choices of the test until the returned value is dropped. The seed is
/// `LOCKKIT_TEST_STORM_SEED`, or a new one; a failing test prints it.
pub(super) fn storm_seed() -> Seeded {
    let seed = env::var("LOCKKIT_TEST_STORM_SEED").map(|text| text.parse().unwrap());
    let seed = seed.unwrap_or_else(|_| rand::random());
    println!("LOCKKIT_TEST_STORM_SEED={seed}");
    Seeded::begin(seed)
}

fn any_act() -> Fault {
    let delay = ms(any(400));
    match any(10) {
        0 => Fault::Hang,
        1 => Fault::HangAfter,
        2 => Fault::DOWN,
        3 => Fault::SlowRequest(delay),
        4 => Fault::SlowReply(delay),
        _ => Fault::Pass,
    }
}

/// Some calls pause for longer than the ttl while their requests are under way.
async fn ask(mutex: &lockkit_core::Mutex, ttl: Duration) -> Option<LockGuard> {
    let mut asking = Box::pin(mutex.lock_timeout(ms(1 + any(1_499))));
    if any(8) == 0 {
        if let Ok(asked) = timeout(ms(any(100)), &mut asking).await {
            return asked.ok();
        }
        sleep(ttl + ms(any(1_000))).await;
    }
    asking.await.ok()
}

async fn compete(locker: Locker, observed: Arc<Observed>, start: Instant) {
    while start.elapsed() < ms(SPAN) {
        let renewal = if any(2) == 0 { Renewal::Auto } else { Renewal::Manual };
        let ttl = ms(300 + any(2_700));
        let options =
            LockOptions::new().with_ttl(ttl).with_op_timeout(ttl / 4).with_renewal(renewal);
        let mutex = locker.mutex("x").unwrap().with_options(options).unwrap();
        if let Some(guard) = ask(&mutex, ttl).await {
            let from = Instant::now();
            let mut stay =
                Stay { owner: guard.owner(), token: guard.fencing_token(), from, until: from };
            let end = from + ms(any(1_500));
            while Instant::now() < end && guard.is_held() {
                stay.until = Instant::now();
                sleep(ms(1 + any(59))).await;
            }
            observed.stays.lock().unwrap().push(stay);
            match any(3) {
                0 => drop(guard),
                1 => drop(timeout(ms(3), guard.release()).await),
                _ => drop(guard.release().await),
            }
        }
    }
}

/// Inspects the lock, and sometimes frees it by force.
async fn observe(locker: Locker, observed: Arc<Observed>, start: Instant) {
    while start.elapsed() < ms(SPAN) {
        sleep(ms(any(100))).await;
        let asked = Instant::now();
        let Ok(seen) = locker.inspect(&name()).await else { continue };
        let holder = seen.holders.first().and_then(|holder| holder.owner.zip(holder.token));
        let look = Look { asked, answered: Instant::now(), holder };
        observed.looks.lock().unwrap().push(look);
        let Some((_, token)) = holder.filter(|_| any(30) == 0) else { continue };
        let asked = Instant::now();
        // A call that failed may have freed it, too.
        let released = locker.force_release(&name(), token).await;
        match released {
            Ok(Released::NotHeld) => {
                let look = Look { asked, answered: Instant::now(), holder: None };
                observed.not_held.lock().unwrap().push((token, look));
            }
            Ok(Released::Freed) | Err(_) => observed.freed.lock().unwrap().push((token, asked)),
        }
    }
}

impl Observed {
    /// Panics if an answer was wrong. Returns the number of stays, and of looks that met one.
    fn verify(&self) -> (usize, usize) {
        let mut stays = self.stays.lock().unwrap().clone();
        // A lock that an operator frees is free, whatever its holder still believes. A stopped call
        // may learn of its grant after that, and even after the next grant. In the order, the grant
        // keeps the place of its token, not the place of the late answer.
        let freed = self.freed.lock().unwrap();
        stays.retain_mut(|stay| {
            let freed =
                freed.iter().filter(|(token, _)| *token == stay.token).map(|(_, at)| *at).min();
            stay.until = freed.map_or(stay.until, |at| stay.until.min(at));
            stay.until >= stay.from
        });
        stays.sort_by_key(|stay| stay.from);
        for pair in stays.windows(2) {
            assert!(pair[0].token < pair[1].token, "C4: {pair:?}");
            assert!(pair[0].until <= pair[1].from, "C1: {pair:?}");
        }
        let looks = self.looks.lock().unwrap();
        let mut hits = 0;
        for look in looks.iter() {
            for stay in stays.iter().filter(|stay| look.asked > stay.from) {
                if let Some((_, token)) = look.holder.filter(|(owner, _)| *owner == stay.owner) {
                    assert_eq!(token, stay.token, "C14: {look:?} of {stay:?}");
                    hits += 1;
                } else {
                    // Both happen in the same instant if an operator freed the lock.
                    assert!(look.answered >= stay.until, "C14: {look:?} during {stay:?}");
                }
            }
        }
        for (token, look) in self.not_held.lock().unwrap().iter() {
            let held = |stay: &&Stay| stay.token == *token && look.asked > stay.from;
            for stay in stays.iter().filter(held) {
                assert!(
                    look.answered >= stay.until,
                    "C14: {look:?} says that {stay:?} is not held"
                );
            }
        }
        (stays.len(), hits)
    }
}

async fn storm(fakes: Vec<Fake>, need: Need) -> (usize, usize) {
    for fake in &fakes {
        advance(fake, usize::try_from(any(3_000)).unwrap()).await;
    }
    let start = Instant::now();
    let observed = Arc::new(Observed::default());
    let mut tasks = JoinSet::new();
    let mut lockers = Vec::new();
    for _ in 0..3 {
        let locker = Locker::builder(Arc::new(of(&fakes, need))).clock(Clock::Tokio).build();
        for _ in 0..2 {
            tasks.spawn(compete(locker.clone(), Arc::clone(&observed), start));
        }
        tasks.spawn(observe(locker.clone(), Arc::clone(&observed), start));
        lockers.push(locker);
    }
    while start.elapsed() < ms(SPAN) {
        let many = u64::try_from(fakes.len()).unwrap();
        fakes[usize::try_from(any(many)).unwrap()].all(any_act());
        sleep(ms(1 + any(199))).await;
    }
    fakes.iter().for_each(|fake| fake.all(Fault::Pass));
    tasks.join_all().await;
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
    sleep(TTL).await;
    assert!(shown(&fakes).await.iter().all(Option::is_none), "left behind");
    observed.verify()
}

#[tokio::test(start_paused = true)]
async fn c1_c4_c6_a_storm_at_random_breaks_nothing() {
    let _seeded = storm_seed();
    for (members, need) in
        [(3, Need::Majority), (5, Need::Majority), (4, Need::Majority), (2, Need::All)]
    {
        for round in 0..ROUNDS {
            let mut fakes = fakes(members);
            // Some members have no leases: the last ones, in every second round.
            for fake in fakes.iter_mut().skip(1).filter(|_| round % 2 == 1) {
                *fake = without_leases(fake.clone());
            }
            let (grants, looks) = storm(fakes, need).await;
            println!("{need} of {members}: {grants} grants, {looks} looks at their holders");
            assert!(grants > 5, "{need} of {members}: {grants} grants");
        }
    }
}
