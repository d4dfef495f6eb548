//! Tests of the one task that asks the server on behalf of all waiters of a process.

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use lockkit_core::{
    Error, ErrorKind, Kind, OwnerId,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Mode, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;
use lockkit_mysql::{MySql, mysql_async::Row};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinSet, yield_now},
    time::sleep,
};

use crate::support::*;

on_both!(
    c8_a_thousand_waiters_are_a_few_requests,
    c6_no_poll_runs_without_a_waiter,
    c1_c8_all_waiters_for_many_names_get_their_locks,
    c8_a_hasty_waiter_fails_by_itself_on_a_slow_server,
    c8_a_patient_waiter_whose_poll_is_lost_delays_no_hasty_one,
    c8_locks_of_all_kinds_are_waited_for_together,
    c8_looks_and_words_use_the_primary_key_and_wait_for_no_row,
    c8_a_refused_poll_silences_no_name,
);

const COLUMNS: &str = "kind,name,owner,fence,expires_us,touched_us";

/// Takes these mutexes for long, as another client would.
async fn taken(bed: &Bed, admin: &mut Admin, names: &[String]) {
    for some in names.chunks(500) {
        let row = |name: &String| format!("('mutex','{name}','other',{NOW},{NOW}+600000000,{NOW})");
        let rows = some.iter().map(row).collect::<Vec<_>>().join(",");
        admin.run(format!("INSERT INTO {}({COLUMNS}) VALUES {rows}", bed.table("lock"))).await;
    }
}

