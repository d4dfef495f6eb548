//! Defines the one test double of the core and of the quorum: a [`Memory`](crate::Memory) that
//! behaves as a test orders.
//!
//! * A [`Kind`] selects the sort of store: a store that is polled, a store with a queue, or a store
//!   in which attempts wait.
//! * A [`Fault`] lets a request fail, once or until the test heals it.
//! * The [`Store`] behind the fake logs each request, and shows the test what is left.

mod backend;
mod orders;
mod store;

pub use self::{
    backend::{Attaches, Fake, KINDS, Kind, Note},
    orders::{Fault, Op},
    store::{Store, lock},
};
