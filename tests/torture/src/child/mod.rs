//! Child processes. Each runs this program again, and receives its orders through a pipe. No child
//! outlives its parent.

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
    /// The system doesn't know the path of this program.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| Error::of("could not find the path of this program", error))?;
        Ok(Self { program, arguments: arguments.into_iter().map(Into::into).collect() })
    }
}

/// The job of a child process. The child reads it only from standard input, because the URL may
/// contain a password.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Takes locks, and releases most of them.
    Holder(Job),
    /// Looks at the locks.
    Observer(Job),
    /// Compares the tokens of incoming writes. End it after all processes that write to it.
    Register {
        /// The file to write the history to.
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
    /// The number of the process, which is unique in the run.
    pub process: u32,
    /// The seed of the run. With the process number, it determines all choices of the process.
    pub seed: u64,
    /// The kinds of work that the process does.
    pub workload: Workload,
    /// The address of the register.
    pub register: SocketAddr,
    /// The file to write the history to.
    pub history: PathBuf,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
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
        /// The address of the child, if it is a register.
        address: Option<SocketAddr>,
    },
    /// The child cannot work.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// The exit status of a child that could not end in time, and so exited at once.
pub(crate) const HUNG: i32 = 70;
