//! Measures large tables, many waiters, and many held locks.

use std::{
    fs,
    time::{Duration, Instant},
};

use lockkit_core::{LockGuard, Locker};
use lockkit_mysql::Strategy;
use mysql_async::{Conn, prelude::Queryable as _};
use tokio::time::sleep;

use super::{
    figures::float,
    own_names::lockkit_pairs,
    stage::{Stage, statements, together},
};

const IDLE_NAMES: u32 = 1_000_000;
const WAITERS: usize = 1_000;
const WAITED_NAMES: usize = 100;
const HELD: usize = 100_000;
const TASKS: usize = 64;
const CONNECTIONS: usize = 16;

pub(crate) async fn measure(stage: &Stage) {
    let mut side = stage.open().await;
    let locker = stage.locker(Strategy::Optimistic, CONNECTIONS).await;
    idle_names(stage, &locker, &mut side).await;
    waiters(stage, &locker, &mut side).await;
    held(stage, locker, &mut side).await;
}

/// Measures pairs before and after the table has a million idle names. A statement that scans would
/// read the next row again and again.
async fn idle_names(stage: &Stage, locker: &Locker, side: &mut Conn) {
    for names in [0, IDLE_NAMES] {
        fill(side, names).await;
        for tasks in [1, TASKS] {
            // The first round makes the rows and the connections.
            for slice in [100, 3_000] {
                let before = scanned(side).await;
                let until = Instant::now() + stage.slice(slice);
                let works =
                    (0..tasks).map(|task| lockkit_pairs(locker.clone(), task.to_string(), until));
                let (taken, counts) = together(works).await;
                let pairs: u64 = counts.into_iter().sum();
                if slice > 100 {
                    println!(
                        "{names} idle names, {tasks} tasks: {:.0} pairs/s, {:.4} rows read in \
                         sequence per pair",
                        float(pairs) / taken.as_secs_f64(),
                        float(scanned(side).await - before) / float(pairs)
                    );
                }
            }
        }
    }
}

/// Adds this many names, a thousand in each statement.
async fn fill(side: &mut Conn, names: u32) {
    for first in (0..names).step_by(1_000) {
        let rows: Vec<_> = (first..first + 1_000)
            .map(|name| format!("('mutex','idle/{name}',1,UNIX_TIMESTAMP()*1000000)"))
            .collect();
        let rows = rows.join(",");
        let insert = format!("INSERT INTO lockkit_lock(kind,name,fence,touched_us) VALUES{rows}");
        side.query_drop(insert).await.unwrap();
    }
}

/// The rows that the server has read in the order of an index or of a table.
async fn scanned(side: &mut Conn) -> u64 {
    let question = "SHOW GLOBAL STATUS WHERE Variable_name IN \
                    ('Handler_read_next','Handler_read_rnd_next')";
    let rows: Vec<(String, u64)> = side.query(question).await.unwrap();
    // The list of these counters is itself read as a table.
    rows.into_iter().map(|(_, count)| count).sum()
}

/// Measures the statements of a process that waits for names which another one holds.
async fn waiters(stage: &Stage, locker: &Locker, side: &mut Conn) {
    let other = stage.locker(Strategy::Optimistic, CONNECTIONS).await;
    let mut guards = Vec::new();
    for name in 0..WAITED_NAMES {
        guards.push(other.mutex(&format!("hot/{name}")).unwrap().lock().await.unwrap());
    }
    let waiting: Vec<_> = (0..WAITERS)
        .map(|task| {
            let mutex = locker.mutex(&format!("hot/{}", task % WAITED_NAMES)).unwrap();
            tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    // After that, the pauses between the polls have grown to their largest size.
    sleep(stage.slice(5_000)).await;
    let rate = rate(stage, side, 6_000).await;
    println!("{WAITERS} waiters for {WAITED_NAMES} held names: {rate}");
    for guard in guards {
        guard.release().await.unwrap();
    }
    for task in waiting {
        task.await.unwrap();
    }
    other.shutdown().await.unwrap();
}

/// Measures locks that are only held and renewed. The memory is right for the first server only: at
/// the next one, the process uses that memory again.
async fn held(stage: &Stage, locker: Locker, side: &mut Conn) {
    let before = resident_bytes();
    let start = Instant::now();
    let works = (0..TASKS).map(|task| take(locker.clone(), task));
    let (_, guards) = together(works).await;
    let taken = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before) / u64::try_from(HELD).unwrap();
    let rate = rate(stage, side, 30_000).await;
    let (mut kept, mut all) = (0, 0);
    for guard in guards.into_iter().flatten() {
        all += 1;
        kept += u64::from(guard.release().await.is_ok());
    }
    println!("{all} held locks, taken in {taken:.1?}: {rate}; {bytes} bytes each; {kept} kept");
    locker.shutdown().await.unwrap();
}

async fn take(locker: Locker, task: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for name in (task..HELD).step_by(TASKS) {
        guards.push(locker.mutex(&format!("held/{name}")).unwrap().lock().await.unwrap());
    }
    guards
}

/// The statements of all clients and the CPU time of this process, each per second.
async fn rate(stage: &Stage, side: &mut Conn, millis: u64) -> String {
    let before = statements(side).await;
    let cpu = stage.client_cpu();
    let start = Instant::now();
    sleep(Duration::from_millis(millis)).await;
    let passed = start.elapsed().as_secs_f64();
    let cpu = (stage.client_cpu() - cpu).as_secs_f64() / passed * 100.0;
    // One of the statements asks for the number.
    let sent = float(statements(side).await - before - 1) / passed;
    format!("{sent:.1} statements/s, {cpu:.1} % of a core in the client")
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
