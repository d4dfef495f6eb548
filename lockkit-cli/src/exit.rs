//! What the exit codes mean.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::low_level::emulate_default_handler;

/// How `lockkit` ends, when it doesn't end as its child did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for was done.
    Done,
    /// `doctor` found what weakens locks.
    Diagnostics,
    /// Nobody holds the lock that `show --exit-code` looked at.
    Free,
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
    /// As one that this signal kills: the child was, or lockkit while it waited for the lock.
    Signal(i32),
}

impl Exit {
    /// The code of [`Busy`](Self::Busy) unless another one is chosen: EX_TEMPFAIL of sysexits.h.
    pub(crate) const BUSY: u8 = 75;

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Diagnostics | Self::Free => 1,
            Self::Busy(code) | Self::Child(code) => code,
            Self::Lost => 123,
            Self::MaxRun => 124,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Signal(signal) => of_signal(signal),
        }
    }
}

/// What a shell makes of a signal.
const fn of_signal(signal: i32) -> u8 {
    let [low, ..] = signal.to_le_bytes();
    low.wrapping_add(128)
}

impl From<Exit> for ExitCode {
    /// Never returns for a signal that kills: the shell is to see the signal, not a code.
    fn from(exit: Exit) -> Self {
        if let Exit::Signal(signal) = exit {
            die_of(signal);
        }
        exit.code().into()
    }
}

/// Returns if it can't.
fn die_of(signal: i32) {
    // The core, if there is to be one, is the child's.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
}
