//! A Galera cluster, on whose nodes the lockers take turns.

use std::{
    collections::HashSet,
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit_core::{LockGuard, LockOptions, Locker, Released};
use lockkit_fixture::GaleraCluster;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::*;

/// For how many seconds the lockers compete, if not for [`USUAL`].
const SECONDS: &str = "LOCKKIT_TEST_GALERA_SECONDS";
const USUAL: Duration = Duration::from_secs(12);
const LOCKERS: usize = 12;
const LIMIT: u32 = 3;
const HOLD: Duration = Duration::from_millis(2);

/// Who holds one name.
#[derive(Default)]
struct Holders {
    writers: u32,
    /// Readers, or permits.
    shares: u32,
    /// The largest token of those who excluded all others, and of all.
    exclusive: u64,
    highest: u64,
    tokens: HashSet<u64>,
}

#[derive(Clone, Copy)]
enum Sort {
    Mutex,
    Reader,
    Writer,
    Permit,
}

/// What the lockers have done to each other.
#[derive(Default)]
struct Record {
    mutex: Mutex<Holders>,
    rw_lock: Mutex<Holders>,
    semaphore: Mutex<Holders>,
    findings: Mutex<Vec<String>>,
    grants: Mutex<u64>,
}

impl Record {
    fn holders(&self, sort: Sort) -> &Mutex<Holders> {
        match sort {
            Sort::Mutex => &self.mutex,
            Sort::Reader | Sort::Writer => &self.rw_lock,
            Sort::Permit => &self.semaphore,
        }
    }

    fn find(&self, finding: String) {
        self.findings.lock().unwrap().push(finding);
    }

    fn enter(&self, sort: Sort, token: u64) {
        let mut holders = self.holders(sort).lock().unwrap();
        let Holders { writers, shares, exclusive, highest, .. } = *holders;
        *self.grants.lock().unwrap() += 1;
        let (is_alone, is_above) = match sort {
            Sort::Mutex | Sort::Writer => (writers == 0 && shares == 0, token > highest),
            Sort::Reader => (writers == 0, token > exclusive),
            Sort::Permit => (shares < LIMIT, true),
        };
        if !is_alone {
            self.find(format!("C1: {} came in beside {writers} writers and {shares} shares", sort.name()));
        }
        if !holders.tokens.insert(token) || !is_above {
            self.find(format!("C4: {} has the token {token} after {highest}", sort.name()));
        }
        holders.highest = highest.max(token);
        if sort.is_exclusive() {
            holders.writers += 1;
            holders.exclusive = exclusive.max(token);
        } else {
            holders.shares += 1;
        }
    }

    fn leave(&self, sort: Sort) {
        let mut holders = self.holders(sort).lock().unwrap();
        if sort.is_exclusive() {
            holders.writers -= 1;
        } else {
            holders.shares -= 1;
        }
    }
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Mutex => "a mutex",
            Self::Reader => "a reader",
            Self::Writer => "a writer",
            Self::Permit => "a permit",
        }
    }

    fn is_exclusive(self) -> bool {
        matches!(self, Self::Mutex | Self::Writer)
    }

    async fn lock(self, locker: &Locker) -> lockkit_core::Result<LockGuard> {
        match self {
            Self::Mutex => locker.mutex("a").unwrap().lock().await,
            Self::Reader => locker.rw_lock("a").unwrap().read().await,
            Self::Writer => locker.rw_lock("a").unwrap().write().await,
            Self::Permit => locker.semaphore("a", LIMIT).unwrap().acquire().await,
        }
    }
}

/// Catches a transaction of several statements that goes on after the cluster has rolled back its first half: its second
/// half then grants what the first has not looked at, or loses the row of a holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_lockers_on_all_nodes_of_a_galera_cluster_take_turns() {
    let cluster = GaleraCluster::start().unwrap();
    let duration = env::var(SECONDS).map_or(USUAL, |text| Duration::from_secs(text.parse().unwrap()));
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(Duration::from_secs(10));
    let record = Arc::new(Record::default());
    let mut tasks = JoinSet::new();
    let mut lockers = Vec::new();
    for number in 0..LOCKERS {
        let node = &cluster.nodes()[number % 2];
        let backend = connect(&format!("{}?connect_timeout=20s", node.url())).await.unwrap();
        let locker = Locker::new(backend).with_defaults(options.clone()).unwrap().with_process_gate(false);
        lockers.push(locker);
    }
    let end = Instant::now() + duration;
    for (number, locker) in lockers.into_iter().enumerate() {
        let record = Arc::clone(&record);
        tasks.spawn(async move {
            // Each locker uses all sorts of locks, and none of them in step with another locker.
            let sorts = [Sort::Writer, Sort::Permit, Sort::Reader, Sort::Mutex, Sort::Permit];
            for sort in sorts.into_iter().cycle().skip(number) {
                if Instant::now() > end {
                    return;
                }
                let guard = match sort.lock(&locker).await {
                    Ok(guard) => guard,
                    Err(error) => {
                        record.find(format!("{} was not granted: {}", sort.name(), texts(&error)));
                        continue;
                    }
                };
                record.enter(sort, guard.fencing_token().get());
                sleep(HOLD).await;
                record.leave(sort);
                match guard.release().await {
                    Ok(Released::Freed) => {}
                    other => record.find(format!("{} was released: {other:?}", sort.name())),
                }
            }
        });
    }
    within(duration + SOON * 3, "the lockers", tasks.join_all()).await;
    let findings = record.findings.lock().unwrap();
    println!("{} grants in {duration:?}", record.grants.lock().unwrap());
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}
