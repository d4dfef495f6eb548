//! The work of a child process, which holds locks or asks for them. It reads its orders from
//! standard input, and ends at the end of that input.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use lockkit::{LockGuard, LockOptions, Locker};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::{sleep, timeout},
};

use crate::{
    clock,
    error::{Error, Result},
    sample::float,
    scenario::{closed::Want, hot_name::contend},
    usage,
};

/// The time for a process to release its locks when it must end. Locks that it still holds
/// afterwards end with their leases.
const FAREWELL: Duration = Duration::from_secs(20);
/// The number of locks to ask for at once.
const AT_ONCE: usize = 64;

/// The first line that a child reads.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    /// The URL, with the password. No command line and no environment contains it.
    pub(crate) url: String,
    pub(crate) task: Task,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Task {
    /// This many tasks ask for one name when the order comes.
    Contend { name: String, tasks: u32, hold: Duration },
    /// Holds many locks, and reports their cost on request.
    Idle { prefix: String, locks: u32, ttl: Duration },
    /// Holds one lock, until it is killed.
    Hold { name: String, ttl: Duration },
}

/// The lines after the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Contend from this instant of the common clock on.
    Run { start_ns: u64, slice: Duration },
    /// Report the cost of holding over this time.
    Watch { span: Duration },
    /// Release all locks. The child keeps them until then, because the parent counts the requests
    /// of holding.
    GiveBack,
}

/// An answer of a child, one line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The child is connected, or it is done and holds no lock.
    Ready,
    /// The child holds the lock with this lease, which is never shorter than the store allows.
    Holding {
        ttl: Duration,
    },
    /// The child holds all locks, and each costs this much memory.
    Held {
        bytes_per_lock: f64,
    },
    Contended(Share),
    Watched {
        cpu_percent: f64,
    },
    Failed {
        reason: String,
    },
}

/// The results of one process's tasks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Grants of each task within the window.
    pub(crate) served: Vec<u64>,
    pub(crate) all_grants: u64,
    /// Nanoseconds, and the number of waits of that length.
    pub(crate) waits: Vec<(u64, u64)>,
}

/// Does the work of a child process: the program that calls [`run`](crate::run) starts itself again
/// to call this.
///
/// It reads orders from standard input, writes answers to standard output, and returns when
/// standard input ends. Standard input ends when the parent lets the child go, or when the parent
/// dies. It needs a tokio runtime, preferably one with several threads.
///
/// # Errors
/// Standard input contains no order. The parent receives failures of the work itself as answers.
pub async fn worker() -> Result<()> {
    let mut lines = read_lines();
    let first = lines
        .recv()
        .await
        .ok_or_else(|| Error::new("only lockkit-bench itself runs this command"))?;
    let job: Job = serde_json::from_str(&first).map_err(|_| {
        Error::new("only lockkit-bench itself runs this command, and its first line must be a job")
    })?;
    let (orders, mut received) = mpsc::unbounded_channel();
    let until_end = async {
        while let Some(line) = lines.recv().await {
            if let Ok(order) = serde_json::from_str::<Order>(&line) {
                let _ = orders.send(order);
            }
        }
    };
    tokio::pin!(until_end);
    let connecting = tokio::select! {
        () = &mut until_end => return Ok(()),
        connecting = lockkit::connect(&job.url) => connecting,
    };
    let locker = match connecting {
        Ok(locker) => locker,
        Err(error) => return say(&Answer::Failed { reason: error.to_string() }),
    };
    let done = tokio::select! {
        () = until_end => Ok(()),
        done = serve(&locker, job.task, &mut received) => done,
    };
    // This releases the locks of dropped work.
    let _ = timeout(FAREWELL, locker.shutdown()).await;
    done.or_else(|error| say(&Answer::Failed { reason: error.to_string() }))
}

/// Reads lines of standard input, in a separate thread. After the end of the input, the process
/// gets some time, and then the thread ends it.
fn read_lines() -> UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            let _ = sender.send(line);
        }
        drop(sender);
        std::thread::sleep(FAREWELL * 2);
        std::process::exit(1);
    });
    receiver
}

async fn serve(locker: &Locker, task: Task, orders: &mut UnboundedReceiver<Order>) -> Result<()> {
    match task {
        Task::Contend { name, tasks, hold } => {
            let mutex = locker.mutex(&name).map_err(refused)?;
            mutex.lock().await.map_err(refused)?.release().await.map_err(refused)?;
            say(&Answer::Ready)?;
            let Some(Order::Run { start_ns, slice }) = orders.recv().await else { return Ok(()) };
            let start = clock::instant(start_ns);
            say(&Answer::Contended(contend(Want::Mutex(mutex), tasks, hold, start, slice).await?))
        }
        Task::Idle { prefix, locks, ttl } => idle(locker, &prefix, locks, ttl, orders).await,
        Task::Hold { name, ttl } => {
            // The shortest lease that the servers allow may be longer than the requested lease.
            let ttl = ttl.max(locker.descriptor().min_ttl);
            let _guard = hold(locker, &name, ttl).await?;
            say(&Answer::Holding { ttl })?;
            orders.recv().await;
            Ok(())
        }
    }
}

async fn idle(
    locker: &Locker,
    prefix: &str,
    locks: u32,
    ttl: Duration,
    orders: &mut UnboundedReceiver<Order>,
) -> Result<()> {
    // The warm-up creates connections and buffers before the memory is read for the first time.
    let warm_up = stream::iter(0..AT_ONCE).map(|number| async move {
        let guard = hold(locker, &format!("{prefix}/warm-up/{number}"), ttl).await?;
        guard.release().await.map_err(refused)
    });
    warm_up.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    let before = usage::memory_bytes()?;
    let taking = stream::iter(0..locks)
        .map(|number| async move { hold(locker, &format!("{prefix}/{number}"), ttl).await });
    let guards: Vec<_> = taking.buffer_unordered(AT_ONCE).try_collect().await?;
    let grown = usage::memory_bytes()?.saturating_sub(before);
    say(&Answer::Held { bytes_per_lock: float(grown) / f64::from(locks) })?;
    let Some(Order::Watch { span }) = orders.recv().await else { return Ok(()) };
    let cpu = usage::cpu_time()?;
    let start = Instant::now();
    sleep(span).await;
    let used = usage::cpu_time()?.saturating_sub(cpu);
    let passed = start.elapsed();
    if let Some(lost) = guards.iter().find(|guard| !guard.is_held()) {
        return Err(Error::new(format!(
            "a child process lost {} while it only held it",
            lost.name()
        )));
    }
    say(&Answer::Watched { cpu_percent: 100.0 * used.as_secs_f64() / passed.as_secs_f64() })?;
    let Some(Order::GiveBack) = orders.recv().await else { return Ok(()) };
    let giving = stream::iter(guards).map(|guard| async { guard.release().await.map_err(refused) });
    giving.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    say(&Answer::Ready)
}

async fn hold(locker: &Locker, name: &str, ttl: Duration) -> Result<LockGuard> {
    let mutex =
        locker.mutex(name).and_then(|mutex| mutex.with_options(LockOptions::new().with_ttl(ttl)));
    mutex.map_err(refused)?.lock().await.map_err(refused)
}

fn refused(error: lockkit::Error) -> Error {
    Error::of("a child process could not take or release a lock", error)
}

fn say(answer: &Answer) -> Result<()> {
    let of = |error| Error::of("could not answer the parent process", error);
    let line = serde_json::to_string(answer).map_err(|error| of(error.into()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(of)
}
