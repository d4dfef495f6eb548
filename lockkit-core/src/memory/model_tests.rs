//! Tests the rules of the model, one by one, with explicit instants.

use std::time::Duration;

use super::world::{Client, FIRST_TOKEN, TTL, World, alive, clients, permits, secs, spec, wakes};
use crate::{
    error::ErrorKind,
    name::{Kind, LockName},
    spi::{Attempt, Lease, LossReason, Mode, Released, RenewalOutcome, Wait},
    token::OwnerId,
};

use Mode::{Exclusive, Shared};

const INSTANT: Duration = Duration::from_nanos(1);

#[test]
fn c1_an_exclusive_holder_excludes_all_others() {
    let mut world = World::new();
    let [a, b, reader] = clients([Exclusive, Exclusive, Shared]);
    world.win(&a);
    world.fail(&b);
    world.fail(&reader);
    assert_eq!(world.release(&a), Released::Freed);
    world.win(&b);
}

#[test]
fn c1_shared_holders_exclude_an_exclusive_one() {
    let mut world = World::new();
    let [a, b, writer] = clients([Shared, Shared, Exclusive]);
    world.win(&a);
    world.win(&b);
    world.fail(&writer);
    assert_eq!(world.release(&a), Released::Freed);
    world.fail(&writer);
    assert_eq!(world.release(&b), Released::Freed);
    world.win(&writer);
    world.fail(&a);
}

#[test]
fn c1_permits_add_up_to_the_limit() {
    let mut world = World::new();
    let [two, one, other] = clients([permits(2, 3), permits(1, 3), permits(1, 3)]);
    world.win(&two);
    world.win(&one);
    world.fail(&other);
    assert_eq!(world.release(&one), Released::Freed);
    world.win(&other);
}

#[test]
fn c1_the_modes_exclude_each_other() {
    let mut world = World::new();
    let [permit, shared, exclusive] = clients([permits(1, 3), Shared, Exclusive]);
    world.win(&permit);
    world.fail(&shared);
    world.fail(&exclusive);
    assert_eq!(world.release(&permit), Released::Freed);
    world.win(&shared);
    world.fail(&permit);
}

#[test]
fn c1_two_limits_of_one_name_are_refused_with_both_numbers() {
    let mut world = World::new();
    let [three, five, waiter] = clients([permits(3, 3), permits(1, 5), permits(1, 3)]);
    world.win(&three);
    world.queue(&waiter);
    let refused = |world: &mut World| {
        let error = world.try_attempt(&five, Wait::Queue).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains('5') && error.to_string().contains('3'), "{error}");
    };
    refused(&mut world);
    assert_eq!(world.release(&three), Released::Freed);
    refused(&mut world);
    assert_eq!(world.release(&waiter), Released::NotHeld);
    world.win(&five);
}

#[test]
fn c2_a_past_owner_changes_nothing() {
    let mut world = World::new();
    let [past, present] = clients([Exclusive, Exclusive]);
    world.win(&past);
    world.pass(TTL);
    let token = world.win(&present);
    assert_eq!(world.keep_alive(&past), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(world.release(&past), Released::NotHeld);
    let holders = world.inspect(&present).holders;
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].owner, Some(present.spec.owner));
    assert_eq!(holders[0].token.unwrap().get(), token);
    assert_eq!(holders[0].remaining, Some(TTL));
}

#[test]
fn c2_a_renewal_never_creates_a_grant() {
    let mut world = World::new();
    let [a] = clients([Exclusive]);
    assert_eq!(world.keep_alive(&a), RenewalOutcome::Lost(LossReason::Evicted));
    world.win(&a);
    assert_eq!(world.release(&a), Released::Freed);
    assert_eq!(world.keep_alive(&a), RenewalOutcome::Lost(LossReason::Evicted));
    world.win(&a);
    world.pass(TTL);
    assert_eq!(world.keep_alive(&a), RenewalOutcome::Lost(LossReason::Expired));
    assert_eq!(world.names(), 0);
}

#[test]
fn c2_neither_a_renewal_nor_a_retry_shortens_a_lease() {
    let mut world = World::new();
    let mut a = Client::new(Exclusive);
    world.win(&a);
    a.spec.ttl = secs(1);
    assert_eq!(world.keep_alive(&a), alive(TTL));
    world.pass(secs(2));
    assert!(
        matches!(world.attempt(&a, Wait::No), Attempt::Granted(g) if g.lease == Lease::For(secs(8)))
    );
    assert_eq!(world.keep_alive(&a), alive(secs(8)));
}

