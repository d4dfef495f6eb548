//! A request for a lock.

use std::{sync::Arc, time::Duration};

use super::keeper::Keeper;
use crate::{
    name::LockName,
    options::CheckedOptions,
    spi::{Backend, GrantId, Mode},
};

/// How long the caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Forever,
    /// One attempt.
    Try,
    Within(Duration),
}

/// The lock that a caller wants, and the store that has it.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) keeper: &'a Arc<Keeper>,
    /// Whether tasks of this process queue before they ask the store.
    pub(crate) gated: bool,
    pub(crate) name: &'a LockName,
    pub(crate) mode: Mode,
    pub(crate) options: &'a Arc<CheckedOptions>,
    /// The grant to continue. If it is gone, the call ends.
    pub(crate) resumes: Option<&'a GrantId>,
}
