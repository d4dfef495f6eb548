//! The exit codes and their meaning.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::low_level::emulate_default_handler;

/// How `lockkit` ends if it doesn't end as its child did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The request was carried out.
    Done,
    /// `doctor` found something that weakens locks.
    Diagnostics,
    /// `show --exit-code` found no holder of the lock.
    Free,
    /// The lock was busy, or not free within the bound on waiting; `-E` chooses another code.
    Busy(u8),
    /// The lock was lost while the child ran, and lockkit stopped the child.
    Lost,
    /// `--max-run` has passed, and lockkit stopped the child.
    MaxRun,
    /// lockkit itself failed, before the child was started or after it ended.
    Failed,
    /// The command exists but could not be executed.
    NotExecutable,
    /// There is no such command.
    NotFound,
    /// The code with which the child ended.
    Child(u8),
    /// A signal killed the child, or lockkit while it waited for the lock. lockkit dies of the same
    /// signal.
    Signal(i32),
}

impl Exit {
    /// The code of [`Busy`](Self::Busy) unless the user chooses another: EX_TEMPFAIL of sysexits.h.
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

/// The exit code that a shell reports for a signal.
const fn of_signal(signal: i32) -> u8 {
    let [low, ..] = signal.to_le_bytes();
    low.wrapping_add(128)
}

impl From<Exit> for ExitCode {
    /// Does not return for a signal that kills: the shell must see the signal, not a code.
    fn from(exit: Exit) -> Self {
        if let Exit::Signal(signal) = exit {
            die_of(signal);
        }
        exit.code().into()
    }
}

/// Ends this process by the signal. Returns if that fails.
fn die_of(signal: i32) {
    // The child dumps its core if one is wanted. lockkit dumps none.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
}
