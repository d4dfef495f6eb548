//! Tests on a Galera cluster, on whose nodes the lockers take turns.

use std::{
    env,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use lockkit_conformance::{Stay, Witness};
use lockkit_core::{
    FencingToken, Kind, LockGuard, LockOptions, Locker, Result,
    spi::{Admin as _, Attempt, Claim, Mode, Note, Noted, Wait},
};
use lockkit_fixture::{GaleraCluster, SqlServer};
use lockkit_mysql::{
    MySql,
    mysql_async::{Conn, Opts, prelude::Queryable as _},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::*;

/// The variable that sets for how many seconds the lockers compete, instead of [`USUAL`].
const SECONDS: &str = "LOCKKIT_TEST_GALERA_SECONDS";
const USUAL: Duration = Duration::from_secs(12);
const LOCKERS: usize = 12;
const LIMIT: u32 = 3;
const HOLD: Duration = Duration::from_millis(2);

#[derive(Clone, Copy)]
enum Sort {
    Mutex,
    Reader,
    Writer,
    Permit,
}

/// The grants of the lockers, and the faults that they found.
#[derive(Default)]
struct Record {
    mutex: Witness,
    rw_lock: Witness,
    semaphore: Witness,
    diagnostics: Mutex<Vec<String>>,
}

impl Record {
    fn witness(&self, sort: Sort) -> &Witness {
        match sort {
            Sort::Mutex => &self.mutex,
            Sort::Reader | Sort::Writer => &self.rw_lock,
            Sort::Permit => &self.semaphore,
        }
    }

    fn find(&self, diagnostic: String) {
        self.diagnostics.lock().unwrap().push(diagnostic);
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

    async fn lock(self, locker: &Locker) -> Result<LockGuard> {
        match self {
            Self::Mutex => locker.mutex("a").unwrap().lock().await,
            Self::Reader => locker.rw_lock("a").unwrap().read().await,
            Self::Writer => locker.rw_lock("a").unwrap().write().await,
            Self::Permit => locker.semaphore("a", LIMIT).unwrap().acquire().await,
        }
    }
}

fn usual() -> Duration {
    env::var(SECONDS).map_or(USUAL, |text| Duration::from_secs(text.parse().unwrap()))
}

/// Catches a transaction of several statements that continues after the cluster has rolled back its
/// first half. Its second half then grants without the checks of the first half, or loses the row
/// of a holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_lockers_on_all_nodes_of_a_galera_cluster_take_turns() {
    let cluster = GaleraCluster::start().unwrap();
    let duration = usual();
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(Duration::from_secs(10));
    let record = Arc::new(Record::default());
    let mut tasks = JoinSet::new();
    let mut lockers = Vec::new();
    for number in 0..LOCKERS {
        let node = &cluster.nodes()[number % 2];
        let backend = connect(&format!("{}?connect_timeout=20s", node.url())).await.unwrap();
        let locker =
            Locker::new(backend).with_defaults(options.clone()).unwrap().with_process_gate(false);
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
                let mut stay = Stay::begin(&guard);
                sleep(HOLD).await;
                stay.look(&guard);
                record.witness(sort).record(stay);
                match guard.release().await {
                    Ok(()) => {}
                    Err(error) => record.find(format!("{} was released: {error:?}", sort.name())),
                }
            }
        });
    }
    within(duration + SOON * 3, "the lockers", tasks.join_all()).await;
    let diagnostics = record.diagnostics.lock().unwrap();
    assert!(
        diagnostics.is_empty(),
        "{} diagnostics:\n{}",
        diagnostics.len(),
        diagnostics.join("\n")
    );
    let grants =
        [Sort::Mutex, Sort::Reader, Sort::Permit].map(|sort| record.witness(sort).verify());
    println!("{grants:?} grants in {duration:?}");
}

/// By how much a holder raises its token.
const RAISE: u64 = 1_000;

/// The grants of one name, and the faults that its holders found.
#[derive(Default)]
struct Raised {
    /// The largest token of all answers so far.
    highest: AtomicU64,
    diagnostics: Mutex<Vec<String>>,
    grants: AtomicU64,
}

/// Repeats a request for as long as the answer is a temporary error. All of these requests are
/// idempotent.
macro_rules! insist {
    ($request:expr) => {
        loop {
            match $request.await {
                Err(error) if error.is_temporary() => sleep(HOLD).await,
                answer => break answer,
            }
        }
    };
}

