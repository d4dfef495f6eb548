//! Operators' questions to a store that answers them.

use lockkit_core::spi::{Admin, Backend};

/// What answers operators, of a store that says that it can.
pub(crate) fn admin(backend: &dyn Backend) -> &dyn Admin {
    backend.admin().expect("a store with this capability")
}
