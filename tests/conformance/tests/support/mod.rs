//! Stores that differ from the memory store.

mod altered;
pub(crate) mod blocking;
pub(crate) mod min_ttl;
mod server;
pub(crate) mod session;
