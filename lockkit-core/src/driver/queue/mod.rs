//! The process gate: tasks of one locker that want the same name queue here, in order.
//!
//! * [`gate`] lets in, one after the other.
//! * [`name`] is what the gate knows of one name.
//! * [`waiter`] is one place in line.

mod gate;
mod name;
mod waiter;

pub(super) use self::{
    gate::{Entry, Gates, Turn},
    waiter::{Slot, Waiter},
};
