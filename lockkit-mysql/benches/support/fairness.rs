//! Measures how often each of four lockers is served. Each has a pool of its own, as four processes
//! have, and one task. All use one name.

use std::time::{Duration, Instant};

use lockkit_core::Locker;
use lockkit_mysql::Strategy;
use tokio::time::sleep;

use super::{
    figures::float,
    stage::{Stage, together},
};

const LOCKERS: usize = 4;

pub(crate) async fn measure(stage: &Stage) {
    for (strategy, what) in [(Strategy::Optimistic, "a row"), (Strategy::Pessimistic, "a row lock")]
    {
        for held in [0, 2].map(Duration::from_millis) {
            let mut lockers = Vec::new();
            for _ in 0..LOCKERS {
                let locker = stage.locker(strategy, 4).await;
                // Makes the row and the connections.
                locker.mutex("fair").unwrap().lock().await.unwrap().release().await.unwrap();
                lockers.push(locker);
            }
            let slice = stage.slice(10_000);
            let until = Instant::now() + slice;
            let (_, served) =
                together(lockers.into_iter().map(|locker| work(locker, held, until))).await;
            let counts: Vec<_> = served.iter().map(|(count, _)| *count).collect();
            let longest = served.iter().map(|(_, longest)| *longest).max().unwrap();
            let most = counts.iter().max().unwrap();
            let least = counts.iter().min().unwrap();
            println!("{LOCKERS} lockers on {what}, held for {held:?}, {slice:?}:");
            println!(
                "  {:.0} grants/s; served {counts:?}; most / least {:.2}; longest wait {longest:?}",
                float(counts.iter().sum()) / slice.as_secs_f64(),
                float(*most) / float(*least).max(1.0)
            );
        }
    }
}

async fn work(locker: Locker, held: Duration, until: Instant) -> (u64, Duration) {
    let mutex = locker.mutex("fair").unwrap();
    let mut count = 0;
    let mut longest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let guard = mutex.lock().await.unwrap();
        longest = longest.max(asked.elapsed());
        if !held.is_zero() {
            sleep(held).await;
        }
        let is_late = Instant::now() >= until;
        guard.release().await.unwrap();
        if is_late {
            locker.shutdown().await.unwrap();
            return (count, longest);
        }
        count += 1;
    }
}
