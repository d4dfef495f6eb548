//! The process gate: tasks of one locker that want the same name queue here, in order, of whatever
//! kind it is.
//!
//! * [`gate`] lets in, one after the other.
//! * [`name`] is what the gate knows of one name.
//! * [`contender`] has a name, or competes for it.
//! * [`sharing`] says who can have a name at the same time.
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
