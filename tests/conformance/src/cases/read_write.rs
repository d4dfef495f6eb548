//! Read/write locks: many readers or one writer.

use std::sync::Arc;

use lockkit_core::{ErrorKind, LockOptions, Locker, RwLock, spi::Mode};
use tokio::{task::JoinSet, time::sleep};

use super::shares::{assert_shown, granted_by_a_retry};
use crate::{
    case::{Needs, cases},
    doomed::dead_grant,
    env::{Env, SHORT, free_by_force, give_back, long},
    judge::judged,
    wait::{a_minute, eventually, slack, soon, step, within},
    witness::{Stay, Witness},
};

cases! {
    c1_readers_share_and_exclude_the_writer: Needs::READ_WRITE,
        "a reader that excludes readers, or a writer that is granted beside a reader";
    c1_a_storm_of_readers_and_writers_never_overlaps: Needs::READ_WRITE,
        "a count of readers that goes wrong under load";
    c2_one_readers_release_leaves_the_others: Needs::READ_WRITE,
        "a reader that frees the whole lock";
    c4_a_readers_token_lies_between_its_writers: Needs::READ_WRITE,
        "a reader and a writer with one token, so a stale reader can write";
    c5_a_readers_lost_reply_same_token: Needs::READ_WRITE,
        "a retry that counts a reader twice";
    c8_a_writer_gets_it_after_the_last_reader: Needs::READ_WRITE,
        "a writer that is woken only by the release of the first reader";
    c9_a_dead_reader_frees_within_its_lease: Needs::READ_WRITE.lease(),
        "readers that share one lease, which live readers renew";
    c10_a_live_reader_keeps_it_for_many_leases: Needs::READ_WRITE.lease(),
        "a renewal that renews only writers";
    c12_writers_are_not_starved: Needs::READ_WRITE.fair(),
        "new readers that are granted before a waiting writer";
    c14_all_readers_are_shown: Needs::READ_WRITE,
        "an inspection that shows only one holder";
}

async fn rw(env: &Env, options: LockOptions) -> RwLock {
    let lock = env.locker().await.rw_lock("x").unwrap().with_options(options).unwrap();
    env.will_be_free(lock.name());
    lock
}

async fn c1_readers_share_and_exclude_the_writer(env: Env) {
    let a = rw(&env, long()).await;
    let b = rw(&env, long()).await;
    let readers =
        [a.try_read().await, a.try_read().await, b.try_read().await].map(|r| r.unwrap().unwrap());
    assert!(b.try_write().await.unwrap().is_none(), "C1: a writer beside readers");
    assert!(a.try_write().await.unwrap().is_none(), "C1: a writer beside readers");
    for reader in readers {
        assert_eq!(reader.mode(), Mode::Shared);
        reader.release().await.unwrap();
    }
    let writer = b.try_write().await.unwrap().expect("no reader is left");
    assert_eq!(writer.mode(), Mode::Exclusive);
    assert!(a.try_read().await.unwrap().is_none(), "C1: a reader beside a writer");
    assert!(b.try_read().await.unwrap().is_none(), "C1: a reader beside a writer");
    give_back(writer).await;
}

async fn c1_a_storm_of_readers_and_writers_never_overlaps(env: Env) {
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for task in 0..9 {
        let lock = rw(&env, long()).await;
        let witness = Arc::clone(&witness);
        tasks.spawn(async move {
            for _ in 0..10 {
                let writes = task % 3 == 0;
                let guard = if writes { lock.write().await } else { lock.read().await }.unwrap();
                let mut stay = Stay::begin(&guard);
                step().await;
                stay.look(&guard);
                witness.record(stay);
                if writes { give_back(guard).await } else { drop(guard) }
            }
        });
    }
    within(a_minute(), "the end of the storm", tasks.join_all()).await;
    assert_eq!(witness.verify(), 90);
}

async fn c2_one_readers_release_leaves_the_others(env: Env) {
    let a = rw(&env, long()).await;
    let b = rw(&env, long()).await;
    let first = a.try_read().await.unwrap().unwrap();
    let second = b.try_read().await.unwrap().unwrap();
    first.release().await.unwrap();
    assert!(a.try_write().await.unwrap().is_none(), "C2: one reader freed another one's hold");
    second.renew().await.unwrap();
    second.release().await.unwrap();
}

async fn c4_a_readers_token_lies_between_its_writers(env: Env) {
    let lock = rw(&env, long()).await;
    let mut last_writer = None;
    for _ in 0..5 {
        let readers =
            [lock.try_read().await.unwrap().unwrap(), lock.try_read().await.unwrap().unwrap()];
        let highest = readers.iter().map(|reader| reader.fencing_token()).max();
        for reader in readers {
            assert!(
                Some(reader.fencing_token()) > last_writer,
                "C4: a reader's token is not above the writer before"
            );
            give_back(reader).await;
        }
        let writer = lock.try_write().await.unwrap().unwrap();
        last_writer = Some(writer.fencing_token());
        assert!(last_writer > highest, "C4: a writer's token is not above the readers before");
        give_back(writer).await;
    }
}

