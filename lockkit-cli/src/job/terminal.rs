//! The terminal, which one process group has at a time.

use std::io::stdin;

use nix::sys::signal::{SigSet, Signal as Masked};
use rustix::{
    process::{Pid, getpgrp},
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp},
};

/// A terminal on standard input.
#[derive(Debug)]
pub(super) struct Terminal {
    modes: Option<Termios>,
}

impl Terminal {
    /// The terminal, if there is one.
    pub(super) fn find() -> Option<Self> {
        // From here on lockkit is in the background: its words on the terminal must not stop it.
        let _ = SigSet::from(Masked::SIGTTOU).thread_block();
        isatty(stdin()).then(|| Self { modes: tcgetattr(stdin()).ok() })
    }

    /// Whether it is ours to give.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
    }

    pub(super) fn give(&self, group: Pid) {
        let _ = tcsetpgrp(stdin(), group);
    }

    /// Takes it back from `group`; nothing if somebody else has it by now.
    pub(super) fn take_back(&self, group: Pid, was_killed: bool) {
        if !tcgetpgrp(stdin()).is_ok_and(|of| of == group) {
            return;
        }
        let _ = tcsetpgrp(stdin(), getpgrp());
        // A command that is killed can't put it in order again.
        if let Some(modes) = self.modes.as_ref().filter(|_| was_killed) {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, modes);
        }
    }
}
