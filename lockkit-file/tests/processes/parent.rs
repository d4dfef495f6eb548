//! A folder, a client in this process, and client processes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use libtest_mimic::Failed;
use lockkit_core::{Kind, LockName, Locker, Mutex, spi::Inspection};
use lockkit_fixture::{Peer, until};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::child::{NAME, connect, gate_of};

/// Each expected event comes within this time.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Store {
    folder: TempDir,
    pub(crate) runtime: Runtime,
}

impl Store {
    pub(crate) fn new() -> Result<Self, Failed> {
        Ok(Self { folder: TempDir::new()?, runtime: Runtime::new()? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn locker(&self) -> Result<Locker, Failed> {
        connect(self.path())
    }

    pub(crate) fn mutex(&self) -> Result<Mutex, Failed> {
        Ok(self.locker()?.mutex(NAME)?)
    }

    pub(crate) fn inspect(&self) -> Result<Inspection, Failed> {
        let name = LockName::new(Kind::Mutex, NAME)?;
        Ok(self.runtime.block_on(self.locker()?.inspect(&name))?)
    }

    pub(crate) fn wait_for_waiters(&self, waiters: u64) -> Result<(), Failed> {
        eventually("the queue has not its length", || Ok(self.inspect()?.waiters == Some(waiters)))
    }

    pub(crate) fn sessions(&self) -> Result<Vec<PathBuf>, Failed> {
        let sessions =
            self.path().join("sessions").read_dir()?.map(|entry| entry.map(|entry| entry.path()));
        Ok(sessions.collect::<Result<_, _>>()?)
    }

    pub(crate) fn client(&self, role: &str) -> Result<Peer, Failed> {
        Ok(Peer::start(&format!("{} {role}", self.path().display()))?)
    }
}

pub(crate) fn eventually(
    what: &str,
    is_so: impl Fn() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    until(SOON, what, || is_so().map(|is_so| is_so.then_some(())).transpose())
}

/// Stops a client outside of the gate of its lock. Inside, it would block all others.
pub(crate) fn stop(client: &Peer, store: &Store) -> Result<(), Failed> {
    let gate = gate_of(store.path())?;
    eventually("it is always inside the gate", || {
        client.signal(Signal::SIGSTOP)?;
        if gate.try_lock().is_ok() {
            gate.unlock()?;
            return Ok(true);
        }
        client.signal(Signal::SIGCONT)?;
        Ok(false)
    })
}
