//! Servers that belong together, each on a network of its own where that can be had.

use std::ops::{Deref, DerefMut};

use lockkit_torture::site::BoxError;

/// Servers `L`, which `N` puts on networks that can be cut.
#[derive(Debug)]
pub(super) enum Servers<N, L> {
    Apart(N),
    OnLoopback(L),
}

impl<N, L> Servers<N, L> {
    pub(super) fn are_apart(&self) -> bool {
        matches!(self, Self::Apart(_))
    }

    pub(super) fn network(&mut self) -> Result<&mut N, BoxError> {
        match self {
            Self::Apart(servers) => Ok(servers),
            Self::OnLoopback(_) => Err("the servers are all on one network, which can't be cut".into()),
        }
    }
}

impl<L, N: Deref<Target = L>> Deref for Servers<N, L> {
    type Target = L;

    fn deref(&self) -> &L {
        match self {
            Self::Apart(servers) => servers,
            Self::OnLoopback(servers) => servers,
        }
    }
}

impl<L, N: DerefMut<Target = L>> DerefMut for Servers<N, L> {
    fn deref_mut(&mut self) -> &mut L {
        match self {
            Self::Apart(servers) => servers,
            Self::OnLoopback(servers) => servers,
        }
    }
}
