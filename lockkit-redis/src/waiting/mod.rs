//! Keeps the waiters of this process: the name that each one waits for, and its state.
//!
//! The store keeps the queue. It sends a message to a waiter on the channel of the waiter's client,
//! and one request keeps all waiters of a client alive. So a waiter without a message need not ask
//! the server anything.

mod handover;
mod refresh;
mod registry;
mod waiter;

#[cfg(test)]
pub(crate) use self::refresh::answers;
pub(crate) use self::{
    handover::{ClockReading, Handover},
    refresh::RefreshBatch,
    registry::WaiterRegistry,
    waiter::{NO_CHANNEL, News, Registration, Waiter, hears, liveness, period, window},
};
