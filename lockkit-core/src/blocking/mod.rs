//! Locks for programs without a tokio runtime: each call blocks its thread.
//!
//! The types have the names of the async ones, and their methods have the same names and
//! meanings. [`Locker`] says how they run, and which errors they add.
//! [`Locker::block_on`] runs the calls that have no blocking form, such as those of elections.
//!
//! This module needs the cargo feature `blocking`. `lockkit::blocking::connect` opens a store by
//! its URL.

mod background;
mod guard;
mod hold;
mod locker;
mod mutex;
mod rwlock;
mod semaphore;
#[cfg(test)]
mod tests;

pub use self::{
    guard::LockGuard,
    hold::{Hold, Lost},
    locker::Locker,
    mutex::Mutex,
    rwlock::RwLock,
    semaphore::Semaphore,
};