async fn free(bed: &Bed, admin: &mut Admin, name: &str) {
    admin
        .run(format!(
            "UPDATE {} SET expires_us=0 WHERE kind='mutex' AND name='{name}'",
            bed.table("lock")
        ))
        .await;
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

/// A claim that waits in line.
async fn waiting(backend: &MySql, name: &str, op_timeout: Duration) -> Box<dyn Claim> {
    let spec = ClaimSpec::new(mutex(name), OwnerId::random(), Mode::Exclusive, TTL, op_timeout);
    let mut claim = backend.claim(spec).unwrap();
    busy(Ok(persistently(async || claim.attempt(Wait::Queue).await).await));
    claim
}

async fn is_granted(claim: &mut dyn Claim) -> bool {
    matches!(claim.attempt(Wait::Queue).await, Ok(Attempt::Granted(_)))
}

/// How many requests the server has got, and the server's own time in seconds.
async fn requests(admin: &mut Admin) -> (u64, f64) {
    let us = admin.one::<u64>(format!("SELECT {NOW}")).await;
    (admin.status("Questions").await, Duration::from_micros(us).as_secs_f64())
}

/// Waits until one waiter of each name has asked, and has recorded that it waits. The other waiters
/// are behind it.
async fn settled(bed: &Bed, admin: &mut Admin, names: &str, count: u64) {
    let said = format!("name LIKE '{names} %' AND wanted_us>0");
    let said = format!("SELECT COUNT(*) FROM {} WHERE {said}", bed.table("lock"));
    until("all wait", async || admin.one::<u64>(&said).await == count).await;
    sleep(SLACK).await;
}

/// Catches a task for each name, a statement for each name, and a record of its own for each name
/// that has waiters.
async fn c8_a_thousand_waiters_are_a_few_requests(flavor: SqlFlavor) {
    const A_SECOND: f64 = 50.0;
    /// For the admin's questions, and for tasks that come late.
    const ONCE: f64 = 50.0;
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let locker = bed.locker(QUIET).await;
    for (kind, count, waiters) in [("few", 100, 10), ("many", 1_000, 1)] {
        let names: Vec<_> = names(count).iter().map(|name| format!("{kind} {name}")).collect();
        taken(&bed, &mut admin, &names).await;
        let mut waiting = JoinSet::new();
        for name in &names {
            for _ in 0..waiters {
                let mutex = locker.mutex(name).unwrap();
                waiting.spawn(async move { mutex.lock().await.map(drop) });
            }
        }
        settled(&bed, &mut admin, kind, u64::try_from(count).unwrap()).await;
        let (first, start) = requests(&mut admin).await;
        let mut asked = 0.0;
        let mut elapsed = 0.0;
        // A server that stalls gets no questions.
        until("somebody looks", async || {
            sleep(Duration::from_secs(4)).await;
            let (last, end) = requests(&mut admin).await;
            asked = f64::from(u32::try_from(last - first).unwrap());
            elapsed = end - start;
            asked >= 10.0
        })
        .await;
        println!("{count} names, {waiters} waiters each: {:.1} requests a second", asked / elapsed);
        assert!(asked <= A_SECOND * elapsed + ONCE, "{asked} requests in {elapsed:.1} s");
        waiting.shutdown().await;
    }
}

/// Catches a task that never ends, and one that ends for good.
async fn c6_no_poll_runs_without_a_waiter(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = bed.connect(QUIET).await;
    taken(&bed, &mut admin, &names(1)).await;
    for _ in 0..3 {
        let mut waiter = waiting(&backend, "n0", OP_TIMEOUT).await;
        let mut last = admin.status("Questions").await;
        let mut asked = async || {
            sleep(SLACK).await;
            let now = admin.status("Questions").await;
            now - std::mem::replace(&mut last, now) - 1
        };
        until("somebody looks", async || asked().await > 0).await;
        given_up(waiter.release()).await;
        until("nobody looks", async || asked().await == 0).await;
    }
}

/// Catches looks that reach only the first line, the last, or some, and calls that reach one waiter
/// of each line.
async fn c1_c8_all_waiters_for_many_names_get_their_locks(flavor: SqlFlavor) {
    const WAITERS: usize = 10;
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let locker = bed.locker(QUIET).await;
    let names = names(30);
    taken(&bed, &mut admin, &names).await;
    let mut waiting = JoinSet::new();
    for name in &names {
        let is_held = Arc::new(AtomicBool::new(false));
        for _ in 0..WAITERS {
            let mutex = locker.mutex(name).unwrap();
            let is_held = Arc::clone(&is_held);
            waiting.spawn(async move {
                let guard = mutex.lock().await.unwrap();
                assert!(!is_held.swap(true, SeqCst), "C1: two have it");
                yield_now().await;
                is_held.store(false, SeqCst);
                guard.release().await.unwrap();
            });
        }
    }
    sleep(SLACK).await;
    for name in &names {
        free(&bed, &mut admin, name).await;
    }
    within(SOON, "C8: all grants", waiting.join_all()).await;
}

fn is_silence(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.to_string().contains("did not answer within")
}

/// Catches one patience for a whole look. With the least of all, each waiter fails. With the
/// longest, no waiter hears of the slow server.
async fn c8_a_hasty_waiter_fails_by_itself_on_a_slow_server(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let (backend, proxy) = bed.behind_proxy(QUIET).await;
    taken(&bed, &mut admin, &names(2)).await;
    let mut hasty = waiting(&backend, "n0", Duration::from_millis(400)).await;
    let mut patient = waiting(&backend, "n1", Duration::from_secs(60)).await;
    proxy.set(|traffic| traffic.down.delay = Duration::from_millis(900));
    until("the hasty one hears that it is slow", async || match hasty.attempt(Wait::Queue).await {
        Ok(answer) => {
            assert!(!matches!(answer, Attempt::Granted(_)));
            false
        }
        Err(error) => is_silence(&error),
    })
    .await;
    free(&bed, &mut admin, "n1").await;
    let mut granted = false;
    until("the patient one has its lock", async || {
        granted =
            granted || matches!(patient.attempt(Wait::Queue).await.unwrap(), Attempt::Granted(_));
        granted
    })
    .await;
    proxy.heal();
    for mut claim in [hasty, patient] {
        given_up(claim.release()).await;
    }
}

/// A proxy to the server. When its sender changes, it forgets all its connections and closes none.
/// New connections work.
async fn forgetful(bed: &Bed) -> (SocketAddr, watch::Sender<u32>) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = socket.local_addr().unwrap();
    let server = bed.addr();
    let (forget, _) = watch::channel(0);
    let forgets = forget.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = socket.accept().await {
            let mut forgets = forgets.subscribe();
            forgets.mark_unchanged();
            tokio::spawn(async move {
                let mut there = TcpStream::connect(server).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut there) => {}
                    // Both sockets stay open.
                    _ = forgets.changed() => pending().await,
                }
            });
        }
    });
    (addr, forget)
}

