//! A client process. It says when it is ready, does as each line from its parent says, and ends with its input.

use std::{
    fs,
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use libtest_mimic::Failed;
use lockkit_core::{LockGuard, LockOptions, Locker};
use lockkit_file::{Config, FileStore};
use tokio::runtime::Runtime;

use crate::parent::SOON;

/// The lock that all compete for.
pub(crate) const NAME: &str = "a";

/// The role is the folder of the store, then what to do.
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
        ["storm"] => storm(&locker, &folder).await?,
        ["gate"] => gate(&folder)?,
        ["tell-loss"] => tell_loss(&locker).await?,
        _ => return Err(format!("what is {words:?}?").into()),
    }
    locker.shutdown().await?;
    println!("bye");
    Ok(())
}

pub(crate) fn connect(folder: &Path) -> Result<Locker, Failed> {
    // Nobody waits for the end of a lease, and the disk may be slow.
    let options = LockOptions::new().with_ttl(SOON * 10).with_op_timeout(SOON);
    Ok(Locker::new(FileStore::open(Config::new(folder))?).with_defaults(options)?)
}

fn next_line() -> Option<String> {
    tokio::task::block_in_place(lockkit_fixture::next_line)
}

async fn take(locker: &Locker) -> Result<LockGuard, Failed> {
    Ok(locker.mutex(NAME)?.lock().await?)
}

/// Waits, tells its token, and lets go when told.
async fn hold(locker: &Locker) -> Result<(), Failed> {
    let guard = take(locker).await?;
    println!("{}", guard.fencing_token());
    next_line();
    println!("{:?}", guard.release().await?);
    Ok(())
}

async fn hold_with_child(locker: &Locker) -> Result<(), Failed> {
    let guard = take(locker).await?;
    let child = Command::new("sleep").arg("60").spawn()?;
    println!("{} {}", guard.fencing_token(), child.id());
    next_line();
    Ok(())
}

/// What the lock protects: the largest token, and a count.
struct Register(File);

impl Register {
    fn open(folder: &Path) -> Result<Self, Failed> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join("register"))?;
        Ok(Self(file))
    }

    fn read(&self) -> Result<(u64, u64), Failed> {
        let mut bytes = [0; 16];
        // Nothing is there at first.
        let _ = self.0.read_exact_at(&mut bytes, 0);
        let (token, count) = bytes.split_at(8);
        Ok((u64::from_le_bytes(token.try_into()?), u64::from_le_bytes(count.try_into()?)))
    }

    fn write(&self, token: u64, count: u64) -> Result<(), Failed> {
        let bytes = [token.to_le_bytes(), count.to_le_bytes()].concat();
        Ok(self.0.write_all_at(&bytes, 0)?)
    }

    /// Counts one up, for so long.
    fn turn(&self, token: u64, stay: Duration) -> Result<(), Failed> {
        let (largest, count) = self.read()?;
        if token <= largest {
            return Err(format!("C4: token {token} follows {largest}").into());
        }
        self.write(token, count)?;
        thread::sleep(stay);
        if self.read()?.0 != token {
            return Err("C1: somebody else came in".into());
        }
        self.write(token, count + 1)
    }
}

pub(crate) fn count(folder: &Path) -> Result<u64, Failed> {
    Ok(Register::open(folder)?.read()?.1)
}

async fn storm(locker: &Locker, folder: &Path) -> Result<(), Failed> {
    let register = Register::open(folder)?;
    println!("ready");
    loop {
        let guard = take(locker).await?;
        let token = guard.fencing_token().get();
        if let Err(wrong) = register.turn(token, Duration::from_micros(token % 700)) {
            println!("{}", wrong.message().unwrap_or("?"));
            next_line();
        }
        guard.release().await?;
    }
}

/// Where one goes in who changes the record of the lock.
pub(crate) fn gate_of(folder: &Path) -> Result<File, Failed> {
    let gates = fs::read_dir(folder.join("names/mutex"))?.collect::<Result<Vec<_>, _>>()?;
    let gate =
        gates.iter().map(fs::DirEntry::path).find(|path| path.extension().is_some_and(|end| end == "lock"));
    Ok(File::options().read(true).write(true).open(gate.ok_or("nobody has used it")?)?)
}

/// Is inside the gate of the lock.
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
