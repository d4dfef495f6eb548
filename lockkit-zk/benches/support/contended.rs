//! Many tasks, one name.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lockkit_core::Locker;
use lockkit_fixture::ZooKeeperServer;

use super::{
    bare::Bare,
    figures::{Figures, float, requests},
};

const ROUNDS: usize = 5;
const GRANTS: usize = 2_000;
const TRIES: u32 = 3_000;

/// Who competes in a round.
#[derive(Clone)]
enum Contender {
    Lockkit(Locker),
    Curator(Bare),
}

#[derive(Default)]
struct Round {
    rate: Figures,
    gap: Figures,
    requests: Figures,
}

pub(crate) async fn one_name(server: &ZooKeeperServer, fair: &Locker, unfair: &Locker, bare: &Bare) {
    for tasks in [2, 64] {
        println!("{tasks} tasks on one name, released at once:");
        let contenders = [
            ("fair", Contender::Lockkit(fair.clone())),
            ("unfair", Contender::Lockkit(unfair.clone())),
            ("bare client, as Curator", Contender::Curator(bare.clone())),
        ];
        let mut rounds = contenders.each_ref().map(|_| Round::default());
        for _ in 0..ROUNDS {
            for ((_, contender), round) in contenders.iter().zip(&mut rounds) {
                measure(server, contender, tasks, round).await;
            }
        }
        for ((what, _), round) in contenders.iter().zip(&rounds) {
            println!(
                "  {what:<24} {} grants/s; hand-off p50 {} µs; {} requests per grant",
                round.rate.show(0),
                round.gap.show(0),
                round.requests.show(2)
            );
        }
    }
}

async fn measure(server: &ZooKeeperServer, contender: &Contender, tasks: usize, round: &mut Round) {
    let released = Arc::new(Mutex::new((Instant::now(), Vec::new())));
    let (asked, start) = (requests(server), Instant::now());
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let (contender, released) = (contender.clone(), Arc::clone(&released));
            tokio::spawn(async move {
                for _ in 0..GRANTS / tasks {
                    contender.pair(&released).await;
                }
            })
        })
        .collect();
    for task in running {
        task.await.unwrap();
    }
    let (taken, asked) = (start.elapsed(), requests(server) - asked);
    let gaps = &mut released.lock().unwrap().1;
    gaps.sort_unstable();
    let grants = float(gaps.len().try_into().unwrap());
    round.rate.push(grants / taken.as_secs_f64());
    round.gap.push(gaps[gaps.len() / 2].as_secs_f64() * 1e6);
    round.requests.push(float(asked) / grants);
}

type Released = Mutex<(Instant, Vec<Duration>)>;

impl Contender {
    /// Acquires and releases; the gap is from the call that released it last.
    async fn pair(&self, released: &Released) {
        let granted = || {
            let mut released = released.lock().unwrap();
            let now = Instant::now();
            let gap = now - released.0;
            released.1.push(gap);
            released.0 = now;
        };
        match self {
            Self::Lockkit(locker) => {
                let guard = locker.mutex("hot").unwrap().lock().await.unwrap();
                granted();
                guard.release().await.unwrap();
            }
            Self::Curator(bare) => {
                let path = bare.lock().await;
                granted();
                bare.unlock(&path).await;
            }
        }
    }
}

/// Tries that fail, as somebody else has it.
pub(crate) async fn tries(server: &ZooKeeperServer, fair: &Locker, unfair: &Locker) {
    println!("a try of a mutex that is held:");
    for (what, locker) in [("fair", fair), ("unfair", unfair)] {
        let (mutex, mut rate, mut asked) =
            (locker.mutex("taken").unwrap(), Figures::default(), Figures::default());
        let guard = mutex.lock().await.unwrap();
        for _ in 0..ROUNDS {
            let (before, start) = (requests(server), Instant::now());
            for _ in 0..TRIES {
                assert!(mutex.try_lock().await.unwrap().is_none());
            }
            rate.push(f64::from(TRIES) / start.elapsed().as_secs_f64());
            asked.push(float(requests(server) - before) / f64::from(TRIES));
        }
        println!("  {what:<24} {} tries/s; {} requests each", rate.show(0), asked.show(2));
        guard.release().await.unwrap();
    }
}