#[test]
fn c3_a_lease_ends_exactly_ttl_after_the_grant_or_renewal() {
    let mut world = World::new();
    let [a, b] = clients([Exclusive, Exclusive]);
    world.win(&a);
    world.pass(secs(9));
    assert_eq!(world.keep_alive(&a), alive(TTL));
    world.pass(TTL - secs(1));
    world.fail(&b);
    world.pass(secs(1) - INSTANT);
    world.fail(&b);
    world.pass(INSTANT);
    world.win(&b);
    assert_eq!(world.release(&a), Released::NotHeld);
}

#[test]
fn c3_releasing_an_ended_lease_reports_the_loss() {
    let mut world = World::new();
    let [a] = clients([Exclusive]);
    let token = world.win(&a);
    world.pass(TTL);
    assert_eq!(world.force_release(&a, token), Released::NotHeld);
    assert_eq!(world.release(&a), Released::NotHeld);
}

#[test]
fn c4_every_grant_has_its_own_rising_token() {
    let mut world = World::new();
    let [a, b, writer] = clients([Shared, Shared, Exclusive]);
    assert_eq!(world.win(&a), FIRST_TOKEN);
    assert_eq!(world.win(&b), FIRST_TOKEN + 1);
    assert_eq!(world.release(&a), Released::Freed);
    assert_eq!(world.release(&b), Released::Freed);
    assert_eq!(world.names(), 0);
    assert_eq!(world.win(&writer), FIRST_TOKEN + 2);
    world.pass(TTL);
    assert_eq!(world.win(&a), FIRST_TOKEN + 3);
}

#[test]
fn c5_a_retry_gets_its_own_grant_again_with_a_fresh_lease() {
    let mut world = World::new();
    let [a] = clients([Exclusive]);
    let token = world.win(&a);
    world.pass(secs(4));
    let Attempt::Granted(again) = world.attempt(&a, Wait::No) else { panic!() };
    assert_eq!((again.token.get(), again.lease), (token, Lease::For(TTL)));
    assert_eq!(world.inspect(&a).holders.len(), 1);
}

#[test]
fn c6_a_try_leaves_nothing_behind() {
    let mut world = World::new();
    let [holder, a] = clients([Exclusive, Exclusive]);
    world.win(&holder);
    world.fail(&a);
    assert_eq!(world.inspect(&a).waiters, Some(0));
    world.queue(&a);
    assert_eq!(world.inspect(&a).waiters, Some(1));
    world.fail(&a);
    assert_eq!(world.inspect(&a).waiters, Some(0));
    assert_eq!(world.release(&holder), Released::Freed);
    assert_eq!(world.names(), 0);
}

#[test]
fn c6_a_woken_waiter_that_leaves_passes_the_wake_up_on() {
    let mut world = World::new();
    let [holder, a, b, c] = clients([Exclusive; 4]);
    world.win(&holder);
    world.queue_all([&a, &b, &c]);
    assert_eq!(world.release(&holder), Released::Freed);
    assert_eq!(wakes([&a, &b, &c]), [1, 0, 0]);
    assert_eq!(world.release(&a), Released::NotHeld);
    assert_eq!(wakes([&a, &b, &c]), [0, 1, 0]);
    world.win(&b);
    assert_eq!(wakes([&a, &b, &c]), [0, 0, 0]);
}

#[test]
fn c6_a_forgotten_waiter_loses_its_place() {
    let mut world = World::new();
    let [holder, forgotten, next] = clients([Exclusive; 3]);
    world.win(&holder);
    world.queue(&forgotten);
    for _ in 0..9 {
        world.pass(secs(1));
        world.queue(&next);
        world.keep_alive(&holder);
    }
    assert_eq!(world.release(&holder), Released::Freed);
    assert_eq!(world.queue(&next), secs(1), "when the place lapses");
    world.pass(secs(1));
    world.win(&next);
    assert_eq!(world.release(&next), Released::Freed);
    assert_eq!(world.names(), 0);
}

#[test]
fn c6_a_waiter_with_a_short_ttl_keeps_its_place_for_three_polls() {
    let mut world = World::new();
    let mut short = spec(Exclusive);
    short.ttl = secs(1);
    let short = Client::with_spec(short);
    let [holder, next] = clients([Exclusive, Exclusive]);
    world.win(&holder);
    world.queue(&short);
    world.queue(&next);
    assert_eq!(world.release(&holder), Released::Freed);
    world.pass(secs(2));
    assert_eq!(world.queue(&next), secs(1));
    world.win(&short);
}

#[test]
fn c7_release_is_idempotent_and_touches_only_its_owner() {
    let mut world = World::new();
    let [a, b, reader] = clients([Shared, Shared, Shared]);
    world.win(&a);
    world.win(&b);
    assert_eq!(world.release(&reader), Released::NotHeld);
    assert_eq!(world.release(&a), Released::Freed);
    assert_eq!(world.release(&a), Released::NotHeld);
    assert_eq!(world.keep_alive(&b), alive(TTL));
}

