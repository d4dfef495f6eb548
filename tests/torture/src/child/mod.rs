//! Child processes: this program again, told by pipes what to do. None of them outlives its parent.

mod process;

use std::{ffi::OsString, fmt, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use self::process::Child;
pub use crate::worker::child;
use crate::{
    error::{Error, Result},
    history::REGISTER,
    workload::Workload,
};

/// How to start a process that calls [`child`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This program, with these arguments.
    ///
    /// # Errors
    /// The system doesn't tell where this program is.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| Error::of("can't tell where this program is", error))?;
        Ok(Self { program, arguments: arguments.into_iter().map(Into::into).collect() })
    }
}

/// What a child process is to be. It is told on its standard input, and nowhere else: the URL may
/// hold a password.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Takes locks, and gives them back, or not.
    Holder(Job),
    /// Looks at the locks.
    Observer(Job),
    /// Compares the tokens of what is written to it. To be ended after all that write to it.
    Register {
        /// The file it writes its history to.
        history: PathBuf,
    },
}

impl Role {
    /// Whose lines are in its history.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Holder(job) | Self::Observer(job) => job.process,
            Self::Register { .. } => REGISTER,
        }
    }
}

/// What a process works on.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    /// The store.
    pub url: String,
    /// Its number, which no other process of the run has or had.
    pub process: u32,
    /// Of the run: with its number, it makes what the process chooses.
    pub seed: u64,
    /// What the process does.
    pub workload: Workload,
    /// Where the register listens.
    pub register: SocketAddr,
    /// The file it writes its history to.
    pub history: PathBuf,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        let Self { url: _, process, seed, workload, register, history } = self;
        f.debug_struct("Job")
            .field("process", process)
            .field("seed", seed)
            .field("workload", workload)
            .field("register", register)
            .field("history", history)
            .finish_non_exhaustive()
    }
}

/// The one line that a child says, on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It is at work.
    Ready {
        /// Where a register listens.
        address: Option<SocketAddr>,
    },
    /// It can't be.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The status of a child that was told to end, and did not for so long that it gave up.
pub(crate) const HUNG: i32 = 70;
