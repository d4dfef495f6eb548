//! The resource that the locks protect. It compares fencing tokens, as any resource should, and
//! refuses writes with an old token.

mod client;
mod server;

use serde::{Deserialize, Serialize};

pub(crate) use self::{client::Client, server::Server};
use crate::history::{Lock, Op};

/// A line to the register.
#[derive(Debug, Serialize, Deserialize)]
struct Write {
    op: Op,
    lock: Lock,
    token: u64,
}

/// The answer of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) accepted: bool,
    /// The largest accepted token for this lock, including this token.
    pub(crate) largest: u64,
}
