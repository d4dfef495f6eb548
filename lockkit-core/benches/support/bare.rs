//! Makes claims without a driver.

use std::time::Duration;

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Backend, Claim, ClaimSpec, Mode},
};

pub(crate) fn claim(
    backend: &dyn Backend,
    name: &LockName,
    owner: u128,
    mode: Mode,
) -> Box<dyn Claim> {
    let ttl = Duration::from_secs(30);
    backend.claim(ClaimSpec::new(name.clone(), OwnerId::new(owner), mode, ttl, ttl / 10)).unwrap()
}

pub(crate) fn name(kind: Kind) -> LockName {
    LockName::new(kind, "orders/42").unwrap()
}
