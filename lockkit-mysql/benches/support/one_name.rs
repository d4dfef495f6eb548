//! Compares lockkit with what a first attempt at such a lock does. 64 tasks of one process use one
//! name, and release it at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::Locker;
use lockkit_mysql::Strategy;

use super::{
    bare,
    contender::{Contender, Gaps, Way},
    figures::{Figures, float},
    stage::{Stage, statements, together},
};

const TASKS: usize = 64;
const ROUNDS: usize = 3;
const CONNECTIONS: usize = 16;

#[derive(Default)]
struct Side {
    rate: Figures,
    gap: Figures,
    statements: Figures,
    fairness: Figures,
    least: Figures,
}

pub(crate) async fn compare(stage: &Stage) {
    let mut side = bare::prepare(stage).await;
    let locker = stage.locker(Strategy::Optimistic, CONNECTIONS).await;
    let mut conns = stage.open_many(TASKS).await;
    let mut sides: [Side; 2] = Default::default();
    let mut ratio = Figures::new();
    // Makes the row and the connections.
    together((0..TASKS).map(|_| lockkit(locker.clone(), Gaps::start(), Instant::now()))).await;
    for _ in 0..stage.rounds(ROUNDS) {
        let before = statements(&mut side).await;
        let gaps = Gaps::start();
        let slice = stage.slice(2_000);
        let until = Instant::now() + slice;
        let (_, counts) =
            together((0..TASKS).map(|_| lockkit(locker.clone(), gaps.clone(), until))).await;
        let in_time: Vec<_> = counts.iter().map(|count| count.0).collect();
        let all = counts.iter().map(|count| count.1).sum();
        let ours =
            sides[0].take(&in_time, slice, &gaps, statements(&mut side).await - before - 1, all);

        let gaps = Gaps::start();
        let slice = stage.slice(1_000);
        let until = Instant::now() + slice;
        let works = conns.into_iter().enumerate().map(|(number, conn)| {
            Contender::new(conn, Way::Naive, number, until).work(gaps.clone(), false)
        });
        let (_, done) = together(works).await;
        let grants: Vec<_> = done.iter().map(|one| one.tally.grants).collect();
        let asked = done.iter().map(|one| one.tally.statements).sum();
        let naive = sides[1].take(&grants, slice, &gaps, asked, grants.iter().sum());
        conns = done.into_iter().map(|one| one.conn).collect();
        ratio.push(ours / naive);
    }
    println!("{TASKS} tasks of one process on one name, released at once:");
    for (what, side) in ["lockkit", "upsert each ms, bare"].into_iter().zip(&sides) {
        println!(
            "  {what:<24} {} grants/s; hand-off p50 {} µs; {} statements per grant; most / least served {}, least {}",
            side.rate.show(0),
            side.gap.show(0),
            side.statements.show(2),
            side.fairness.show(2),
            side.least.show(0)
        );
    }
    println!("  lockkit / upserts        {}", ratio.show(2));
}

impl Side {
    fn take(
        &mut self,
        served: &[u64],
        slice: Duration,
        gaps: &Gaps,
        asked: u64,
        grants: u64,
    ) -> f64 {
        let rate = float(served.iter().sum()) / slice.as_secs_f64();
        let most = served.iter().max().unwrap();
        let least = served.iter().min().unwrap();
        self.rate.push(rate);
        self.gap.push(gaps.median());
        self.statements.push(float(asked) / float(grants));
        self.fairness.push(float(*most) / float(*least));
        self.least.push(float(*least));
        rate
    }
}

/// The grants in time, and all grants. A task that waits when the time is up still gets the lock
/// once.
async fn lockkit(locker: Locker, gaps: Arc<Gaps>, until: Instant) -> (u64, u64) {
    let mutex = locker.mutex("hot").unwrap();
    let mut count = 0;
    loop {
        let guard = mutex.lock().await.unwrap();
        gaps.granted();
        let is_late = Instant::now() >= until;
        guard.release().await.unwrap();
        if is_late {
            return (count, count + 1);
        }
        count += 1;
    }
}
