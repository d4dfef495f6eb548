//! The members of a quorum, as all its claims share them.

use std::sync::Arc;

use crate::{member::Member, need::Need, sweeper::Sweeper};

/// What all claims of a quorum share.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
    pub(crate) need: Need,
    pub(crate) sweeper: Arc<Sweeper>,
}
