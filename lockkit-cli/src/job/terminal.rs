//! Gives the terminal to the command and takes it back. Only one process group has it at a time.

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
        // lockkit is in the background from now on. Its messages to the terminal must not stop it.
        let _ = SigSet::from(Masked::SIGTTOU).thread_block();
        isatty(stdin()).then(|| Self { modes: tcgetattr(stdin()).ok() })
    }

    /// Whether our process group has the terminal.
    pub(super) fn is_ours(&self) -> bool {
        is_foreground(stdin(), own_group())
    }

    pub(super) fn give(&self, group: Pid) {
        let _ = tcsetpgrp(stdin(), group);
    }

    /// Whether our process group has members besides lockkit and its ancestors. A pager behind
    /// lockkit in a pipeline needs the terminal, too. A script that runs lockkit does not.
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

    /// Passes the Ctrl-C that ended the command on to a script that runs lockkit. The script is in
    /// our group, while the command had the terminal.
    pub(super) fn pass_on(signal: i32) {
        let signal = [Signal::INT, Signal::QUIT].into_iter().find(|known| known.as_raw() == signal);
        if let Some(signal) = signal.filter(|_| raw(getpid()) != own_group()) {
            let _ = kill_current_process_group(signal);
        }
    }

    /// Takes the terminal back from `group`. If another group has it, this does nothing and returns
    /// false.
    pub(super) fn take_back(&self, group: Pid, was_killed: bool) -> bool {
        if !is_foreground(stdin(), raw(group)) {
            return false;
        }
        if let Some(own) = Pid::from_raw(own_group()) {
            let _ = tcsetpgrp(stdin(), own);
        }
        // A killed command can't restore the terminal's modes.
        if let Some(modes) = self.modes.as_ref().filter(|_| was_killed) {
            let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
        }
        true
    }
}
