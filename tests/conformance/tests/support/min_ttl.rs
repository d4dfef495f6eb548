//! The memory store without short leases.

use std::time::Duration;

use lockkit_core::{
    Error, ErrorKind, Result,
    spi::{ClaimSpec, Descriptor},
};

use super::altered::AlteredStore;

const MIN_TTL: Duration = Duration::from_millis(300);

/// A store that refuses leases that are too short, or lengthens them.
pub(crate) fn min_ttl(refuses: bool) -> AlteredStore {
    AlteredStore::new(
        "min_ttl",
        |memory| Descriptor { min_ttl: MIN_TTL, ..memory },
        move |memory, spec| {
            if refuses {
                check(&spec, MIN_TTL)?;
            }
            memory.claim(spec)
        },
    )
}

pub(crate) fn check(spec: &ClaimSpec, min_ttl: Duration) -> Result<()> {
    if spec.ttl >= min_ttl {
        return Ok(());
    }
    let text = format!("ttl is {:?}, this store gives at least {min_ttl:?}", spec.ttl);
    Err(Error::new(ErrorKind::InvalidOption, text))
}
