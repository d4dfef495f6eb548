//! The core of lockkit: the contract's types, the driver, the backend interface, and an embedded
//! memory store.
//!
//! Applications use the `lockkit` facade. The author of a backend depends on this crate and
//! implements [`spi::Backend`] and [`spi::Claim`]; everything else about a lock is written once,
//! here. The promises have numbers, C1 to C14: see [`contract`].
//!
//! ## Features
//!
//! | feature | |
//! |---|---|
//! | `blocking` | the module `blocking`: calls that block, without a runtime |
//! | `metrics` | the observer `Metrics`, which reports to the crate `metrics` |
//! | `serde` | `Settings` and `LockOptions` from files and variables |
//! | `simulation` | owner ids and jitter from a seed, and a fake store |
//!
//! `simulation` is for lockkit's own tests. Never enable it in a program that relies on locks.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod ask;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(not(any(test, feature = "simulation")))]
mod chance;
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub mod chance;
mod clock;
mod common;
pub mod contract;
mod driver;
mod election;
mod error;
mod expiring;
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
#[expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test double: what goes wrong in it ends the test"
)]
pub mod fake;
mod guard;
mod handle;
mod hold;
mod into_ticket;
mod locker;
mod lost;
pub mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod multi;
mod mutex;
mod name;
mod naming;
mod observe;
mod once;
mod options;
mod reentrant;
mod registry;
mod release_request;
mod requested;
mod resume;
mod rwlock;
mod semaphore;
#[cfg(feature = "serde")]
mod settings;
pub mod spi;
mod sync;
mod ticket;
mod token;
pub mod url;
mod within;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "serde")]
pub use self::settings::Settings;
pub use self::{
    ask::{Grants, MAX_REASON_BYTES},
    clock::{Clock, Tick},
    election::{Election, Leader, LeaderWatch, Leadership},
    error::{Error, ErrorKind, ErrorStatus, Result},
    expiring::Expiring,
    guard::LockGuard,
    hold::Hold,
    into_ticket::TicketError,
    locker::{Health, Locker, LockerBuilder},
    lost::Lost,
    memory::Memory,
    multi::{AnyLost, MultiGuard, MutexSet},
    mutex::Mutex,
    name::{Kind, LockName},
    naming::MAX_NAME_BYTES,
    observe::{Event, Observer, What},
    once::{Once, OnceOutcome, OnceRun},
    options::{LockOptions, MAX_TTL, MIN_TTL, Renewal},
    reentrant::{Owner, ReentrantGuard, ReentrantMutex},
    registry::{Connector, Registry},
    release_request::ReleaseRequest,
    rwlock::RwLock,
    semaphore::Semaphore,
    spi::{LossReason, Note, Noted, Released},
    token::{FencingToken, OwnerId, ParseOwnerIdError},
};
