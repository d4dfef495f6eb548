//! Members that follow a script, on tokio's clock.

use std::{sync::Arc, time::Duration};

use lockkit_core::{
    Clock, FencingToken, Kind, LockName, Memory, OwnerId, Result,
    fake::{Fake, Kind as Sort, Store},
    spi::Released,
    spi::{Attempt, Backend, Capabilities, Claim, ClaimSpec, Descriptor, LeaseScope, Mode, Wait},
};

use crate::{Need, Quorum};

pub(super) const TTL: Duration = Duration::from_secs(30);
pub(super) const OP_TIMEOUT: Duration = Duration::from_secs(2);
/// The last token of each member. The test decides which member is ahead, not the time at which
/// they were made.
const LAST_TOKEN: u64 = 1_000_000;

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn member() -> Fake {
    Fake::new(Store::new(LAST_TOKEN), Sort::Memory)
}

pub(super) fn on_boot_clock() -> Fake {
    Fake::new(Store::over(Memory::new()), Sort::Memory)
}

pub(super) fn without_raise(fake: Fake) -> Fake {
    fake.described(|it| Descriptor {
        capabilities: Capabilities { exclusive: true, ..Capabilities::NONE },
        ..it
    })
}

/// Makes a store without leases: a session carries each grant, and no grant ends by itself during a
/// test.
pub(super) fn without_leases(fake: Fake) -> Fake {
    fake.lasting().described(|it| Descriptor { lease_scope: LeaseScope::Session, ..it })
}

/// Uses up tokens, so that this member gives larger tokens from now on.
pub(super) async fn advance(fake: &Fake, grants: usize) {
    for _ in 0..grants {
        let mut claim = fake.memory.claim(spec("other")).unwrap();
        claim.attempt(Wait::No).await.unwrap();
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

pub(super) fn fakes(count: usize) -> Vec<Fake> {
    (0..count).map(|_| member()).collect()
}

pub(super) fn quorum(fakes: &[Fake]) -> Quorum {
    of(fakes, Need::Majority)
}

pub(super) fn of(fakes: &[Fake], need: Need) -> Quorum {
    try_of(fakes, need).unwrap()
}

pub(super) fn try_of(fakes: &[Fake], need: Need) -> Result<Quorum> {
    Quorum::with_need(
        fakes.iter().map(|fake| -> Arc<dyn Backend> { Arc::new(fake.clone()) }).collect(),
        need,
    )
}

pub(super) fn name() -> LockName {
    LockName::new(Kind::Mutex, "x").unwrap()
}

pub(super) fn spec(name: &str) -> ClaimSpec {
    let name = LockName::new(Kind::Mutex, name).unwrap();
    let mut spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, TTL, OP_TIMEOUT);
    spec.clock = Clock::Tokio;
    spec
}

/// Another client's lock at this member.
pub(super) async fn occupy(fake: &Fake) -> Box<dyn Claim> {
    let mut claim = fake.memory.claim(spec("x")).unwrap();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    claim
}

/// The token and the holder at each member, read past its script.
pub(super) async fn shown(fakes: &[Fake]) -> Vec<Option<(OwnerId, FencingToken)>> {
    let mut shown = Vec::new();
    for fake in fakes {
        let seen = fake.memory.inspect(&name()).await.unwrap();
        shown.push(
            seen.holders.first().map(|holder| (holder.owner.unwrap(), holder.token.unwrap())),
        );
    }
    shown
}
