//! Stores whose leases differ from the memory store's.

pub(crate) mod min_ttl;
mod server;
pub(crate) mod session;
