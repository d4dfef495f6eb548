//! Measures the cost of 100,000 held locks of one locker: memory for each lock, tasks, and the CPU
//! time of their renewals.

mod support {
    pub(crate) mod instant;
}

use std::{
    fs,
    time::{Duration, Instant},
};

use lockkit_core::{LockOptions, Locker};
use tokio::runtime::Handle;

const GUARDS: u32 = 100_000;
const TTL: Duration = Duration::from_secs(6);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    measure("instant store", Locker::new(support::instant::Instant::default())).await;
    measure("memory store", Locker::memory()).await;
}

async fn measure(store: &str, locker: Locker) {
    let locker = locker.with_defaults(LockOptions::new().with_ttl(TTL)).unwrap();
    let mut guards = Vec::with_capacity(100_000);
    let before = resident_bytes();
    let start = Instant::now();
    for at in 0..GUARDS {
        guards.push(locker.mutex(&format!("name {at}")).unwrap().lock().await.unwrap());
    }
    let taken = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before) / u64::from(GUARDS);
    let cpu = cpu_time();
    let start = Instant::now();
    tokio::time::sleep(TTL * 2).await;
    let busy = (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert!(guards.iter().all(|guard| guard.is_held()), "a lock was lost");
    println!(
        "{store}: {GUARDS} guards taken in {taken:?}, {bytes} bytes each, {tasks} task, renewals at ttl {TTL:?}: \
         {busy:.1} % of a core"
    );
    drop(guards);
    locker.shutdown().await.unwrap();
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11..=12].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
