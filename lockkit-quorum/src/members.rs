//! The state that all claims of a quorum share.

use std::sync::Arc;

use crate::{member::Member, need::Need, sweeper::Sweeper};

/// The members of a quorum, and its sweeper.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
    pub(crate) need: Need,
    pub(crate) sweeper: Arc<Sweeper>,
}