impl Raised {
    /// Takes a grant, raises its token, and writes a note if `has_note` is set.
    async fn hold(
        &self,
        backend: &MySql,
        claim: &mut Box<dyn Claim>,
        has_note: bool,
    ) -> Result<()> {
        let before = self.highest.load(SeqCst);
        let token = loop {
            match insist!(claim.attempt(Wait::Queue))? {
                Attempt::Granted(grant) => break grant.token.get(),
                Attempt::Busy { .. } => sleep(HOLD).await,
            }
        };
        self.grants.fetch_add(1, SeqCst);
        if token <= before {
            self.find(format!("C4: the token {token} was granted after {before}"));
        }
        let floor = token + RAISE;
        let raised =
            insist!(claim.raise_token(FencingToken::new(floor)))?.map_or(0, FencingToken::get);
        if raised < floor {
            self.find(format!("C4: the token {token} was raised to {raised} instead of {floor}"));
        }
        self.highest.fetch_max(raised, SeqCst);
        if has_note {
            let note = Note::new(raised, format!("by {token}"));
            let noted = insist!(claim.write_note(&note))?;
            let read = insist!(backend.note(&mutex("a")))?;
            if noted != Noted::Written || read != note {
                self.find(format!("C2: the note {note:?} was {noted:?}, and is {read:?}"));
            }
        }
        Ok(())
    }

    fn find(&self, diagnostic: String) {
        self.diagnostics.lock().unwrap().push(diagnostic);
    }
}

/// Changes the rows of the name all the time, as waiters on that node may do.
async fn disturb(node: &SqlServer, end: Instant) {
    let mut conn = Conn::new(Opts::from_url(&node.admin_url()).unwrap()).await.unwrap();
    while Instant::now() < end {
        // The update may lose a race.
        let _ = conn
            .query_drop("UPDATE lockkit.lockkit_lock SET touched_us=touched_us+1 WHERE name='a'")
            .await;
        sleep(Duration::from_millis(1)).await;
    }
}

/// Catches a note or a raised token that is confirmed although the cluster has rolled it back. The
/// rest of its transaction was then applied by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_c4_notes_and_raised_tokens_are_whole_on_all_nodes_of_a_galera_cluster() {
    let cluster = Arc::new(GaleraCluster::start().unwrap());
    let mut backends = Vec::new();
    for number in 0..LOCKERS {
        let url = cluster.nodes()[number % 2].url();
        backends.push(connect(&format!("{url}?connect_timeout=20s")).await.unwrap());
    }
    let permits = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::new(LIMIT).unwrap() };
    let sorts = [(Kind::Mutex, Mode::Exclusive), (Kind::Semaphore, permits)];
    let records = [(); 2].map(|()| Arc::new(Raised::default()));
    let end = Instant::now() + usual();
    let mut tasks = JoinSet::new();
    for (number, backend) in backends.into_iter().enumerate() {
        let record = Arc::clone(&records[number / 2 % 2]);
        let (kind, mode) = sorts[number / 2 % 2];
        tasks.spawn(async move {
            while Instant::now() < end {
                let mut claim = claim_in(&backend, kind, "a", mode);
                if let Err(error) = record.hold(&backend, &mut claim, kind == Kind::Mutex).await {
                    record.find(texts(&error));
                }
                let released = insist!(claim.release());
                // The record already has the grant.
                let _ = released.unwrap();
            }
        });
    }
    for number in 0..2 {
        let cluster = Arc::clone(&cluster);
        tasks.spawn(async move { disturb(&cluster.nodes()[number], end).await });
    }
    within(usual() + SOON * 3, "the lockers", tasks.join_all()).await;
    let mut diagnostics = Vec::new();
    for (record, (kind, _)) in records.iter().zip(sorts) {
        println!("{kind:?}: {} grants", record.grants.load(SeqCst));
        diagnostics.extend(
            record
                .diagnostics
                .lock()
                .unwrap()
                .iter()
                .map(|diagnostic| format!("{kind:?}: {diagnostic}")),
        );
    }
    assert!(
        records.iter().all(|record| record.grants.load(SeqCst) > 0),
        "somebody was granted nothing"
    );
    assert!(
        diagnostics.is_empty(),
        "{} diagnostics:\n{}",
        diagnostics.len(),
        diagnostics.join("\n")
    );
}
