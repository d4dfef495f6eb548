#![doc = include_str!("../README.md")]
//! ## Where things are
//!
//! * [`connect`], [`builder`] and [`Locker`] are the entry points; [`Mutex`], [`RwLock`] and
//!   [`Semaphore`] make [`LockGuard`]s.
//! * [`Election`] makes one candidate the leader, and a [`LeaderWatch`] shows the leader to all
//!   other processes.
//! * [`Once`] runs work at most once per success for each slot, such as a tick of a schedule.
//! * [`Locker::lock_all`] takes several names at once, and an [`Owner`] takes the same name again.
//!   The module `quorum` makes one store of several.
//! * [`Observer`] hears what a locker does; [`Locker::health`], [`Locker::names`] and
//!   [`Locker::inspect`] are for operators.
//! * [`LockOptions`] holds the options of a lock, [`Lost`] is the loss signal, and [`Error`] is the
//!   one error type.
//! * `Settings` reads a store and its options from a file. The module `blocking` is for programs
//!   without async code. Both need a feature.
//! * [`spi`] is the interface that a backend implements, and [`Registry`] is where it is
//!   registered.
//!
//! Many examples of these pages name the crates inside: `lockkit_core::` is `lockkit::`,
//! `lockkit_redis::` is `lockkit::redis::`, and so on for each store.
//!
//! ## Features
//!
//! No feature is on by default. A feature adds functions, and changes nothing else.
//!
//! | feature | |
//! |---|---|
//! | `file`, `mysql`, `redis`, `zk` | a store each; the memory store is always there |
//! | `quorum` | several stores as one |
//! | `full` | all five |
//! | `mysql-tls`, `redis-tls`, `zk-tls` | TLS for the store: `mysqls`, `rediss` and others, `zks` |
//! | `blocking` | the module `blocking`: calls that block, without a runtime |
//! | `metrics` | `LockerBuilder::metrics`: reports to the crate `metrics` |
//! | `serde` | `Settings` and `LockOptions` from files and variables |
//! | `simulation` | for lockkit-torture; never for a program that relies on locks |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
mod connect;

pub use lockkit_core::*;
/// The file backend, for the processes of one host; needs the cargo feature `file`.
#[cfg(feature = "file")]
#[doc(inline)]
pub use lockkit_file as file;
/// The MySQL and MariaDB backend; needs the cargo feature `mysql`.
#[cfg(feature = "mysql")]
#[doc(inline)]
pub use lockkit_mysql as mysql;
/// Several stores as one; needs the cargo feature `quorum`.
#[cfg(feature = "quorum")]
#[doc(inline)]
pub use lockkit_quorum as quorum;
/// The Redis backend; needs the cargo feature `redis`.
#[cfg(feature = "redis")]
#[doc(inline)]
pub use lockkit_redis as redis;
/// The ZooKeeper backend; needs the cargo feature `zk`.
#[cfg(feature = "zk")]
#[doc(inline)]
pub use lockkit_zk as zk;

pub use self::connect::{builder, connect, registry};
