//! x
mod clock;
mod error;
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
    name::{Kind, LockName, MAX_NAME_BYTES},
    observe::{Event, Observer},
    options::{LockOptions, MAX_TTL, MIN_TTL, Renewal},
    registry::{Connector, Registry},
    token::{FencingToken, OwnerId},
};
