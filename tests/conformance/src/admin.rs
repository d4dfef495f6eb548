//! Finds the part of a store that answers operators.

use lockkit_core::spi::{Admin, Backend};

/// The operators' interface of a store that claims this capability.
pub(crate) fn admin(backend: &dyn Backend) -> &dyn Admin {
    backend.admin().expect("a store with this capability")
}
