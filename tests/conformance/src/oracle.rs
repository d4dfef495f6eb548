//! The leak oracle (C6): the store must be as empty, and the process as small, as before the case.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, time::sleep};

use crate::{
    env::Env,
    execute::runtime,
    wait::{a_minute, soon},
};

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Checks that every name of the case is free, that no claim waits, and that the store's own list
/// of leaks is empty.
///
/// Cleanup continues in the background, so it gets some time, but less than a lease would last.
pub(crate) async fn store_is_clean(env: &Env) -> Result<(), String> {
    poll(soon(), || async {
        let backend = env
            .harness()
            .connect()
            .await
            .map_err(|e| format!("the store can't be reached: {e}"))?;
        let mut left =
            env.harness().leaks().await.map_err(|e| format!("the leaks can't be listed: {e}"))?;
        for name in env.names() {
            let seen = backend
                .inspect(&name)
                .await
                .map_err(|e| format!("{name} can't be inspected: {e}"))?;
            if !seen.holders.is_empty() || seen.waiters.is_some_and(|waiters| waiters > 0) {
                left.push(format!("{name}: {seen:?}"));
            }
        }
        backend.close().await.map_err(|e| format!("a connection can't be closed: {e}"))?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("left in the store: {}", left.join("; ")))
        }
    })
    .await
}

/// Checks that no task of lockkit or of the harness runs any more.
///
/// A client that was disconnected when it was closed looks for its server until its session has
/// ended.
pub(crate) async fn no_task_is_left() -> Result<(), String> {
    poll(a_minute(), || async {
        match Handle::current().metrics().num_alive_tasks() {
            0 => Ok(()),
            tasks => Err(format!("{tasks} tasks are left although every locker is dropped")),
        }
    })
    .await
}

/// The open files of the process before the case.
#[derive(Debug)]
pub(crate) struct Baseline {
    open_files: Option<usize>,
}

impl Baseline {
    pub(crate) fn of_the_process() -> Self {
        // With some of its features, tokio opens files with the first runtime of a process, and
        // keeps them.
        drop(runtime());
        Self { open_files: open_files() }
    }

    /// Checks that the process has no more open files and sockets than before. This works only
    /// where the system lists them.
    ///
    /// A client library may run its timers on a thread of its own. It drops its wakers, and with
    /// them the runtime's own files, only when that thread next looks at its timers. So the files
    /// get some time, too.
    pub(crate) fn check(&self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let (Some(before), Some(now)) = (self.open_files, open_files()) else { return Ok(()) };
            if now <= before {
                return Ok(());
            }
            if start.elapsed() > a_minute() {
                return Err(format!("{} open files are left", now - before));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn open_files() -> Option<usize> {
    fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

async fn poll<F: Future<Output = Result<(), String>>>(
    bound: Duration,
    mut look: impl FnMut() -> F,
) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match look().await {
            Err(wrong) if start.elapsed() > bound => return Err(wrong),
            Err(_) => sleep(LOOK_AGAIN).await,
            Ok(()) => return Ok(()),
        }
    }
}
