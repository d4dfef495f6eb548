//! Reads the numbers of process groups and sessions.
//!
//! The leader of a group may be in another process namespace, and then the group has no number
//! here. The kernel reports 0 for such a group, and rustix takes 0 for impossible.

use std::os::fd::AsFd;

use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp};

/// The number of our group; 0 if it has none.
pub(crate) fn own_group() -> i32 {
    getpgrp().as_raw()
}

/// The number of our session; 0 if it has none.
pub(crate) fn own_session() -> i32 {
    getsid(None).map_or(0, Pid::as_raw)
}

/// Whether the group with this number has the terminal. For a group without a number this is false,
/// because there is no way to find out.
pub(crate) fn is_foreground(terminal: impl AsFd, group: i32) -> bool {
    group != 0 && tcgetpgrp(terminal).is_ok_and(|of| of.as_raw() == group)
}
