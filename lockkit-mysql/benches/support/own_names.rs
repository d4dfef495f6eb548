//! Nobody waits: each task has a name of its own.

use std::{
    iter::once,
    time::{Duration, Instant},
};

use lockkit_core::Locker;
use lockkit_mysql::Strategy;
use mysql_async::Conn;

use super::{
    bare,
    figures::{Figures, float},
    stage::{Stage, statements, together},
};

const ROUNDS: usize = 15;
/// lockkit's default.
const CONNECTIONS: usize = 16;

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
        let slice = stage.slice(100);
        let [mut ours, mut floor, mut ratio, mut asked] = [const { Figures::new() }; 4];
        let mut server = [Duration::ZERO; 2];
        let mut pairs = [0, 0];
        // The first round makes the rows and the connections.
        for round in 0..=stage.rounds(ROUNDS) {
            let (before, cpu) = (statements(&mut side).await, stage.server_cpu());
            let until = Instant::now() + slice;
            let works = (0..tasks).map(|task| lockkit_pairs(locker.clone(), task.to_string(), until));
            let (taken, counts) = together(works).await;
            let count: u64 = counts.iter().sum();
            // One of them asked for the number.
            let asked_by = statements(&mut side).await - before - 1;
            let (our_rate, cpu_between) = (float(count) / taken.as_secs_f64(), stage.server_cpu());

            let (bare_count, taken, back) = bare_round(conns, tasks, Instant::now() + slice).await;
            conns = back;
            let bare_rate = float(bare_count) / taken.as_secs_f64();
            if round > 0 {
                ours.push(our_rate);
                floor.push(bare_rate);
                ratio.push(our_rate / bare_rate);
                asked.push(float(asked_by) / float(count));
                server[0] += cpu_between - cpu;
                server[1] += stage.server_cpu() - cpu_between;
                pairs[0] += count;
                pairs[1] += bare_count;
            }
        }
        let cpu = |at: usize| server[at].as_secs_f64() * 1e6 / float(pairs[at]);
        println!("{tasks} tasks, each on its own name, {connections} connections:");
        println!(
            "  lockkit                  {} pairs/s; {} statements and {:.0} µs of server CPU per pair",
            ours.show(0),
            asked.show(2),
            cpu(0)
        );
        println!(
            "  two bare updates         {} pairs/s; {:.0} µs of server CPU per pair",
            floor.show(0),
            cpu(1)
        );
        println!("  lockkit / bare           {}", ratio.show(2));
    }
}

/// One task for each connection, as a queue for connections would only cost.
async fn bare_round(conns: Vec<Conn>, names: usize, until: Instant) -> (u64, Duration, Vec<Conn>) {
    let connections = conns.len();
    let works = conns.into_iter().enumerate().map(|(at, conn)| {
        let names = once(at).chain((at + connections..names).step_by(connections));
        bare::pairs(conn, names.map(|name| name.to_string()).collect(), until)
    });
    let (taken, done) = together(works).await;
    let count = done.iter().map(|(count, _)| count).sum();
    (count, taken, done.into_iter().map(|(_, conn)| conn).collect())
}
