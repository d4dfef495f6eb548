//! Tests of how many requests a server gets, by its own counters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use lockkit_core::{
    Kind, LockOptions, Locker,
    spi::{Admin as _, Mode, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::*;

on_both!(
    a_lock_and_its_release_are_two_statements,
    releases_of_a_busy_client_share_statements,
    a_reader_a_writer_and_a_permit_are_five_statements,
    a_shared_grant_among_64_tasks_is_few_statements,
    a_refusal_is_one_statement,
    renewals_of_hundreds_of_locks_are_few_statements,
    one_of_64_waiters_looks,
    c10_a_renewal_that_found_nothing_asks_again_with_a_locking_read,
    c13_the_reason_of_a_refusal_comes_from_the_primary,
    housekeeping_has_a_quarter_as_many_connections_as_the_pool,
);

/// The statements of all clients since the last call, without the question itself.
struct Counter {
    admin: Admin,
    last: u64,
}

impl Counter {
    async fn on(bed: &Bed) -> Self {
        let mut admin = bed.admin().await;
        let last = admin.status("Questions").await;
        Self { admin, last }
    }

    async fn statements(&mut self) -> u64 {
        let now = self.admin.status("Questions").await;
        let new = now - self.last - 1;
        self.last = now;
        new
    }

    async fn writes(&mut self) -> u64 {
        let mut writes = 0;
        for name in ["Com_insert", "Com_insert_select", "Com_update", "Com_update_multi"] {
            writes += self.admin.status(name).await;
        }
        writes
    }
}

async fn warm(bed: &Bed) -> (Locker, Counter) {
    let locker = bed.locker(QUIET).await;
    for name in ["a", "b"] {
        locker.mutex(name).unwrap().lock().await.unwrap().release().await.unwrap();
    }
    let mut counter = Counter::on(bed).await;
    assert_eq!(
        (counter.statements().await, counter.statements().await),
        (0, 0),
        "somebody else is at work"
    );
    (locker, counter)
}

/// Catches a ping before each use, a question for the time, and a transaction around one statement.
async fn a_lock_and_its_release_are_two_statements(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let (locker, mut counter) = warm(&bed).await;
    let executed = counter.admin.status("Com_stmt_execute").await;
    counter.statements().await;
    for name in ["a", "b", "a"] {
        let guard = locker.mutex(name).unwrap().lock().await.unwrap();
        assert_eq!(counter.statements().await, 1);
        guard.release().await.unwrap();
        assert_eq!(counter.statements().await, 1);
    }
    // The statements are prepared once: the server parses nothing again, and gets no other
    // question.
    assert_eq!(counter.admin.status("Com_stmt_execute").await - executed, 6);
    let prepared = counter.admin.status("Com_stmt_prepare").await;
    locker.mutex("a").unwrap().lock().await.unwrap().release().await.unwrap();
    assert_eq!(counter.admin.status("Com_stmt_prepare").await, prepared);
}

/// Catches releases that are sent one by one while the server is busy.
async fn releases_of_a_busy_client_share_statements(flavor: SqlFlavor) {
    const TASKS: u64 = 64;
    let bed = Bed::own(flavor, &[]);
    let locker = bed.locker(QUIET).await;
    let mut counter = Counter::on(&bed).await;
    let mut cost = 0.0;
    // The first turn makes the rows and the connections.
    for turns in [1, 20] {
        counter.statements().await;
        let crowd = (0..TASKS).map(async |task| {
            for _ in 0..turns {
                let guard = locker.mutex(&task.to_string()).unwrap().lock().await.unwrap();
                guard.release().await.unwrap();
            }
        });
        within(SOON, "the crowd", join_all(crowd)).await;
        cost = ratio(counter.statements().await, TASKS * turns);
    }
    println!("{cost:.3} statements a pair");
    assert!(cost < 1.4, "{cost:.3} statements a pair");
}

/// Catches a look before each grant, a transaction around a release, and a preparation of a row
/// that is there.
async fn a_reader_a_writer_and_a_permit_are_five_statements(flavor: SqlFlavor) {
    const GRANT: u64 = 4;
    let bed = Bed::own(flavor, &[]);
    let (locker, mut counter) = warm(&bed).await;
    for sort in ["reader", "writer", "permit"] {
        for round in 0..3 {
            let guard = match sort {
                "reader" => locker.rw_lock("a").unwrap().read().await,
                "writer" => locker.rw_lock("a").unwrap().write().await,
                _ => locker.semaphore("a", 4).unwrap().acquire().await,
            };
            let statements = counter.statements().await;
            // The first use of a name makes its row.
            assert!(statements == GRANT || round == 0, "{sort}: {statements} statements");
            guard.unwrap().release().await.unwrap();
            let statements = counter.statements().await;
            assert!(statements == 1 || round == 0, "{sort}: {statements} statements to release");
        }
    }
}

/// Catches readers of one process that overtake each other between the two statements of a grant,
/// and waiters that ask in vain.
async fn a_shared_grant_among_64_tasks_is_few_statements(flavor: SqlFlavor) {
    const TASKS: u64 = 64;
    const TURNS: u64 = 8;
    let bed = Bed::steady(flavor);
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    let locker = Locker::new(bed.connect(QUIET).await).with_defaults(options).unwrap();
    let locker = Arc::new(locker);
    for sort in ["permit", "reader", "reader or writer"] {
        let take = async |locker: &Locker, task: u64| match sort {
            "permit" => locker.semaphore("a", 4).unwrap().acquire().await.unwrap(),
            "reader" => locker.rw_lock("a").unwrap().read().await.unwrap(),
            _ if task.is_multiple_of(4) => locker.rw_lock("a").unwrap().write().await.unwrap(),
            _ => locker.rw_lock("a").unwrap().read().await.unwrap(),
        };
        // The first use of a name makes its row.
        take(&locker, 1).await.release().await.unwrap();
        let mut counter = Counter::on(&bed).await;
        let crowd = (0..TASKS).map(async |task| {
            for _ in 0..TURNS {
                let guard = take(&locker, task).await;
                sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
        });
        within(SOON * 5, sort, join_all(crowd)).await;
        let cost = ratio(counter.statements().await, TASKS * TURNS);
        println!("{sort}: {cost:.3} statements a grant");
        // A candidate that does not lock the row of the name needs 8.6 or more for permits. Clients
        // without a process gate need 8.9 or more for them.
        assert!(cost <= 6.5, "{sort}: {cost:.3} statements a grant");
    }
}

async fn a_refusal_is_one_statement(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let other = bed.locker(QUIET).await;
    let guard = other.mutex("a").unwrap().lock().await.unwrap();
    let (locker, mut counter) = {
        let locker = bed.locker(QUIET).await;
        assert!(locker.mutex("a").unwrap().try_lock().await.unwrap().is_none());
        (locker, Counter::on(&bed).await)
    };
    for _ in 0..3 {
        assert!(locker.mutex("a").unwrap().try_lock().await.unwrap().is_none());
        assert_eq!(counter.statements().await, 1);
    }
    guard.release().await.unwrap();
}

/// Catches a renewal for each lock, and due times that do not coincide.
async fn renewals_of_hundreds_of_locks_are_few_statements(flavor: SqlFlavor) {
    const LEASE: Duration = Duration::from_secs(24);
    const LOCKS: usize = 500;
    let bed = Bed::own(flavor, &[]);
    let locker = Arc::new(with_ttl(bed.connect(QUIET).await, LEASE));
    let mut tasks = JoinSet::new();
    for task in 0..10 {
        let locker = Arc::clone(&locker);
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for lock in 0..LOCKS / 10 {
                guards.push(locker.mutex(&format!("{task} {lock}")).unwrap().lock().await.unwrap());
            }
            guards
        });
    }
    let guards: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    // After one period, the renewals have found their slots.
    sleep(LEASE / 3).await;
    let mut counter = Counter::on(&bed).await;
    let start = Instant::now();
    sleep(LEASE).await;
    let statements = counter.statements().await;
    let periods = start.elapsed().as_secs_f64() / (LEASE / 3).as_secs_f64();
    println!("{statements} statements in {periods:.1} periods");
    assert!(
        ratio(statements, 1) <= 10.0 * periods,
        "{statements} statements in {periods:.1} periods"
    );
    assert!(ratio(statements, 1) >= periods, "nothing was renewed?");
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// Catches a peek for each waiter, a pause that does not grow, and a poll with the write.
async fn one_of_64_waiters_looks(flavor: SqlFlavor) {
    const TASKS: u64 = 64;
    const KEPT: Duration = Duration::from_secs(2);
    let bed = Bed::own(flavor, &[]);
    let other = bed.locker(QUIET).await;
    let guard = other.mutex("hot").unwrap().lock().await.unwrap();
    let locker = Arc::new(bed.locker(QUIET).await);
    let mut counter = Counter::on(&bed).await;
    let grants = Arc::new(AtomicU64::new(0));
    let idle = counter.writes().await;
    let begun = Instant::now();
    let tasks = hot_tasks(TASKS, &locker, &grants);
    // Each task writes once when it asks for the first time.
    until("all have asked", async || counter.writes().await >= idle + TASKS).await;
    counter.statements().await;
    let start = Instant::now();
    let mut looks = 0;
    // A server that stalls gets no questions.
    until("somebody looks", async || {
        sleep(KEPT.saturating_sub(start.elapsed())).await;
        looks += counter.statements().await;
        looks >= 10
    })
    .await;
    let waited = start.elapsed();
    let after = counter.writes().await;
    println!("{looks} looks in {waited:?}");
    // The core polls once a second at most for each waiter, and the answer needs no request to the
    // server.
    assert!(u128::from(looks) <= waited.as_millis() / 25, "{looks} looks in {waited:?}");
    // The client records twice a second that it waits, also while the tasks begin to ask. A record
    // skips a row that another statement locks, and is sent again.
    let most = u128::from(TASKS) + 1 + begun.elapsed().as_millis() / 200;
    assert!(u128::from(after - idle) <= most, "{} writes in {waited:?}", after - idle);
    counter.statements().await;
    let start = Instant::now();
    guard.release().await.unwrap();
    within(SOON, "the hot phase", tasks.join_all()).await;
    let statements = counter.statements().await;
    let elapsed = start.elapsed();
    let grants = grants.load(Relaxed);
    println!("{:.2} statements a grant, {grants} grants in {elapsed:?}", ratio(statements, grants));
    assert_eq!(grants, 4 * TASKS);
    // Two statements for each grant, and a look from time to time while the server works. If each
    // of the 64 tasks looked by itself, there would be many more.
    let looks = elapsed.as_secs_f64() * 250.0;
    assert!(
        ratio(statements, grants) <= 2.2 + looks / 256.0,
        "{statements} for {grants} grants in {elapsed:?}"
    );
}

/// Tasks that each take the hot lock four times.
fn hot_tasks(count: u64, locker: &Arc<Locker>, grants: &Arc<AtomicU64>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let locker = Arc::clone(locker);
        let grants = Arc::clone(grants);
        tasks.spawn(async move {
            for _ in 0..4 {
                let guard = locker.mutex("hot").unwrap().lock().await.unwrap();
                grants.fetch_add(1, Relaxed);
                guard.release().await.unwrap();
            }
        });
    }
    tasks
}

