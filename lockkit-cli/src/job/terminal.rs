//! The terminal, which one process group has at a time.

use std::io::stdin;

use nix::sys::signal::{SigSet, Signal as Masked};
use rustix::{
    process::{Pid, Signal, getpid, kill_current_process_group},
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr, tcsetpgrp},
};

use super::{job_processes::raw, processes::all};
use crate::group::{is_foreground, own_group};

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
        is_foreground(stdin(), own_group())
    }

    pub(super) fn give(&self, group: Pid) {
        let _ = tcsetpgrp(stdin(), group);
    }

    /// Whether our process group has members beside us and those who wait for us: a pager behind us
    /// in a pipeline needs the terminal, too, a script that we are a line of does not.
    pub(super) fn has_neighbours() -> bool {
        let processes = all();
        let group = own_group();
        let mut family = vec![raw(getpid())];
        while let Some(parent) =
            processes.iter().find(|process| Some(&raw(process.pid)) == family.last())
        {
            if family.contains(&parent.parent) {
                break;
            }
            family.push(parent.parent);
        }
        processes
            .iter()
            .any(|process| process.group == group && !family.contains(&raw(process.pid)))
    }

    /// Lets a script that we are a line of have the Ctrl-C that ended the command: it is in our
    /// group, and the terminal was the command's.
    pub(super) fn pass_on(signal: i32) {
        let signal = [Signal::INT, Signal::QUIT].into_iter().find(|known| known.as_raw() == signal);
        if let Some(signal) = signal.filter(|_| raw(getpid()) != own_group()) {
            let _ = kill_current_process_group(signal);
        }
    }

    /// Takes it back from `group`; nothing, and false, if somebody else has it by now.
    pub(super) fn take_back(&self, group: Pid, was_killed: bool) -> bool {
        if !is_foreground(stdin(), raw(group)) {
            return false;
        }
        if let Some(own) = Pid::from_raw(own_group()) {
            let _ = tcsetpgrp(stdin(), own);
        }
        // A command that is killed can't put it in order again.
        if let Some(modes) = self.modes.as_ref().filter(|_| was_killed) {
            let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
        }
        true
    }
}