/// The look is lost with its connection, which stays open. Catches looks that follow one after the
/// other, each as long as its most patient waiter wants.
async fn c8_a_patient_waiter_whose_poll_is_lost_delays_no_hasty_one(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let (addr, forget) = forgetful(&bed).await;
    let backend = connect(&bed.url_at(addr, QUIET)).await.unwrap();
    taken(&bed, &mut admin, &names(6)).await;
    let mut patient = Vec::new();
    for name in &names(6)[1..] {
        patient.push(waiting(&backend, name, Duration::from_secs(3600)).await);
    }
    let mut hasty = waiting(&backend, "n0", Duration::from_secs(1)).await;
    for _ in 0..3 {
        until("its look is lost", async || {
            // Forgets the connection of the next look, whichever it is.
            forget.send_modify(|times| *times += 1);
            hasty.attempt(Wait::Queue).await.is_err_and(|error| is_silence(&error))
        })
        .await;
        until("it is looked at again", async || hasty.attempt(Wait::Queue).await.is_ok()).await;
    }
    free(&bed, &mut admin, "n0").await;
    until("the hasty one has its lock", async || is_granted(&mut *hasty).await).await;
    given_up(hasty.release()).await;
}

/// Catches answers that differ only by the text of the name, and holders that are looked for in
/// only one of the tables.
async fn c8_locks_of_all_kinds_are_waited_for_together(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let here = bed.connect(QUIET).await;
    let there = bed.connect(QUIET).await;
    let one = NonZeroU32::MIN;
    let two = NonZeroU32::MIN.saturating_add(1);
    let permit = |count| Mode::Permits { count, limit: two };
    // The modes of the holders, and the mode of the waiter.
    let locks: [(Kind, &[Mode], Mode); 6] = [
        (Kind::Mutex, &[Mode::Exclusive], Mode::Exclusive),
        (Kind::Election, &[Mode::Exclusive], Mode::Exclusive),
        (Kind::RwLock, &[Mode::Exclusive], Mode::Shared),
        (Kind::RwLock, &[Mode::Shared, Mode::Shared], Mode::Exclusive),
        (Kind::Semaphore, &[permit(two)], permit(one)),
        (Kind::Semaphore, &[permit(one), permit(one)], permit(two)),
    ];
    for round in 0..locks.len() {
        let mut claims = Vec::new();
        for (number, (kind, modes, waits)) in locks.iter().enumerate() {
            // The same text in all kinds.
            let name = format!("{}", number % 2);
            let name = if *kind == Kind::Mutex || *kind == Kind::Election { "0" } else { &name };
            let mut held = Vec::new();
            for mode in *modes {
                let mut claim = claim_in(&there, *kind, name, *mode);
                // A late record of the last round's writer may keep readers away for a while.
                until("it is free", async || {
                    matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_))
                })
                .await;
                held.push(claim);
            }
            let mut waiter = claim_in(&here, *kind, name, *waits);
            busy(waiter.attempt(Wait::Queue).await);
            claims.push((held, waiter));
        }
        // Each lock is the first to be freed once.
        claims.rotate_left(round);
        while !claims.is_empty() {
            let (held, mut waiter) = claims.remove(0);
            for mut claim in held {
                assert!(!is_granted(&mut *waiter).await, "C1: somebody has it still");
                given_up(claim.release()).await;
            }
            until("the waiter has it", async || is_granted(&mut *waiter).await).await;
            for (_, other) in &mut claims {
                assert!(!is_granted(&mut **other).await, "C1: that one was not freed");
            }
            given_up(waiter.release()).await;
        }
    }
}