/// Catches a plain read. A proxy may send it to a replica, and a replica that lags would report
/// that a lease has ended.
async fn c10_a_renewal_that_found_nothing_asks_again_with_a_locking_read(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    admin.run("SET GLOBAL log_output='TABLE',GLOBAL general_log=1").await;
    for (kind, mode, table) in
        [(Kind::Mutex, Mode::Exclusive, "lock"), (Kind::RwLock, Mode::Shared, "holder")]
    {
        let mut held = claim_in(&backend, kind, "a", mode);
        granted(held.attempt(Wait::No).await);
        admin.run(format!("UPDATE {} SET expires_us=0", bed.table(table))).await;
        admin.run("TRUNCATE mysql.general_log").await;
        assert!(matches!(held.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
        let asked = "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log";
        let mut asked = admin.all::<String>(asked).await;
        asked.retain(|statement| statement.contains("SELECT kind,name,owner"));
        let [question] = &asked[..] else { panic!("{asked:?}") };
        assert!(
            question.contains(&bed.table(table)) && question.ends_with("FOR UPDATE"),
            "{question}"
        );
        given_up(held.release()).await;
    }
}

/// Catches a plain read. A proxy may send it to a replica, which would report that it is no primary.
async fn c13_the_reason_of_a_refusal_comes_from_the_primary(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut held = claim_in(&backend, Kind::RwLock, "a", Mode::Exclusive);
    granted(held.attempt(Wait::No).await);
    admin.run("SET GLOBAL log_output='TABLE',GLOBAL general_log=1").await;
    busy(claim_in(&backend, Kind::RwLock, "a", Mode::Shared).attempt(Wait::No).await);
    admin.run("SET GLOBAL general_log=0").await;
    let asked = "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log";
    let mut asked = admin.all::<String>(asked).await;
    asked.retain(|text| text.starts_with("SELECT") && text.contains("read_only"));
    assert!(!asked.is_empty());
    for text in asked {
        let question = text.split(';').next().unwrap();
        assert!(question.ends_with("FOR UPDATE"), "{text}");
    }
    given_up(held.release()).await;
}

/// Catches another share than the one that `Config::with_pool_size` documents.
async fn housekeeping_has_a_quarter_as_many_connections_as_the_pool(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    for (pool, share) in [(1, 2), (8, 2), (24, 6), (400, 16)] {
        let (backend, proxy) = bed.behind_proxy(&format!("pool_size={pool}&{QUIET}")).await;
        let before = admin.status("Connections").await;
        // No answer comes until all questions have come.
        proxy.set(|traffic| traffic.down.hold = true);
        let backend = Arc::new(backend);
        let mut asking = JoinSet::new();
        for _ in 0..3 * share {
            let backend = Arc::clone(&backend);
            asking.spawn(async move { backend.probe().await.map(drop) });
        }
        until("they connect", async || admin.status("Connections").await >= before + share).await;
        proxy.heal();
        for asked in within(SOON, "signs of life", asking.join_all()).await {
            asked.unwrap();
        }
        assert_eq!(admin.status("Connections").await, before + share, "pool_size={pool}");
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    let [part, whole] = [part, whole].map(|number| f64::from(u32::try_from(number).unwrap()));
    part / whole
}
