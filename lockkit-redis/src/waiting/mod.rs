//! Waiting in the store's queue: who of this process waits for which name, and what became of it.
//!
//! The store keeps the queue. A waiter is told by a message on the channel of its client, and all
//! waiters of a client are kept alive together. So a waiter that has heard nothing need not ask the
//! server anything.

mod handover;
mod refresh;
mod registry;
mod waiter;

#[cfg(test)]
pub(crate) use self::refresh::answers;
pub(crate) use self::{
    handover::{ClockReading, Handover},
    refresh::Batch,
    registry::WaiterRegistry,
    waiter::{NO_CHANNEL, News, Registration, Waiter, hears, liveness, period, window},
};
