//! x
mod clock;
mod error;
pub mod memory;
mod name;
mod observe;
mod options;
mod registry;
pub mod spi;
mod token;
pub mod url;
pub use self::{
    clock::{Clock, Tick},
    error::{Error, ErrorKind, ErrorStatus, Result},
    memory::Memory,
    name::{Kind, LockName, MAX_NAME_BYTES},
    observe::{Event, Observer},
    options::{LockOptions, MAX_TTL, MIN_TTL, Renewal},
    registry::{Connector, Registry},
    token::{FencingToken, OwnerId},
};
