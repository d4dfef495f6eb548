//! A client process. It reports when it is ready, obeys each line from its parent, and ends when
//! its input ends.

use std::{
    fs,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use libtest_mimic::Failed;
use lockkit_core::{LockGuard, LockOptions, Locker};
use lockkit_file::{Config, FileStore};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::parent::SOON;

/// The lock that all processes compete for.
pub(crate) const NAME: &str = "a";

/// Plays a role: the folder of the store, and then what to do.
pub(crate) fn run(role: &[String]) -> Result<(), Failed> {
    let words: Vec<_> = role.iter().map(String::as_str).collect();
    Runtime::new()?.block_on(play(&words))
}

async fn play(words: &[&str]) -> Result<(), Failed> {
    let folder = PathBuf::from(words[0]);
    let locker = connect(&folder)?;
    match words[1..] {
        ["hold"] => hold(&locker).await?,
        ["hold-with-child"] => hold_with_child(&locker).await?,
        ["storm"] => storm(&locker).await?,
        ["gate"] => gate(&folder)?,
        ["tell-loss"] => tell_loss(&locker).await?,
        _ => return Err(format!("what is {words:?}?").into()),
    }
    locker.shutdown().await?;
    println!("bye");
    Ok(())
}

pub(crate) fn connect(folder: &Path) -> Result<Locker, Failed> {
    // No process waits for the end of a lease, and the disk may be slow.
    let options = LockOptions::new().with_ttl(SOON * 10).with_op_timeout(SOON);
    Ok(Locker::new(FileStore::open(Config::new(folder))?).with_defaults(options)?)
}

fn next_line() -> Option<String> {
    tokio::task::block_in_place(lockkit_fixture::next_line)
}

async fn take(locker: &Locker) -> Result<LockGuard, Failed> {
    Ok(locker.mutex(NAME)?.lock().await?)
}

/// Takes the lock, reports its token, and releases the lock at the parent's next line.
async fn hold(locker: &Locker) -> Result<(), Failed> {
    let guard = take(locker).await?;
    println!("{}", guard.fencing_token());
    next_line();
    guard.release().await?;
    println!("released");
    Ok(())
}

async fn hold_with_child(locker: &Locker) -> Result<(), Failed> {
    let guard = take(locker).await?;
    let child = Command::new("sleep").arg("60").spawn()?;
    println!("{} {}", guard.fencing_token(), child.id());
    next_line();
    Ok(())
}

/// Takes the lock again and again. Reports each token, and a time in which the lock was certainly
/// held.
async fn storm(locker: &Locker) -> Result<(), Failed> {
    println!("ready");
    loop {
        let guard = take(locker).await?;
        let token = guard.fencing_token().get();
        let from = now()?;
        thread::sleep(Duration::from_micros(token % 700));
        println!("{token} {from} {}", now()?);
        guard.release().await?;
    }
}

/// Nanoseconds of a clock that all processes share.
fn now() -> Result<u64, Failed> {
    Ok(Duration::try_from(clock_gettime(ClockId::Monotonic))?.as_nanos().try_into()?)
}

/// The gate of the lock, which a process enters to change the record.
pub(crate) fn gate_of(folder: &Path) -> Result<File, Failed> {
    let gates = fs::read_dir(folder.join("names/mutex"))?.collect::<Result<Vec<_>, _>>()?;
    let gate = gates
        .iter()
        .map(fs::DirEntry::path)
        .find(|path| path.extension().is_some_and(|end| end == "lock"));
    Ok(File::options().read(true).write(true).open(gate.ok_or("nobody has used it")?)?)
}

/// Stays inside the gate of the lock.
fn gate(folder: &Path) -> Result<(), Failed> {
    let gate = gate_of(folder)?;
    gate.lock()?;
    println!("ready");
    next_line();
    Ok(())
}

async fn tell_loss(locker: &Locker) -> Result<(), Failed> {
    let guard = take(locker).await?;
    println!("{}", guard.fencing_token());
    println!("{:?}", guard.lost().wait().await);
    println!("{}", guard.is_held());
    Ok(())
}
