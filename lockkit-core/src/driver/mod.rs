//! The driver: everything between a user's call and a backend's [`Claim`](crate::spi::Claim),
//! written once.
//!
//! These are its layers. Each uses only the ones above it in this list:
//!
//! * [`pacing`] decides when the next attempt or renewal is due. [`flags`] are the states that
//!   threads share without a lock.
//! * [`locker_state`] is what all claims of a locker share.
//! * [`live`] is a claim object that is counted for as long as it lives. [`listening`] is the
//!   state of the calls that listen for requests to release a hold.
//! * [`hold`] is the state of one claim that guard, background task, loss signal and wake-up share.
//! * [`queue`] lets the tasks of one process queue in order.
//! * [`agenda`] is what the background task has to do: renewals that are due, and the cleanup of
//!   dropped futures and guards. [`keeper`] starts the background task. [`finishing`] moves a call
//!   that is dropped midway to the agenda.
//! * [`line`] waits in the queue, [`release`] gives back, [`renew`] renews, and [`note`] writes the
//!   note beside a lock. [`leave`] ends a hold that another process continues.
//! * [`pending`] is a claim that competes; it moves to the background task when its call is
//!   dropped. [`competition`] drives its attempts inline, on the caller's task, and waits between
//!   them. [`acquire`] is the whole call.
//! * [`worker`] is the one background task of a locker.
//!
//! An uncontended lock and release spawns no task and waits for no other task.

pub(crate) mod acquire;
pub(crate) mod agenda;
mod competition;
pub(crate) mod finishing;
mod flags;
pub(crate) mod held;
pub(crate) mod keeper;
pub(crate) mod leave;
mod line;
pub(crate) mod listening;
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
