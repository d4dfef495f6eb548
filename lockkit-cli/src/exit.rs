//! What the exit codes mean.

use std::process::ExitCode;

/// How `lockkit` ends, when it doesn't end as its child did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for was done.
    Done,
    /// The lock was busy, or not free within the bound on waiting; `-E` chooses another code.
    Busy(u8),
    /// The lock was lost while the child ran; it was stopped.
    Lost,
    /// `--max-run` has passed; the child was stopped.
    MaxRun,
    /// lockkit itself failed, before the child was started or after it ended.
    Failed,
    /// The command was found and could not be executed.
    NotExecutable,
    /// There is no such command.
    NotFound,
    /// As the child did.
    Child(u8),
}

impl Exit {
    /// The code of [`Busy`](Self::Busy) unless another one is chosen: EX_TEMPFAIL of sysexits.h.
    pub(crate) const BUSY: u8 = 75;

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Busy(code) | Self::Child(code) => code,
            Self::Lost => 123,
            Self::MaxRun => 124,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