#[test]
fn c8_a_release_wakes_one_exclusive_waiter() {
    let mut world = World::new();
    let [holder, a, reader, b] = clients([Exclusive, Exclusive, Shared, Exclusive]);
    world.win(&holder);
    world.queue_all([&a, &reader, &b]);
    assert_eq!(world.release(&holder), Released::Freed);
    assert_eq!(wakes([&a, &reader, &b]), [1, 0, 0]);
}

#[test]
fn c8_a_release_wakes_all_leading_shared_waiters() {
    let mut world = World::new();
    let [holder, a, b, writer, c] = clients([Exclusive, Shared, Shared, Exclusive, Shared]);
    world.win(&holder);
    world.queue_all([&a, &b, &writer, &c]);
    assert_eq!(world.release(&holder), Released::Freed);
    assert_eq!(wakes([&a, &b, &writer, &c]), [1, 1, 0, 0]);
    world.win(&b);
    world.win(&a);
    assert_eq!(world.release(&a), Released::Freed);
    assert_eq!(wakes([&writer, &c]), [0, 0]);
    assert_eq!(world.release(&b), Released::Freed);
    assert_eq!(wakes([&writer, &c]), [1, 0]);
}

#[test]
fn c8_a_release_wakes_the_leading_permit_claims_that_fit() {
    let mut world = World::new();
    let modes = [permits(4, 4), permits(1, 4), permits(2, 4), permits(2, 4), permits(1, 4)];
    let [holder, a, b, big, small] = clients(modes);
    world.win(&holder);
    world.queue_all([&a, &b, &big, &small]);
    assert_eq!(world.release(&holder), Released::Freed);
    assert_eq!(wakes([&a, &b, &big, &small]), [1, 1, 0, 0]);
    world.win(&a);
    assert_eq!(world.release(&a), Released::Freed);
    assert_eq!(wakes([&a, &b, &big, &small]), [0, 0, 1, 0]);
}

