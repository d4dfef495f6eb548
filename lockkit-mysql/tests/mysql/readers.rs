//! Tests of readers that overlap all the time, and of a writer.

use lockkit_core::ErrorKind;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_fixture::SqlFlavor;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::*;

on_both!(
    c12_readers_do_not_starve_a_writer,
    c12_readers_that_stay_do_not_starve_a_writer,
    c12_a_writer_that_gave_up_lets_readers_pass,
    writers_do_not_starve_readers,
    c8_a_reader_and_a_writer_of_one_client_do_not_hold_each_other_up,
);

/// Catches readers that are let in while a writer waits.
async fn c12_readers_do_not_starve_a_writer(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut tasks = JoinSet::new();
    let over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    for reader in 0..12 {
        let locker = bed.locker("").await;
        let over = Arc::clone(&over);
        let reads = Arc::clone(&reads);
        tasks.spawn(async move {
            sleep(Duration::from_millis(10 * reader)).await;
            while !over.load(Relaxed) {
                let guard = locker.rw_lock("a").unwrap().read().await.unwrap();
                reads.fetch_add(1, Relaxed);
                sleep(Duration::from_millis(100)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let writer = bed.locker("").await;
    until("the readers overlap", async || reads.load(Relaxed) > 24).await;
    for _ in 0..3 {
        let start = Instant::now();
        let guard = within(SOON, "a writer", writer.rw_lock("a").unwrap().write()).await.unwrap();
        println!("the writer waited for {:?}", start.elapsed());
        guard.release().await.unwrap();
        // The writer does not starve the readers either.
        let before = reads.load(Relaxed);
        until("the readers go on", async || reads.load(Relaxed) > before + 12).await;
    }
    over.store(true, Relaxed);
    within(SOON, "the readers", tasks.join_all()).await;
}

/// Catches a writer that keeps new readers away only for a while, when the present readers stay for
/// longer.
async fn c12_readers_that_stay_do_not_starve_a_writer(flavor: SqlFlavor) {
    const STAY: Duration = Duration::from_secs(2);
    const READERS: u32 = 4;
    let bed = Bed::shared(flavor);
    let mut tasks = JoinSet::new();
    let over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    for reader in 0..READERS {
        let locker = bed.locker("").await;
        let over = Arc::clone(&over);
        let reads = Arc::clone(&reads);
        tasks.spawn(async move {
            sleep(STAY / READERS * reader).await;
            while !over.load(Relaxed) {
                let guard = locker.rw_lock("a").unwrap().read().await.unwrap();
                reads.fetch_add(1, Relaxed);
                sleep(STAY).await;
                guard.release().await.unwrap();
            }
        });
    }
    let writer = bed.locker("").await;
    until("the readers overlap", async || reads.load(Relaxed) > u64::from(READERS)).await;
    let start = Instant::now();
    let guard = within(SOON, "a writer", writer.rw_lock("a").unwrap().write()).await.unwrap();
    println!("the writer waited for {:?}", start.elapsed());
    over.store(true, Relaxed);
    guard.release().await.unwrap();
    within(SOON, "the readers", tasks.join_all()).await;
}

async fn c12_a_writer_that_gave_up_lets_readers_pass(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let here = bed.locker("").await;
    let there = bed.locker("").await;
    let writer = bed.locker("").await;
    let first = here.rw_lock("a").unwrap().read().await.unwrap();
    let bounded = writer.rw_lock("a").unwrap();
    // A server that stalls for as long has not answered yet.
    let gave_up = async || {
        let error = bounded.write_timeout(Duration::from_secs(2)).await.unwrap_err();
        let is_unanswered = error.is_temporary() && error.kind() != ErrorKind::Timeout;
        if is_unanswered { Err(error) } else { Ok(error.kind()) }
    };
    assert_eq!(persistently(gave_up).await, ErrorKind::Timeout);
    // The writer's record lasts for a second, and is not renewed.
    let mut admin = bed.admin().await;
    let words =
        format!("SELECT CAST(wanted_us AS SIGNED)-{NOW} FROM {} WHERE name='a'", bed.table("lock"));
    let left_us = admin.one::<i64>(words).await;
    assert!(left_us <= 1_000_000, "it keeps readers away for {left_us} µs");
    let start = Instant::now();
    let second = within(SOON, "a reader", there.rw_lock("a").unwrap().read()).await.unwrap();
    println!("the reader waited for {:?}", start.elapsed());
    second.release().await.unwrap();
    // A writer that only tries keeps no reader waiting.
    assert!(writer.rw_lock("a").unwrap().try_write().await.unwrap().is_none());
    let third = there.rw_lock("a").unwrap();
    until("a reader has it, too", async || match third.try_read().await.unwrap() {
        Some(guard) => guard.release().await.is_ok(),
        // A late record of the writer that gave up ends by itself.
        None => false,
    })
    .await;
    first.release().await.unwrap();
}

/// Ample time for a reader that comes in only by luck.
const BY_LUCK: Duration = Duration::from_secs(180);

/// Readers have no promise here. But writers that record again and again that they wait would keep
/// readers away for ever.
async fn writers_do_not_starve_readers(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut tasks = JoinSet::new();
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let locker = bed.locker("").await;
        let over = Arc::clone(&over);
        tasks.spawn(async move {
            while !over.load(Relaxed) {
                let guard = locker.rw_lock("a").unwrap().write().await.unwrap();
                sleep(Duration::from_millis(10)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let reader = bed.locker("").await;
    for _ in 0..2 {
        let start = Instant::now();
        let guard = within(BY_LUCK, "a reader", reader.rw_lock("a").unwrap().read()).await.unwrap();
        println!("the reader waited for {:?}", start.elapsed());
        guard.release().await.unwrap();
    }
    over.store(true, Relaxed);
    within(SOON, "the writers", tasks.join_all()).await;
}

/// Catches a reader at the head of the line that the writer behind it keeps away, so that neither
/// asks.
async fn c8_a_reader_and_a_writer_of_one_client_do_not_hold_each_other_up(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let here = bed.locker("").await;
    let there = bed.locker("").await;
    let mut admin = bed.admin().await;
    let mut locked = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    let held = there.rw_lock("a").unwrap().write().await.unwrap();
    // Both ask before either is in line, the reader first.
    locked.run("BEGIN").await;
    locked.run(format!("SELECT 1 FROM {} WHERE name='a' FOR UPDATE", bed.table("lock"))).await;
    let reader = here.rw_lock("a").unwrap();
    let writer = here.rw_lock("a").unwrap();
    let reader = tokio::spawn(async move { reader.read().await.unwrap() });
    let waits = async |admin: &mut Admin, count: u64| {
        admin.status("Innodb_row_lock_current_waits").await == count
    };
    until("the reader asks", async || waits(&mut admin, 1).await).await;
    let writer = tokio::spawn(async move { writer.write().await.unwrap() });
    until("the writer asks", async || waits(&mut admin, 2).await).await;
    locked.run("COMMIT").await;
    until("both are refused", async || waits(&mut admin, 0).await).await;
    sleep(SLACK).await;
    // As a writer of another client would do that came before and has failed. A record of its own
    // would end in a second, and the reader would come in.
    admin
        .run(format!("UPDATE {} SET wanted_us={NOW}+60000000 WHERE name='a'", bed.table("lock")))
        .await;
    held.release().await.unwrap();
    let start = Instant::now();
    let either = async {
        tokio::select! { guard = reader => guard, guard = writer => guard }
    };
    let first = within(SOON, "C8: either of them", either).await;
    println!("{:?} got it after {:?}", first.as_ref().map(|guard| guard.mode()), start.elapsed());
    first.unwrap().release().await.unwrap();
}
