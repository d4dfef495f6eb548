//! Tests how a claim of the model resumes a grant, with explicit instants.

use super::world::{Client, FIRST_TOKEN, TTL, World, alive, permits, secs, spec};
use crate::{
    spi::{Attempt, GrantId, Lease, LossReason, Mode, Released, RenewalOutcome, Wait},
    token::{FencingToken, OwnerId},
};

use Mode::{Exclusive, Shared};

/// A claim that resumes the grant of `former`.
fn heir(former: &Client, token: u64) -> Client {
    let mut spec = spec(former.spec.mode);
    spec.label = Some("heir".into());
    let token = FencingToken::new(token);
    spec.resumes = Some(Box::new(GrantId { owner: former.spec.owner, token }));
    Client::with_spec(spec)
}

/// Attempts, and expects that nothing is taken.
fn refused(world: &mut World, client: &Client) {
    for wait in [Wait::No, Wait::Queue] {
        let answer = world.attempt(client, wait);
        assert_eq!(answer, Attempt::Busy { queued: false, retry_after: None });
    }
}

#[test]
fn c2_a_resumed_grant_has_its_token_and_only_a_new_owner() {
    for mode in [Exclusive, Shared, permits(2, 3)] {
        let mut world = World::new();
        let former = Client::new(mode);
        let token = world.win(&former);
        world.pass(secs(4));
        let heir = heir(&former, token);
        assert_eq!(world.win(&heir), token);
        assert_eq!(world.keep_alive(&former), RenewalOutcome::Lost(LossReason::Evicted));
        assert_eq!(world.release(&former), Released::NotHeld);
        let seen = world.inspect(&heir);
        assert_eq!(seen.holders.len(), 1, "{mode:?}");
        let holder = &seen.holders[0];
        assert_eq!((holder.owner, holder.mode), (Some(heir.spec.owner), mode));
        assert_eq!((holder.label.as_deref(), holder.age), (Some("heir"), Some(secs(4))));
        assert_eq!(holder.remaining, Some(TTL), "a whole lease");
        assert_eq!(world.keep_alive(&heir), alive(TTL));
        assert_eq!(world.release(&heir), Released::Freed);
        assert_eq!(world.records(), 0);
    }
}

#[test]
fn c5_a_claim_that_has_resumed_a_grant_gets_it_again_and_no_other_claim_does() {
    let mut world = World::new();
    let former = Client::new(Exclusive);
    let token = world.win(&former);
    let first = heir(&former, token);
    let second = heir(&former, token);
    assert_eq!(world.win(&first), token);
    world.pass(secs(3));
    assert_eq!(world.win(&first), token);
    refused(&mut world, &second);
    assert_eq!(world.release(&first), Released::Freed);
    refused(&mut world, &first);
    refused(&mut world, &second);
    assert_eq!(world.records(), 0, "a refused claim leaves nothing");
}

/// Fails if a claim takes a free lock, or the grant of another claim.
#[test]
fn c2_a_grant_that_is_gone_is_not_resumed() {
    let mut world = World::new();
    let former = Client::new(Exclusive);
    let late = heir(&former, FIRST_TOKEN);
    refused(&mut world, &late);
    let token = world.win(&former);
    world.pass(TTL);
    refused(&mut world, &late);
    assert_eq!(world.win(&former), token + 1, "its lease had ended");
    let other_token = heir(&former, token + 2);
    refused(&mut world, &other_token);
    let mut other_owner = heir(&former, token);
    let forged = GrantId { owner: OwnerId::random(), token: FencingToken::new(token) };
    other_owner.spec.resumes = Some(Box::new(forged));
    refused(&mut world, &other_owner);
    let mut other_mode = heir(&former, token);
    other_mode.spec.mode = Shared;
    refused(&mut world, &other_mode);
    assert_eq!(world.force_release(&former, token + 1), Released::Freed);
    refused(&mut world, &late);
}

/// A quorum may have raised the token, or a member has given a larger one.
#[test]
fn c2_a_larger_token_of_the_same_owner_is_the_same_grant() {
    let mut world = World::new();
    let former = Client::new(Exclusive);
    let token = world.win(&former);
    assert_eq!(world.win(&heir(&former, token - 1)), token);
}

#[test]
fn c2_a_resumed_lease_is_never_shorter_than_before() {
    let mut world = World::new();
    let mut former = spec(Exclusive);
    former.ttl = TTL * 3;
    let former = Client::with_spec(former);
    let token = world.win(&former);
    let heir = heir(&former, token);
    let Attempt::Granted(grant) = world.attempt(&heir, Wait::No) else { panic!("it is held") };
    assert_eq!(grant.lease, Lease::For(TTL * 3));
}

#[test]
fn c12_waiters_keep_their_places_while_a_grant_is_resumed() {
    let mut world = World::new();
    let former = Client::new(Exclusive);
    let waiter = Client::new(Exclusive);
    let token = world.win(&former);
    world.queue(&waiter);
    let heir = heir(&former, token);
    assert_eq!(world.win(&heir), token);
    assert_eq!(waiter.wakes(), 0);
    assert_eq!(world.release(&heir), Released::Freed);
    assert_eq!(waiter.wakes(), 1);
    assert!(world.win(&waiter) > token);
}
