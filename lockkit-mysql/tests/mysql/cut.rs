//! Tests of futures that are dropped midway.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lockkit_core::{
    FencingToken, LockName,
    spi::{Backend as _, Claim, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::{SqlFlavor, cut};
use lockkit_mysql::MySql;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::*;

on_both!(
    c6_an_answer_never_goes_to_another_question,
    c6_a_storm_of_dropped_waits_leaves_nothing,
    c6_a_storm_on_one_connection_leaves_nothing,
    c6_a_statement_that_waits_for_a_row_ends_with_its_future,
    c6_the_call_ends_even_while_the_server_is_paused,
    c6_nothing_is_killed_through_a_proxy_that_numbers_connections_in_its_own_way,
);

/// A lock that is held, with a label of its own.
struct Held {
    name: LockName,
    claim: Box<dyn Claim>,
    token: FencingToken,
    label: String,
}

async fn held(backend: &MySql, size: usize) -> Vec<Held> {
    let mut held = Vec::new();
    for number in 0..4 {
        let mut spec = spec(&format!("held {size} {number}"));
        spec.label = Some(format!("label {number}").into());
        let name = spec.name.clone();
        let mut claim = backend.claim(spec).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token;
        held.push(Held { name, claim, token, label: format!("label {number}") });
    }
    held
}

/// The driver would answer the next question with the reply to the dropped one.
async fn c6_an_answer_never_goes_to_another_question(flavor: SqlFlavor) {
    const ROUNDS: usize = 100;
    let bed = Bed::own(flavor, &[]);
    for size in [1, 3] {
        // The test does not wait for kills, so that the next question gets the connection as it is.
        let backend = bed.connect(&format!("pool_size={size}&{QUIET}")).await;
        let mut held = held(&backend, size).await;
        let mut dropped = 0;
        let mut last = None;
        for round in 0..ROUNDS {
            let polls = rand::random_range(1..6);
            let late = rand::random();
            let mut victim = claim(&backend, &format!("victim {size} {}", round % 5));
            let name = &held[round % held.len()].name;
            let was_dropped = match round % 4 {
                0 => cut(victim.attempt(Wait::No), polls, late).await.is_none(),
                1 => cut(backend.inspect(name), polls, late).await.is_none(),
                2 => cut(held[(round / 4) % 4].claim.renew(None), polls, late).await.is_none(),
                _ => cut(
                    backend.force_release(&mutex("nobody's"), last.unwrap_or(held[0].token)),
                    polls,
                    late,
                )
                .await
                .is_none(),
            };
            dropped += usize::from(was_dropped);
            // Now each question gets its own answer.
            let Held { name, claim, token, label } = &mut held[rand::random_range(0..4)];
            match rand::random_range(0..3) {
                0 => {
                    let seen = backend.inspect(name).await.unwrap().holders;
                    assert_eq!(
                        (seen[0].token, seen[0].label.as_ref()),
                        (Some(*token), Some(&*label))
                    );
                }
                1 => {
                    // The dropped renewal may still have the row.
                    let outcome = persistently(async || claim.renew(None).await).await;
                    assert!(matches!(outcome, RenewalOutcome::Alive(_)), "{outcome:?}");
                }
                _ => {
                    busy(crate::support::claim(&backend, name.as_str()).attempt(Wait::No).await);
                    let fresh = next_token(&backend, "fresh").await;
                    assert!(last.is_none_or(|last| fresh > last));
                    last = Some(fresh);
                }
            }
            let released = victim.release().await.unwrap();
            assert!(matches!(released, Released::Freed | Released::NotHeld));
        }
        println!("{dropped} of {ROUNDS} were dropped midway");
        assert!(dropped > ROUNDS / 4, "only {dropped} were dropped: the test shows nothing");
        for mut held in held {
            assert_eq!(held.claim.release().await.unwrap(), Released::Freed);
        }
        bed.assert_clean().await;
    }
}

async fn c6_a_storm_of_dropped_waits_leaves_nothing(flavor: SqlFlavor) {
    storm(flavor, 16).await;
}

async fn c6_a_storm_on_one_connection_leaves_nothing(flavor: SqlFlavor) {
    storm(flavor, 1).await;
}

/// Mostly too short for a grant. On a slow machine, only a caller that waits gets the lock.
fn some_patience() -> Duration {
    match rand::random_range(0..10) {
        0 => SOON,
        1 => Duration::from_micros(rand::random_range(0..200_000)),
        _ => Duration::from_micros(rand::random_range(0..4_000)),
    }
}

/// Thousands of calls that are dropped at any point.
async fn storm(flavor: SqlFlavor, size: usize) {
    const LENGTH: Duration = Duration::from_millis(2500);
    /// At least so many calls are dropped, and so many are served.
    const LEAST: [usize; 2] = [1000, 50];
    let bed = Bed::own(flavor, &[]);
    let locker = bed.locker(&format!("pool_size={size}&{QUIET}")).await;
    let mut tasks = JoinSet::new();
    let counts = Arc::<[AtomicUsize; 2]>::default();
    for _ in 0..16 {
        let locker = locker.clone();
        let counts = Arc::clone(&counts);
        tasks.spawn(async move {
            let start = Instant::now();
            let [dropped, taken] = &*counts;
            let is_enough = || dropped.load(Relaxed) > LEAST[0] && taken.load(Relaxed) > LEAST[1];
            while start.elapsed() < LENGTH || (!is_enough() && start.elapsed() < SOON) {
                let name = format!("{}", rand::random_range(0..4));
                let lock = locker.mutex(&name).unwrap();
                let rw = locker.rw_lock(&name).unwrap();
                let patience = some_patience();
                let answer = match rand::random_range(0..3) {
                    0 => timeout(patience, lock.lock()).await,
                    1 => timeout(patience, rw.read()).await,
                    _ => timeout(patience, rw.write()).await,
                };
                match answer {
                    Ok(guard) => {
                        taken.fetch_add(1, Relaxed);
                        drop(guard.unwrap());
                    }
                    Err(_) => {
                        assert_ne!(patience, SOON, "C8: a waiter hangs");
                        dropped.fetch_add(1, Relaxed);
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    let [dropped, taken] = [&counts[0], &counts[1]].map(|count| count.load(Relaxed));
    println!("{dropped} dropped, {taken} taken");
    bed.assert_clean().await;
    assert!(
        dropped > LEAST[0] && taken > LEAST[1],
        "{dropped} dropped, {taken} taken: the test shows nothing"
    );
    for name in 0..4 {
        let lock = locker.mutex(&name.to_string()).unwrap();
        // A lock that was left behind stays taken for a whole lease.
        let guard = within(SOON, "a free lock", lock.lock()).await.unwrap();
        guard.release().await.unwrap();
    }
    let connections = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='lockkit'";
    let mut admin = bed.admin().await;
    let most = u64::try_from(size).unwrap() + 2;
    until("no more connections than allowed", async || admin.one::<u64>(connections).await <= most)
        .await;
    locker.shutdown().await.unwrap();
    until("all connections are closed", async || admin.one::<u64>(connections).await == 0).await;
}

/// The server would let the statement wait on, and let it take the row.
async fn c6_a_statement_that_waits_for_a_row_ends_with_its_future(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect("pool_size=1").await;
    let mut admin = bed.admin().await;
    let mut watcher = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    next_token(&backend, "a").await;
    admin.run("START TRANSACTION").await;
    admin
        .run(format!(
            "SELECT * FROM {} WHERE kind='mutex' AND name='a' FOR UPDATE",
            bed.table("lock")
        ))
        .await;
    let waits = &bed.waiting();
    let mut waiting = claim(&backend, "a");
    let task = tokio::spawn(async move { waiting.attempt(Wait::No).await.map(drop) });
    until("it waits", async || watcher.one::<u64>(waits).await == 1).await;
    task.abort();
    // Without a kill, the statement would wait for far longer.
    until("its wait is over", async || watcher.one::<u64>(waits).await == 0).await;
    // Other names can use the one connection.
    within(SOON, "another name", next_token(&backend, "b")).await;
    admin.run("ROLLBACK").await;
    next_token(&backend, "a").await;
}

/// Catches a `KILL` that is given up sooner than the attempt to open a connection for it.
async fn c6_the_call_ends_even_while_the_server_is_paused(flavor: SqlFlavor) {
    // Longer than a `KILL` takes by itself, and less than the connect_timeout.
    const STILL: Duration = Duration::from_secs(6);
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(&format!("pool_size=1&{QUIET}")).await;
    let mut admin = bed.admin().await;
    let mut locked = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    next_token(&backend, "a").await;
    locked.run("START TRANSACTION").await;
    locked.run(format!("SELECT 1 FROM {} WHERE name='a' FOR UPDATE", bed.table("lock"))).await;
    let waits = &bed.waiting();
    let mut waiting = claim(&backend, "a");
    let task = tokio::spawn(async move { waiting.attempt(Wait::No).await.map(drop) });
    until("it waits", async || admin.one::<u64>(waits).await == 1).await;
    let connections = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='lockkit'";
    assert_eq!(
        admin.one::<u64>(connections).await,
        1,
        "there is one already that the KILL can use"
    );
    bed.server.pause().unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    sleep(STILL).await;
    bed.server.resume().unwrap();
    // Without a kill, the statement would wait for far longer.
    until("its wait is over", async || admin.one::<u64>(waits).await == 0).await;
    locked.run("ROLLBACK").await;
}

/// Catches a `KILL` with a number that belongs to another client's connection to the proxy.
async fn c6_nothing_is_killed_through_a_proxy_that_numbers_connections_in_its_own_way(
    flavor: SqlFlavor,
) {
    // A server that stalls would answer right after its stall.
    let bed = Bed::steady(flavor);
    let mut admin = bed.admin().await;
    let mut locked = bed.admin().await;
    // This makes the tables.
    bed.connect(QUIET).await.close().await.unwrap();
    bed.wait_for_rows_until(&mut admin, Duration::from_secs(10)).await;
    let proxy = numbering_proxy(bed.addr()).await;
    for (url, kills) in [(bed.url_at(proxy, QUIET), 0), (bed.url(QUIET), 1)] {
        let backend = connect(&url).await.unwrap();
        next_token(&backend, "a").await;
        let before = admin.status("Com_kill").await;
        locked.run("BEGIN").await;
        locked.run(format!("SELECT 1 FROM {} WHERE name='a' FOR UPDATE", bed.table("lock"))).await;
        let mut dropped = claim(&backend, "a");
        tokio::select! {
            answer = dropped.attempt(Wait::No) => panic!("it did not wait: {answer:?}"),
            () = until("it waits for the row", async || admin.one::<u64>(bed.waiting()).await == 1) => {}
        }
        until("it is gone", async || admin.one::<u64>(bed.waiting()).await == 0).await;
        locked.run("COMMIT").await;
        dropped.release().await.ok();
        drop(dropped);
        backend.close().await.unwrap();
        let sent = admin.status("Com_kill").await - before;
        assert_eq!(sent.min(1), kills, "{url}");
    }
}

/// A proxy that greets its clients with other connection numbers than the server's.
async fn numbering_proxy(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                let mut header = [0; 4];
                server.read_exact(&mut header).await.unwrap();
                let mut greeting = vec![0; usize::from(header[0]) + 256 * usize::from(header[1])];
                server.read_exact(&mut greeting).await.unwrap();
                // The number comes after the version, which begins at the second byte and ends with
                // a zero.
                let number = greeting.iter().position(|byte| *byte == 0).unwrap() + 1;
                greeting[number] ^= 0xff;
                client.write_all(&header).await.unwrap();
                client.write_all(&greeting).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}
