//! Takes several mutexes together: all of them, or none.

mod guard;
mod lost;
mod set;

pub use self::{guard::MultiGuard, lost::AnyLost, set::MutexSet};
