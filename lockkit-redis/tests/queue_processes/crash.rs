//! Tests processes that die or stop while they wait.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_core::{LockGuard, Locker};
use lockkit_fixture::Peer;
use nix::sys::signal::Signal;
use tokio::{
    runtime::Runtime,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    child::{WINDOW, connect, mutex, rw_lock, semaphore},
    parent::{SOON, Store, eventually},
};

/// This process holds the lock. A client process waits first, and then a task of this process.
fn behind(
    waiters: i64,
    then: impl FnOnce(
        &Store,
        &mut Peer,
        &mut dyn FnMut() -> Result<(LockGuard, Duration), Failed>,
    ) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let store = Store::start()?;
    let runtime = Runtime::new()?;
    let locker = runtime.block_on(connect(&store.0.url()))?;
    let holder = runtime.block_on(mutex(&locker)?.lock())?;
    let mut client = store.client(&format!("wait {waiters}"))?;
    client.hear()?;
    store.wait_for_waiters(waiters)?;
    let ours = mutex(&locker)?;
    let ours: JoinHandle<lockkit_core::Result<LockGuard>> =
        runtime.spawn(async move { ours.lock().await });
    store.wait_for_waiters(waiters + 1)?;
    let mut holder = Some(holder);
    let mut ours = Some(ours);
    let mut release = || {
        let holder = holder.take().ok_or("released twice")?;
        let ours = ours.take().ok_or("released twice")?;
        runtime.block_on(async {
            let start = Instant::now();
            holder.release().await?;
            let guard =
                timeout(SOON, ours).await.map_err(|_| "the dead or stopped keep the lock")???;
            Ok((guard, start.elapsed()))
        })
    };
    then(&store, &mut client, &mut release)?;
    drop(client);
    runtime.block_on(locker.shutdown())?;
    // The places of dead waiters lapse by themselves. Redis 7.0 reads its clock for each PEXPIRE of
    // a script, so the second key may lapse later.
    store.wait_for_waiters(0)?;
    eventually("a dead waiter keeps its place", || {
        Ok(store.members("lockkit:mutex:{a}:live")? == 0)
    })?;
    store.assert_clean()
}

fn let_go(guard: LockGuard) -> Result<(), Failed> {
    Runtime::new()?.block_on(guard.release())?;
    Ok(())
}

pub(crate) fn killed() -> Result<(), Failed> {
    behind(1, |_, client, release| {
        client.signal(Signal::SIGKILL)?;
        let (guard, took) = release()?;
        println!("granted {took:?} after the release, a killed process waiting first");
        let_go(guard)
    })
}

pub(crate) fn many_killed() -> Result<(), Failed> {
    behind(100, |store, client, release| {
        client.signal(Signal::SIGKILL)?;
        // The server has seen the connection close, and only our connection is left.
        eventually("its channel stays", || Ok(store.channels()? == 1))?;
        let (guard, took) = release()?;
        println!(
            "granted {took:?} after the release, 100 waiters of a killed process waiting first"
        );
        let_go(guard)
    })
}

pub(crate) fn stopped() -> Result<(), Failed> {
    behind(1, |_, client, release| {
        client.signal(Signal::SIGSTOP)?;
        let (guard, took) = release()?;
        println!("granted {took:?} after the release, a stopped process waiting first");
        assert!(took >= WINDOW, "{took:?}");
        // The process continues, finds that its turn has passed, and waits for the next one.
        client.signal(Signal::SIGCONT)?;
        let token = guard.fencing_token().get();
        let_go(guard)?;
        assert!(client.hear()?.parse::<u64>()? > token);
        client.tell("")?;
        assert_eq!(client.hear()?, "bye");
        Ok(())
    })
}

pub(crate) fn killed_writer() -> Result<(), Failed> {
    passed("lockkit:rwlock:{a}", "write", async |locker| Ok(rw_lock(locker)?.read().await?))
}

pub(crate) fn killed_heavy() -> Result<(), Failed> {
    passed("lockkit:semaphore:{a}", "acquire 3", async |locker| {
        Ok(semaphore(locker)?.acquire().await?)
    })
}

/// A client process waits for more than there is, and dies. Later claims want less, and there is
/// enough for them. They get it although the place of the dead waiter would stay for an hour.
fn passed(
    base: &str,
    role: &str,
    take: impl AsyncFn(&Locker) -> Result<LockGuard, Failed>,
) -> Result<(), Failed> {
    let store = Store::start()?;
    let runtime = Runtime::new()?;
    let locker = runtime.block_on(connect(&store.0.url()))?;
    let queue = format!("{base}:queue");
    let live = format!("{base}:live");
    let holder = runtime.block_on(take(&locker))?;
    let client = store.client(role)?;
    client.hear()?;
    eventually("the client process does not wait", || Ok(store.members(&queue)? == 1))?;
    let dead = store.0.ask(["ZRANGE", &queue, "0", "0"])?.elements()[0].text();
    let guards = runtime.block_on(async {
        let mut queued = pin!(take(&locker));
        let mut is_queued = pin!(async {
            while store.members(&queue)? < 2 {
                sleep(Duration::from_millis(5)).await;
            }
            Ok::<_, Failed>(())
        });
        tokio::select! {
            _ = &mut queued => return Err("it passes one that lives".into()),
            is_queued = timeout(SOON, &mut is_queued) => is_queued??,
        }
        client.signal(Signal::SIGKILL)?;
        store.stays_for_an_hour(&[&queue, &live], &dead)?;
        let queued = timeout(SOON, queued).await.map_err(|_| "it waits behind a dead one")??;
        let newcomer = timeout(SOON, take(&locker))
            .await
            .map_err(|_| "a newcomer waits behind a dead one")??;
        Ok::<_, Failed>([queued, newcomer, holder])
    })?;
    assert_eq!(store.members(&live)?, 1, "the dead one has its place still");
    drop(client);
    runtime.block_on(async {
        for guard in guards {
            guard.release().await?;
        }
        locker.shutdown().await
    })?;
    store.integer(["DEL", &queue, &live, &format!("{base}:grants")])?;
    store.assert_clean()
}
