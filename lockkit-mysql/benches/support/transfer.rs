//! Measures one lock that goes from owner to owner of one process: transferred, or released and
//! acquired anew.

use std::time::{Duration, Instant};

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, QueuePolicy, Transferred, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_mysql::{MySql, Strategy};

use super::{
    bare,
    figures::{Figures, float},
    stage::{Stage, statements},
};

const ROUNDS: usize = 13;

pub(crate) async fn compare(stage: &Stage) {
    let mut side = bare::prepare(stage).await;
    let slice = stage.slice(200);
    for (strategy, what) in [(Strategy::Optimistic, "a row"), (Strategy::Pessimistic, "a row lock")]
    {
        let backend = stage.backend(strategy, 16).await;
        let [mut handed, mut anew, mut ratio, mut asked] = [const { Figures::new() }; 4];
        for round in 0..=stage.rounds(ROUNDS) {
            let before = statements(&mut side).await;
            let (rate_1, count) = transfer(&backend, slice).await;
            let asked_by = statements(&mut side).await - before - 1;
            let rate_2 = acquire_anew(&backend, slice).await;
            if round > 0 {
                handed.push(rate_1);
                anew.push(rate_2);
                ratio.push(rate_1 / rate_2);
                asked.push(float(asked_by) / float(count));
            }
        }
        println!("{what}, from owner to owner of one process:");
        println!(
            "  transferred              {} grants/s; {} statements each",
            handed.show(0),
            asked.show(2)
        );
        println!("  released, acquired anew  {} grants/s", anew.show(0));
        println!("  the one / the other      {}", ratio.show(2));
    }
}

fn spec() -> ClaimSpec {
    let ttl = Duration::from_secs(30);
    let op_timeout = Duration::from_secs(3);
    let name = LockName::new(Kind::Mutex, "handed").unwrap();
    ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, ttl, op_timeout)
}

async fn transfer(backend: &MySql, slice: Duration) -> (f64, u64) {
    let mut claim = backend.claim(spec()).unwrap();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < slice {
        let answer = claim.transfer(&spec(), QueuePolicy::TransferFirst).await.unwrap();
        assert!(matches!(answer, Transferred::Granted(_)));
        count += 1;
    }
    let rate = float(count) / start.elapsed().as_secs_f64();
    given_up(claim.release()).await;
    (rate, count)
}

async fn acquire_anew(backend: &MySql, slice: Duration) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < slice {
        let mut claim = backend.claim(spec()).unwrap();
        assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
        given_up(claim.release()).await;
        count += 1;
    }
    float(count) / start.elapsed().as_secs_f64()
}
