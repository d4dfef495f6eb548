//! The members of a quorum, as all its claims share them.

use std::sync::Arc;

use super::{member::Member, need::Need, sweeper::Sweeper};

/// What all claims of a quorum share.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) all: Vec<Member>,
    pub(super) need: Need,
    pub(super) sweeper: Arc<Sweeper>,
}
