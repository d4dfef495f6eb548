//! The process gate: tasks of one locker that want the same name queue here, in order. The name may
//! be of any kind.
//!
//! * [`gate`] lets tasks in, one after the other.
//! * [`name`] is what the gate knows of one name.
//! * [`contender`] is a task that has a name, or competes for it.
//! * [`sharing`] decides which tasks can have a name at the same time.
//! * [`waiter`] is one place in line.

mod contender;
mod gate;
mod name;
mod sharing;
mod waiter;

pub(super) use self::{
    gate::{Entry, Gates, Turn},
    waiter::{Slot, Waiter},
};
