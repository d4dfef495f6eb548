//! A client process. It says when it is ready, follows the lines from its parent, and ends with its
//! input.

use std::{fs, sync::Arc, time::Duration};

use libtest_mimic::Failed;
use lockkit_core::{LockGuard, LockOptions, Locker, Mutex, RwLock, Semaphore, url::StoreUrl};
use lockkit_redis::{Config, Redis};
use tokio::{
    runtime::{Handle, Runtime},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::parent::SOON;

/// A server may not answer for seconds.
const TRUST: Duration = Duration::from_secs(30);
/// The claim window of a waiter. If the waiter falls silent, it keeps its place for twice as long.
pub(crate) const WINDOW: Duration = Duration::from_secs(6);
/// So long that no test waits for its end, and no holder has to renew in time.
const TTL: Duration = Duration::from_secs(600);

/// Runs a role. The role is the URL of the store, and then what to do.
pub(crate) fn run(role: &[String]) -> Result<(), Failed> {
    let words: Vec<_> = role.iter().map(String::as_str).collect();
    Runtime::new()?.block_on(play(&words))
}

async fn play(words: &[&str]) -> Result<(), Failed> {
    let locker = connect(words[0]).await?;
    match words[1..] {
        ["write"] => wait_for_one(rw_lock(&locker)?.write()).await?,
        ["acquire", permits] => {
            wait_for_one(semaphore(&locker)?.acquire_many(permits.parse()?)).await?
        }
        ["wait", waiters] => wait(&locker, waiters.parse()?).await?,
        ["names", names] => hold_names(&locker, names.parse()?).await?,
        ["crowd", waiters] => crowd(&locker, waiters.parse()?).await?,
        _ => return Err(format!("what is {words:?}?").into()),
    }
    locker.shutdown().await?;
    drop(locker);
    // The client library's own task ends when its connection does.
    let tasks = || Handle::current().metrics().num_alive_tasks();
    timeout(SOON, async {
        while tasks() > 0 {
            sleep(Duration::from_millis(1)).await
        }
    })
    .await?;
    println!("bye");
    Ok(())
}

pub(crate) async fn connect(url: &str) -> Result<Locker, Failed> {
    let config = Config::from_url(StoreUrl::parse(url)?)?.with_connect_timeout(TRUST)?;
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(TRUST);
    // Without the process's gate, the claims compete in the store's own queue.
    Ok(Locker::new(Redis::connect(config).await?)
        .with_process_gate(false)
        .with_defaults(options)?)
}

pub(crate) fn mutex(locker: &Locker) -> Result<Mutex, Failed> {
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(WINDOW);
    Ok(locker.mutex("a")?.with_options(options)?)
}

pub(crate) fn rw_lock(locker: &Locker) -> Result<RwLock, Failed> {
    Ok(locker.rw_lock("a")?)
}

/// A semaphore of three permits.
pub(crate) fn semaphore(locker: &Locker) -> Result<Semaphore, Failed> {
    Ok(locker.semaphore("a", 3)?)
}

fn next_line() -> Option<String> {
    tokio::task::block_in_place(lockkit_fixture::next_line)
}

/// Waits for the lock, prints each token, and releases at the next line.
async fn wait(locker: &Locker, waiters: usize) -> Result<(), Failed> {
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let mutex = mutex(locker)?;
        tasks.spawn(async move { mutex.lock().await.unwrap() });
    }
    println!("ready");
    while let Some(guard) = tasks.join_next().await {
        let guard: LockGuard = guard?;
        println!("{}", guard.fencing_token());
        next_line();
        guard.release().await?;
    }
    Ok(())
}

async fn wait_for_one(
    lock: impl Future<Output = lockkit_core::Result<LockGuard>>,
) -> Result<(), Failed> {
    println!("ready");
    lock.await?.release().await?;
    Ok(())
}

async fn hold_names(locker: &Locker, names: usize) -> Result<(), Failed> {
    let before = resident_kib()?;
    let mut guards = Vec::with_capacity(names);
    let mut tasks = JoinSet::new();
    for name in 0..names {
        let mutex = locker.mutex(&format!("name {name}"))?;
        tasks.spawn(async move { mutex.lock().await.unwrap() });
        if tasks.len() == 64 {
            guards.extend(tasks.join_next().await.transpose()?);
        }
    }
    guards.extend(tasks.join_all().await);
    println!("{} {}", before, resident_kib()?);
    next_line();
    let mut tasks: JoinSet<_> = guards.into_iter().map(LockGuard::release).collect();
    while let Some(released) = tasks.join_next().await {
        released??;
    }
    Ok(())
}

/// Every other waiter gives up at some time in the next 300 ms.
async fn crowd(locker: &Locker, waiters: u64) -> Result<(), Failed> {
    let holder = mutex(locker)?.lock().await?;
    let before = resident_kib()?;
    let mut tasks = JoinSet::new();
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    for waiter in 0..waiters {
        let mutex = mutex(locker)?;
        let go = Arc::clone(&go);
        tasks.spawn(async move {
            let patience = async {
                let _ = go.acquire().await;
                match waiter % 2 {
                    0 => std::future::pending().await,
                    _ => sleep(Duration::from_millis(waiter * 7919 % 300)).await,
                }
            };
            tokio::select! {
                guard = mutex.lock() => {
                    let guard = guard.unwrap();
                    let token = guard.fencing_token();
                    guard.release().await.unwrap();
                    Some(token)
                }
                () = patience => None,
            }
        });
    }
    println!("ready");
    next_line();
    println!("{} {}", before, resident_kib()?);
    next_line();
    go.close();
    holder.release().await?;
    let outcomes = timeout(SOON, tasks.join_all()).await?;
    let mut tokens: Vec<_> = outcomes.iter().flatten().collect();
    let granted = tokens.len();
    tokens.sort();
    tokens.dedup();
    if tokens.len() != granted {
        return Err("a token was given twice".into());
    }
    println!("{granted}");
    Ok(())
}

fn resident_kib() -> Result<u64, Failed> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
