//! Process groups, whose leader may be in another process namespace: such a group has no number
//! here. The kernel says 0 for it, which rustix takes for impossible.

use std::os::fd::AsFd;

use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp};

/// The number of our group; 0 for one that has none.
pub(crate) fn own_group() -> i32 {
    getpgrp().as_raw()
}

/// The number of our session; 0 for one that has none.
pub(crate) fn own_session() -> i32 {
    getsid(None).map_or(0, Pid::as_raw)
}

/// Whether the terminal is for the group with this number. Nobody can tell of a group that has
/// none.
pub(crate) fn is_foreground(terminal: impl AsFd, group: i32) -> bool {
    group != 0 && tcgetpgrp(terminal).is_ok_and(|of| of.as_raw() == group)
}
