//! What locks cost that are held and left alone.

use std::time::{Duration, Instant};

use lockkit_core::{LockGuard, Locker};
use lockkit_fixture::ZooKeeperServer;

use super::figures::{cpu_time, float, requests, resident_bytes};

const LOCKS: u32 = 10_000;
/// Several heartbeats and two renewals of each lock.
const IDLE: Duration = Duration::from_secs(20);

pub(crate) async fn idle(server: &ZooKeeperServer, locker: &Locker) {
    let pid = server.pid().to_string();
    let (before, start) = (resident_bytes(), Instant::now());
    let mut guards: Vec<LockGuard> = Vec::with_capacity(10_000);
    for number in 0..LOCKS {
        guards.push(locker.mutex(&format!("name {number}")).unwrap().lock().await.unwrap());
    }
    let taken = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before) / u64::from(LOCKS);
    let (client_cpu, server_cpu, asked) = (cpu_time("self"), cpu_time(&pid), requests(server));
    let start = Instant::now();
    tokio::time::sleep(IDLE).await;
    let seconds = start.elapsed().as_secs_f64();
    let percent = |used: Duration| used.as_secs_f64() / seconds * 100.0;
    println!(
        "{LOCKS} locks held on one session, taken in {taken:.1?}: {bytes} bytes each; idle, {:.0} requests/s, client \
         {:.1} % and server {:.1} % of a core",
        float(requests(server) - asked) / seconds,
        percent(cpu_time("self") - client_cpu),
        percent(cpu_time(&pid) - server_cpu)
    );
    assert!(guards.iter().all(LockGuard::is_held), "a lock was lost");
}
