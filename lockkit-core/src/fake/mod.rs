//! The one test double of the core and of the quorum: a [`Memory`](crate::Memory) that behaves as a test orders.
//!
//! * A [`Kind`] says which sort of store it plays: one that is polled, one with a queue, one that
//!   waits inside.
//! * A [`Fault`] says what goes wrong with a request, once or until the test heals it.
//! * The [`Store`] behind it logs each request, and shows the test what is left.

mod backend;
mod orders;
mod store;

pub use self::{
    backend::{Attaches, Fake, KINDS, Kind, Note},
    orders::{Fault, Op},
    store::{Store, lock},
};