#[test]
fn c8_an_end_that_a_client_notices_wakes_the_next_waiter() {
    let mut world = World::new();
    let [holder, head, newcomer] = clients([Exclusive; 3]);
    world.win(&holder);
    world.pass(secs(5));
    world.queue(&head);
    world.pass(secs(5));
    world.fail(&newcomer);
    assert_eq!(head.wakes(), 1);
    assert_eq!(world.keep_alive(&holder), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(head.wakes(), 0, "it knows already");
}

#[test]
fn c8_a_sweep_that_notices_an_end_wakes_whom_it_frees() {
    let mut world = World::new();
    let [holder, head] = clients([Exclusive, Exclusive]);
    world.win(&holder);
    world.pass(secs(5));
    world.queue(&head);
    world.pass(secs(5));
    assert_eq!(world.names(), 1);
    assert_eq!(head.wakes(), 1);
}

#[test]
fn c9_busy_reports_the_end_of_the_first_blocking_lease() {
    let mut world = World::new();
    let [a, b, writer] = clients([Shared, Shared, Exclusive]);
    world.win(&a);
    world.pass(secs(3));
    world.win(&b);
    assert_eq!(world.queue(&writer), secs(7));
    world.keep_alive(&a);
    world.pass(secs(1));
    assert_eq!(world.queue(&writer), secs(9));
}

#[test]
fn c9_the_name_of_a_dead_holder_is_free_after_ttl() {
    let mut world = World::new();
    let [dead, successor] = clients([Exclusive, Exclusive]);
    world.win(&dead);
    let wait = world.queue(&successor);
    assert_eq!(wait, TTL);
    for _ in 0..10 {
        world.pass(wait / 10);
        world.attempt(&successor, Wait::Queue);
    }
    assert_eq!(world.inspect(&successor).holders[0].owner, Some(successor.spec.owner));
}

#[test]
fn c11_two_names_never_meet() {
    let mut world = World::new();
    let named = |kind, text: &str| {
        let mut spec = spec(Exclusive);
        spec.name = LockName::new(kind, text).unwrap();
        Client::with_spec(spec)
    };
    for other in [named(Kind::Mutex, "a"), named(Kind::RwLock, "a"), named(Kind::Mutex, "A")] {
        world.win(&other);
    }
    assert_eq!(world.names(), 3);
}

#[test]
fn c12_waiters_are_granted_in_order_and_no_newcomer_barges() {
    let mut world = World::new();
    let [holder, a, b, newcomer] = clients([Exclusive; 4]);
    world.win(&holder);
    world.queue(&a);
    world.queue(&b);
    assert_eq!(world.release(&holder), Released::Freed);
    world.fail(&newcomer);
    world.queue(&b);
    world.queue(&newcomer);
    let tokens = [&a, &b, &newcomer].map(|client| {
        let token = world.win(client);
        assert_eq!(world.release(client), Released::Freed);
        token
    });
    assert!(tokens.is_sorted());
}

#[test]
fn c12_a_reader_behind_a_queued_writer_waits() {
    let mut world = World::new();
    let [reader, writer, late] = clients([Shared, Exclusive, Shared]);
    world.win(&reader);
    world.queue(&writer);
    world.fail(&late);
    world.queue(&late);
    assert_eq!(world.release(&reader), Released::Freed);
    world.queue(&late);
    world.win(&writer);
    assert_eq!(world.release(&writer), Released::Freed);
    world.win(&late);
}

#[test]
fn c12_readers_behind_a_writer_that_leaves_are_woken() {
    let mut world = World::new();
    let [reader, writer, late] = clients([Shared, Exclusive, Shared]);
    world.win(&reader);
    world.queue(&writer);
    world.queue(&late);
    assert_eq!(world.release(&writer), Released::NotHeld);
    assert_eq!(wakes([&writer, &late]), [0, 1]);
    world.win(&late);
}

#[test]
fn c12_a_head_that_wants_many_permits_blocks_smaller_ones() {
    let mut world = World::new();
    let [holder, big, small] = clients([permits(2, 3), permits(3, 3), permits(1, 3)]);
    world.win(&holder);
    world.queue(&big);
    world.fail(&small);
    world.queue(&small);
    assert_eq!(world.release(&holder), Released::Freed);
    world.queue(&small);
    world.win(&big);
}

#[test]
fn c12_a_newcomer_is_granted_what_no_earlier_waiter_needs() {
    let mut world = World::new();
    let [holder, woken, newcomer, late] =
        clients([permits(3, 3), permits(2, 3), permits(1, 3), permits(1, 3)]);
    world.win(&holder);
    world.queue(&woken);
    assert_eq!(world.release(&holder), Released::Freed);
    world.win(&newcomer);
    world.fail(&late);
    world.win(&woken);
}

#[test]
fn c14_inspection_shows_holders_and_live_waiters_and_changes_nothing() {
    let mut world = World::new();
    let mut spec = spec(Shared);
    spec.label = Some("worker 7".into());
    let [writer] = clients([Exclusive]);
    let holder = Client::with_spec(spec);
    assert!(world.inspect(&holder).holders.is_empty());
    let token = world.win(&holder);
    world.pass(secs(4));
    world.queue(&writer);
    let seen = world.inspect(&holder);
    assert_eq!(seen.waiters, Some(1));
    let [seen] = &seen.holders[..] else { panic!("{seen:?}") };
    assert_eq!((seen.owner, seen.mode), (Some(holder.spec.owner), Shared));
    assert_eq!((seen.token.unwrap().get(), seen.label.as_deref()), (token, Some("worker 7")));
    assert_eq!((seen.age, seen.remaining), (Some(secs(4)), Some(secs(6))));
    world.pass(secs(6));
    assert!(world.inspect(&holder).holders.is_empty());
    assert_eq!(world.inspect(&holder).waiters, Some(1));
    assert_eq!(writer.wakes(), 0);
    world.pass(secs(4));
    assert_eq!(world.inspect(&holder).waiters, Some(0));
}

#[test]
fn c14_force_release_frees_only_that_grant_and_its_owner_learns_of_it() {
    let mut world = World::new();
    let [a, b, writer] = clients([Shared, Shared, Exclusive]);
    let tokens = [world.win(&a), world.win(&b)];
    world.queue(&writer);
    assert_eq!(world.force_release(&a, tokens[1] + 1), Released::NotHeld);
    assert_eq!(world.force_release(&a, tokens[0]), Released::Freed);
    assert_eq!(wakes([&a, &b, &writer]), [1, 0, 0]);
    assert_eq!(world.keep_alive(&a), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(world.keep_alive(&b), alive(TTL));
    assert_eq!(world.force_release(&b, tokens[1]), Released::Freed);
    assert_eq!(wakes([&a, &b, &writer]), [0, 1, 1]);
}

#[test]
fn idle_names_leave_no_record_and_ended_ones_are_swept() {
    let mut world = World::new();
    let forgotten = |at: usize| {
        let mut spec = spec(Exclusive);
        spec.name = LockName::new(Kind::Mutex, &format!("job/{at}")).unwrap();
        spec.owner = OwnerId::random();
        Client::with_spec(spec)
    };
    for at in 0..5_000 {
        world.win(&forgotten(at));
        world.pass(secs(1));
        assert!(world.records() <= 1_025, "{}", world.records());
    }
    world.pass(TTL);
    assert_eq!(world.names(), 0);
}
