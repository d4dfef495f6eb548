//! Child processes: this program again, which takes its orders through pipes. No child outlives its
//! parent.

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

/// The program that a child runs. It calls [`child`].
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

/// The job of a child process. The child reads it from standard input, and from nowhere else,
/// because the URL may hold a password.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Takes locks, and gives most of them back.
    Holder(Job),
    /// Looks at the locks.
    Observer(Job),
    /// Compares the tokens of the writes that arrive. End it after all processes that write to it.
    Register {
        /// The file it writes its history to.
        history: PathBuf,
    },
}

impl Role {
    /// The process number in the role's history.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Holder(job) | Self::Observer(job) => job.process,
            Self::Register { .. } => REGISTER,
        }
    }
}

/// The work of a process.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    /// The store.
    pub url: String,
    /// The number of the process, which no other process of the run has or had.
    pub process: u32,
    /// The seed of the run. Together with the process number it determines what the process
    /// chooses.
    pub seed: u64,
    /// The kinds of work that the process does.
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

/// The one line that a child writes to its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The child is at work.
    Ready {
        /// Where a register listens.
        address: Option<SocketAddr>,
    },
    /// The child cannot work.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The exit status of a child that had to end, and gave up because it did not end for too long.
pub(crate) const HUNG: i32 = 70;