async fn c5_a_readers_lost_reply_same_token(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let lock = locker.rw_lock("x").unwrap().with_options(long()).unwrap();
    let healthy = rw(&env, long()).await;
    give_back(healthy.try_read().await.unwrap().unwrap()).await;
    let attempt = async move { lock.read().await };
    let guard = granted_by_a_retry(&*link, attempt, async || healthy.inspect().await).await;
    guard.release().await.unwrap();
    give_back(healthy.try_write().await.unwrap().expect("C5: a reader was counted twice")).await;
}

async fn c8_a_writer_gets_it_after_the_last_reader(env: Env) {
    let a = rw(&env, long()).await;
    let b = rw(&env, long()).await;
    let readers = [a.try_read().await.unwrap().unwrap(), a.try_read().await.unwrap().unwrap()];
    let waiting = tokio::spawn(async move { b.write().await });
    for reader in readers {
        env.pause().await;
        assert!(!waiting.is_finished(), "C1: a writer beside a reader");
        give_back(reader).await;
    }
    let writer =
        within(env.poll() + slack(), "the writer's grant", waiting).await.unwrap().unwrap();
    // The readers get the lock after the writer.
    let watch = a.clone();
    let waiting = tokio::spawn(async move { (a.read().await, a.read().await) });
    env.queued(1, async || watch.inspect().await).await;
    give_back(writer).await;
    let readers = within(env.poll() + slack(), "the readers' grants", waiting).await.unwrap();
    drop((readers.0.unwrap(), readers.1.unwrap()));
}

async fn c9_a_dead_reader_frees_within_its_lease(env: Env) {
    let short = env.fleeting(SHORT);
    let a = rw(&env, long()).await;
    let b = rw(&env, long()).await;
    let ttl = short.ttl();
    dead_grant(&env, "x", short, Mode::Shared).await;
    let live = a.try_read().await.unwrap().unwrap();
    live.renew().await.unwrap();
    eventually(ttl + env.descriptor().takeover_delay + soon(), async || {
        match b.inspect().await.unwrap().holders.len() {
            1 => Ok(()),
            n => Err(format!("C9: {n} readers, one of them dead")),
        }
    })
    .await;
    give_back(live).await;
    let bound = env.descriptor().takeover_delay + env.poll() + slack();
    give_back(within(bound, "the writer's grant", b.write()).await.unwrap()).await;
}

async fn c10_a_live_reader_keeps_it_for_many_leases(env: Env) {
    judged(&env, SHORT, async |turn| {
        let lock = |locker: Locker, options| {
            locker.rw_lock(&turn.name).unwrap().with_options(options).unwrap()
        };
        let a = lock(turn.locker().await, turn.renewed());
        let b = lock(env.locker().await, long());
        env.will_be_free(a.name());
        let first = turn.answer(a.try_read()).await?.unwrap();
        let readers = [first, turn.answer(a.try_read()).await?.unwrap()];
        for _ in 0..25 {
            sleep(turn.ttl / 10).await;
            let written = turn.is_granted_beside(&readers, b.try_write()).await?;
            if written || !readers.iter().all(|guard| guard.is_held()) {
                return Err("C10: a live reader lost it".to_owned());
            }
        }
        Ok(())
    })
    .await;
}

async fn c12_writers_are_not_starved(env: Env) {
    let a = rw(&env, long()).await;
    let b = rw(&env, long()).await;
    let mut guard = a.read().await.unwrap();
    let readers = tokio::spawn(async move {
        loop {
            // The next reader comes before the last one leaves, for as long as the store admits
            // readers.
            while let Some(next) = a.try_read().await.unwrap() {
                guard = next;
                step().await;
            }
            drop(guard);
            guard = a.read().await.unwrap();
        }
    });
    for _ in 0..3 {
        give_back(within(env.poll() + slack(), "the writer's grant", b.write()).await.unwrap())
            .await;
    }
    readers.abort();
    assert!(readers.await.is_err_and(|error| error.is_cancelled()), "a reader failed");
}

async fn c14_all_readers_are_shown(env: Env) {
    let lock = rw(&env, long()).await;
    let readers =
        [lock.try_read().await.unwrap().unwrap(), lock.try_read().await.unwrap().unwrap()];
    assert_shown(&lock.inspect().await.unwrap(), &readers);
    let [first, second] = readers;
    free_by_force(async || lock.force_release(first.fencing_token()).await).await;
    assert!(lock.try_write().await.unwrap().is_none(), "C14: both were freed");
    second.release().await.unwrap();
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
}
