//! The driver: everything between a user's call and a backend's [`Claim`](crate::spi::Claim), written once.
//!
//! * [`acquire`] drives attempts inline, on the caller's task, and waits between them.
//! * [`gate`] has the tasks of one process queue in order: [`crowd`] is what it knows of a name, [`line`] one place there.
//! * [`bid`] is a claim that competes, with all that a cancelled call must leave to the keeper.
//! * [`held`] is what guard, keeper, loss signal and hint share of one claim.
//! * [`shared`] is what threads agree on about it without a lock.
//! * [`release`] gives back, inside bounds.
//! * [`note`] writes the note beside a lock, inside bounds.
//! * [`agenda`] is what the keeper has to do: renewals that are due, and what dropped futures and guards left behind.
//! * [`keeper`] is the one background task of a locker, which works the agenda off.
//!
//! An uncontended lock and release spawns no task and waits for no other task.

pub(crate) mod acquire;
pub(crate) mod agenda;
pub(crate) mod backoff;
mod bid;
mod crowd;
mod gate;
pub(crate) mod held;
pub(crate) mod keeper;
mod line;
pub(crate) mod live;
pub(crate) mod note;
pub(crate) mod release;
pub(crate) mod renew;
mod shared;
mod trouble;
pub(crate) mod within;

#[cfg(test)]
mod tests;
