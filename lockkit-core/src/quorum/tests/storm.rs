//! Many holders and members at random: late, silent, down, with replies lost, and with tokens far apart.

use std::sync::{Arc, Mutex};

use tokio::{task::JoinSet, time::Instant};

use super::fakes::{Act, Fake, TTL, fakes, ms, of, shown};
use crate::{
    Clock, FencingToken, LockOptions, Locker, Need, Renewal,
    chance::{Seeded, below as any},
};

/// In ms.
const SPAN: u64 = 60_000;
const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Stay {
    token: FencingToken,
    from: Instant,
    until: Instant,
}

fn any_act() -> Act {
    let delay = ms(any(400));
    match any(10) {
        0 => Act::Silent,
        1 => Act::LostReply,
        2 => Act::Down,
        3 => Act::Late(delay),
        4 => Act::SlowReply(delay),
        _ => Act::Pass,
    }
}

async fn compete(locker: Locker, stays: Arc<Mutex<Vec<Stay>>>, start: Instant) {
    while start.elapsed() < ms(SPAN) {
        let renewal = if any(2) == 0 { Renewal::Auto } else { Renewal::Manual };
        let ttl = ms(300 + any(2_700));
        let options = LockOptions::new().with_ttl(ttl).with_op_timeout(ttl / 4).with_renewal(renewal);
        let mutex = locker.mutex("x").unwrap().with_options(options).unwrap();
        let bound = ms(1 + any(1_499));
        if let Ok(Some(guard)) = mutex.lock_timeout(bound).await {
            let from = Instant::now();
            let mut stay = Stay { token: guard.fencing_token(), from, until: from };
            let end = from + ms(any(1_500));
            while Instant::now() < end && guard.is_held() {
                stay.until = Instant::now();
                tokio::time::sleep(ms(1 + any(59))).await;
            }
            stays.lock().unwrap().push(stay);
            match any(3) {
                0 => drop(guard),
                1 => drop(tokio::time::timeout(ms(3), guard.release()).await),
                _ => drop(guard.release().await),
            }
        }
    }
}

async fn storm(fakes: Vec<Fake>, need: Need) -> usize {
    for fake in &fakes {
        fake.advance(usize::try_from(any(3_000)).unwrap()).await;
    }
    let (start, stays) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let (mut tasks, mut lockers) = (JoinSet::new(), Vec::new());
    for _ in 0..3 {
        let locker = Locker::new(of(&fakes, need)).with_clock(Clock::Tokio);
        for _ in 0..2 {
            tasks.spawn(compete(locker.clone(), Arc::clone(&stays), start));
        }
        lockers.push(locker);
    }
    while start.elapsed() < ms(SPAN) {
        let many = u64::try_from(fakes.len()).unwrap();
        fakes[usize::try_from(any(many)).unwrap()].all(any_act());
        tokio::time::sleep(ms(1 + any(199))).await;
    }
    fakes.iter().for_each(|fake| fake.all(Act::Pass));
    tasks.join_all().await;
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
    tokio::time::sleep(TTL).await;
    assert!(shown(&fakes).await.iter().all(Option::is_none), "left behind");
    let mut stays = stays.lock().unwrap().clone();
    stays.sort_by_key(|stay| stay.from);
    for pair in stays.windows(2) {
        assert!(pair[0].token < pair[1].token, "C4: {pair:?}");
        assert!(pair[0].until <= pair[1].from, "C1: {pair:?}");
    }
    stays.len()
}

#[tokio::test(start_paused = true)]
async fn c1_c4_c6_a_storm_at_random_breaks_nothing() {
    let _seeded = Seeded::storm();
    for (members, need) in [(3, Need::Majority), (5, Need::Majority), (4, Need::Majority), (2, Need::All)] {
        for _ in 0..ROUNDS {
            let grants = storm(fakes(members), need).await;
            println!("{need} of {members}: {grants} grants");
            assert!(grants > 5, "{need} of {members}: {grants} grants");
        }
    }
}
