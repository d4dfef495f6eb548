//! Measures locks without waiters: each task has a name of its own.

use std::{
    iter,
    time::{Duration, Instant},
};

use lockkit_core::Locker;
use lockkit_mysql::Strategy;
use mysql_async::Conn;

use super::{
    bare::{self, Work},
    figures::{Figures, float},
    stage::{Stage, statements, together},
};

const ROUNDS: usize = 13;
/// lockkit's default.
const CONNECTIONS: usize = 16;

#[derive(Default)]
struct Side {
    rate: Figures,
    pairs: u64,
    client: Duration,
    server: Duration,
}

pub(crate) async fn lockkit_pairs(locker: Locker, name: String, until: Instant) -> u64 {
    let mutex = locker.mutex(&name).unwrap();
    let mut count = 0;
    while Instant::now() < until {
        mutex.lock().await.unwrap().release().await.unwrap();
        count += 1;
    }
    count
}

pub(crate) async fn compare(stage: &Stage) {
    let mut side = bare::prepare(stage).await;
    for tasks in [1, 64] {
        let connections = CONNECTIONS.min(tasks);
        let locker = stage.locker(Strategy::Optimistic, connections).await;
        let mut conns = stage.open_many(connections).await;
        let mut sides: [Side; 3] = Default::default();
        let [mut to_statements, mut to_updates, mut asked] = [const { Figures::new() }; 3];
        // The first round makes the rows and the connections.
        for round in 0..=stage.rounds(ROUNDS) {
            let mut rates = [0.0; 3];
            for (at, side_of) in sides.iter_mut().enumerate() {
                let before = statements(&mut side).await;
                let client = stage.client_cpu();
                let server = stage.server_cpu();
                let until = Instant::now() + stage.slice(100);
                let (taken, count) = match at {
                    0 => {
                        let names = 0..tasks;
                        let works = names
                            .map(|task| lockkit_pairs(locker.clone(), task.to_string(), until));
                        let (taken, counts) = together(works).await;
                        (taken, counts.into_iter().sum())
                    }
                    1 => bare_round(&mut conns, Work::Statements, tasks, until).await,
                    _ => bare_round(&mut conns, Work::Updates, tasks, until).await,
                };
                rates[at] = float(count) / taken.as_secs_f64();
                if round > 0 {
                    side_of.rate.push(rates[at]);
                    side_of.pairs += count;
                    side_of.client += stage.client_cpu() - client;
                    side_of.server += stage.server_cpu() - server;
                    if at == 0 {
                        // One of the statements asked for the number.
                        asked.push(float(statements(&mut side).await - before - 1) / float(count));
                    }
                }
            }
            if round > 0 {
                to_statements.push(rates[0] / rates[1]);
                to_updates.push(rates[0] / rates[2]);
            }
        }
        println!("{tasks} tasks, each on its own name, {connections} connections:");
        print_sides(&sides);
        println!("  statements per pair      {}", asked.show(2));
        println!("  lockkit / its statements {}", to_statements.show(2));
        println!("  lockkit / updates        {}", to_updates.show(2));
    }
}

fn print_sides(sides: &[Side; 3]) {
    for (what, side) in
        ["lockkit", "its statements, bare", "two bare updates"].into_iter().zip(sides)
    {
        let each = |used: Duration| used.as_secs_f64() * 1e6 / float(side.pairs);
        println!(
            "  {what:<24} {} pairs/s; {:.0} µs of client and {:.0} µs of server CPU per pair",
            side.rate.show(0),
            each(side.client),
            each(side.server)
        );
    }
}

/// One task for each connection, because a queue for connections would only add cost.
async fn bare_round(
    conns: &mut Vec<Conn>,
    work: Work,
    names: usize,
    until: Instant,
) -> (Duration, u64) {
    let connections = conns.len();
    let works = conns.drain(..).enumerate().map(|(at, conn)| {
        let names = iter::successors(Some(at), |name| Some(name + connections))
            .take_while(|name| *name < names);
        bare::pairs(conn, work, names.map(|name| name.to_string()).collect(), until)
    });
    let (taken, done) = together(works).await;
    let count = done.iter().map(|(count, _)| count).sum();
    conns.extend(done.into_iter().map(|(_, conn)| conn));
    (taken, count)
}
