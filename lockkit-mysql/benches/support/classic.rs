//! Compares lockkit's one statement with the optimistic lock of the textbooks, both through the
//! bare driver. Each contender has a connection and polls with the same pauses: 1 ms, doubled up to
//! 50 ms, and anew when the version has changed. It releases the lock at once, and comes back after
//! a millisecond.

use std::time::Instant;

use super::{
    bare,
    contender::{Contender, Gaps, Way},
    figures::{Figures, float},
    stage::{Stage, together},
};

const ROUNDS: usize = 7;
const WAYS: [(&str, Way); 2] =
    [("one statement", Way::OneStatement), ("read, then update", Way::Classic)];

#[derive(Default)]
struct Side {
    rate: Figures,
    gap: Figures,
    statements: Figures,
    lost: Figures,
}

pub(crate) async fn compare(stage: &Stage) {
    bare::prepare(stage).await;
    for contenders in [1, 2, 8, 64] {
        let mut conns = stage.open_many(contenders).await;
        let mut sides: [Side; 2] = Default::default();
        let mut ratio = Figures::new();
        for round in 0..=stage.rounds(ROUNDS) {
            let mut rates = [0.0; 2];
            for (at, (_, way)) in WAYS.into_iter().enumerate() {
                let until = Instant::now() + stage.slice(150);
                let gaps = Gaps::start();
                let works = conns.into_iter().enumerate().map(|(number, conn)| {
                    Contender::new(conn, way, number, until).work(gaps.clone(), contenders > 1)
                });
                let (taken, done) = together(works).await;
                let sum = |of: fn(&Contender) -> u64| float(done.iter().map(of).sum());
                let grants = sum(|one| one.tally.grants);
                rates[at] = grants / taken.as_secs_f64();
                if round > 0 {
                    let side = &mut sides[at];
                    side.rate.push(rates[at]);
                    side.gap.push(gaps.median());
                    side.statements.push(sum(|one| one.tally.statements) / grants);
                    side.lost.push(sum(|one| one.tally.lost) / grants);
                }
                conns = done.into_iter().map(|one| one.conn).collect();
            }
            if round > 0 {
                ratio.push(rates[0] / rates[1]);
            }
        }
        println!("{contenders} contenders for one name, bare driver:");
        for ((what, _), side) in WAYS.iter().zip(&sides) {
            println!(
                "  {what:<24} {} grants/s; hand-off p50 {} µs; per grant {} statements, {} lost writes",
                side.rate.show(0),
                side.gap.show(0),
                side.statements.show(2),
                side.lost.show(2)
            );
        }
        println!("  one statement / two      {}", ratio.show(2));
    }
}