/// Catches a scan, a lock on rows that are only read, and a record that waits for a row while it
/// has locked others.
async fn c8_looks_and_words_use_the_primary_key_and_wait_for_no_row(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let mut log = bed.admin().await;
    let backend = bed.connect(QUIET).await;
    let names = names(20);
    let table = bed.table("lock");
    taken(&bed, &mut admin, &names).await;
    let mut waiters = Vec::new();
    for name in &names {
        waiters.push(waiting(&backend, name, OP_TIMEOUT).await);
    }
    let said = format!("SELECT COUNT(*) FROM {table} WHERE wanted_us>{NOW}");
    until("all say that they wait", async || log.one::<u64>(&said).await == 20).await;
    // Another client is at work on one of the rows.
    admin.run("START TRANSACTION").await;
    admin.run(format!("SELECT * FROM {table} WHERE kind='mutex' AND name='n7' FOR UPDATE")).await;
    let before = log.status("Innodb_row_lock_waits").await;
    log.run("SET GLOBAL log_output='TABLE',GLOBAL general_log=1").await;
    let old = log.one::<u64>(format!("SELECT MAX(wanted_us) FROM {table}")).await;
    let newer = format!("SELECT COUNT(*) FROM {table} WHERE wanted_us>{old}");
    until("the others say so again", async || log.one::<u64>(&newer).await == 19).await;
    let _queue = a_writer_and_a_reader(&backend).await;
    let asked =
        "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type='Query'";
    let of = async |log: &mut Admin, part: &str| {
        let mut asked = log.all::<String>(asked).await;
        asked.retain(|statement| statement.contains(part) && statement.contains(&table));
        asked
    };
    until("holders are looked at", async || {
        !of(&mut log, "SELECT l.kind").await.iter().all(|one| !one.contains("JOIN"))
    })
    .await;
    log.run("SET GLOBAL general_log=0").await;
    assert_eq!(log.status("Innodb_row_lock_waits").await, before, "C10: somebody waited for a row");
    admin.run("ROLLBACK").await;
    let mut looks = of(&mut log, "SELECT l.kind").await;
    // A refused attempt is logged as a whole, too.
    looks.retain(|statement| statement.starts_with("SELECT l.kind"));
    let words = of(&mut log, "SKIP LOCKED").await;
    assert!(looks.len() > 1 && !words.is_empty(), "{} {}", looks.len(), words.len());
    for statement in &looks {
        assert!(!statement.contains(" FOR ") && !statement.contains("LOCK IN"), "{statement}");
    }
    let planned = planned_by_key(flavor, &mut log, looks.iter().chain(&words)).await;
    assert!(planned > 1, "nothing was planned");
}

/// A writer that holds the lock, and a reader that waits for it.
async fn a_writer_and_a_reader(backend: &MySql) -> Vec<Box<dyn Claim>> {
    let mut claims = Vec::new();
    for mode in [Mode::Exclusive, Mode::Shared] {
        let mut claim = claim_in(backend, Kind::RwLock, "a", mode);
        if mode == Mode::Exclusive {
            granted(claim.attempt(Wait::No).await);
        } else {
            busy(claim.attempt(Wait::Queue).await);
        }
        claims.push(claim);
    }
    claims
}

/// Checks that the plans find all rows by the primary key. Returns how many tables they read.
async fn planned_by_key(
    flavor: SqlFlavor,
    log: &mut Admin,
    statements: impl Iterator<Item = &String>,
) -> usize {
    let explain = if flavor == SqlFlavor::MySql { "EXPLAIN FORMAT=TRADITIONAL" } else { "EXPLAIN" };
    let mut planned = 0;
    for statement in statements {
        for row in log.all::<Row>(&format!("{explain} {statement}")).await {
            let column = |name: &str| row.get::<Option<String>, _>(name).unwrap();
            // The server may find a single name before there is a plan.
            let Some(table) = column("table") else { continue };
            let kind = column("type").unwrap();
            let key = column("key");
            // These are the rows that were found, on their way to the change.
            if table.starts_with("<derived") {
                continue;
            }
            planned += 1;
            assert_eq!(key.as_deref(), Some("PRIMARY"), "{table}: {statement}");
            assert!(
                ["const", "range", "ref", "eq_ref"].contains(&kind.as_str()),
                "{table} {kind}: {statement}"
            );
        }
    }
    planned
}

/// Catches a look that fails for all of its names, and is repeated unchanged.
async fn c8_a_refused_poll_silences_no_name(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &["--max-allowed-packet=8192"]);
    let mut admin = bed.admin().await;
    let backend = bed.connect(QUIET).await;
    let names: Vec<_> = (0..60).map(|number| format!("{number:0>250}")).collect();
    for some in names.chunks(5) {
        taken(&bed, &mut admin, some).await;
    }
    let mut waiters = Vec::new();
    for name in &names {
        waiters.push(waiting(&backend, name, OP_TIMEOUT).await);
    }
    for name in &names {
        free(&bed, &mut admin, name).await;
    }
    for (waiter, name) in waiters.iter_mut().zip(&names) {
        until(&format!("{} is free", name.trim_start_matches('0')), async || {
            is_granted(&mut **waiter).await
        })
        .await;
        given_up(waiter.release()).await;
    }
}
