//! The driver: everything between a user's call and a backend's [`Claim`](crate::spi::Claim),
//! written once.
//!
//! In layers, each of which uses only the ones above it in this list:
//!
//! * [`pacing`] says when something is done next, and [`flags`] is what threads agree on without a
//!   lock.
//! * [`locker_state`] is what all claims of a locker share.
//! * [`live`] is a claim object that is counted for as long as it lives.
//! * [`hold`] is the state of one claim that guard, keeper, loss signal and wake-up share.
//! * [`queue`] has the tasks of one process queue in order.
//! * [`agenda`] is what the background task has to do: renewals that are due, and what dropped
//!   futures and guards left behind. [`keeper`] has a task work on it, and [`finishing`] leaves
//!   calls to it that are dropped midway.
//! * [`line`] waits in the queue, [`release`] gives back, [`renew`] renews, and [`note`] writes the
//!   note beside a lock.
//! * [`pending`] is a claim that competes, with all that a cancelled call must leave to the
//!   background task. [`competition`] drives its attempts inline, on the caller's task, and waits
//!   between them. [`acquire`] is the whole call.
//! * [`worker`] is the one background task of a locker.
//!
//! An uncontended lock and release spawns no task and waits for no other task.

pub(crate) mod acquire;
pub(crate) mod agenda;
mod competition;
pub(crate) mod finishing;
mod flags;
pub(crate) mod hold;
pub(crate) mod keeper;
mod line;
pub(crate) mod live;
pub(crate) mod locker_state;
pub(crate) mod note;
pub(crate) mod pacing;
mod pending;
mod queue;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod request;
mod trouble;
pub(crate) mod worker;

#[cfg(test)]
mod tests;
