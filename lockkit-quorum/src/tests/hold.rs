//! Grants of won ballots: renewed, lost, and released.

use std::sync::Arc;

use lockkit_core::{
    Clock, LockOptions, Locker, Renewal,
    fake::{Fake, Fault, Op},
    spi::{Backend as _, Lease, LossReason, Released, RenewalOutcome, Wait},
};
use tokio::time::Instant;

use super::{
    grant::grant,
    members::{OP_TIMEOUT, TTL, advance, fakes, ms, name, of, quorum, shown, spec},
};
use crate::Need;

async fn evict(fake: &Fake) {
    for holder in fake.memory.inspect(&name()).await.unwrap().holders {
        assert_eq!(
            fake.memory.force_release(&name(), holder.token.unwrap()).await.unwrap(),
            Released::Freed
        );
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_quorum_lock_is_alive_while_a_majority_confirms_it() {
    let fakes = fakes(5);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    for lost in &fakes[..2] {
        evict(lost).await;
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    }
    assert_eq!(shown(&fakes).await.iter().flatten().count(), 3, "C2: a renewal re-created it");
    evict(&fakes[4]).await;
    assert_eq!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    assert_eq!(shown(&fakes).await.iter().flatten().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn c10_a_renewal_without_enough_answers_has_an_unknown_outcome() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes[0].all(Fault::Hang);
    fakes[1].all(Fault::DOWN);
    let start = Instant::now();
    let error = claim.renew(None).await.unwrap_err();
    assert!(start.elapsed() < OP_TIMEOUT);
    assert!(
        error.to_string().starts_with("1 of 3 members renewed, 2 are needed: member 1 (fake): "),
        "{error}"
    );
    fakes[0].all(Fault::Pass);
    let asked = Clock::Tokio.now();
    let RenewalOutcome::Alive(Lease::Proven { at, .. }) = claim.renew(None).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(at, asked, "the second best of the three, of which one was not heard of since");
}

#[tokio::test(start_paused = true)]
async fn c10_a_late_grant_counts_once_its_token_is_raised() {
    let fakes = fakes(3);
    advance(&fakes[0], 100).await;
    fakes[2].always(Op::Attempt, Fault::SlowRequest(ms(200)));
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    tokio::time::sleep(ms(300)).await;
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(shown(&fakes).await[2].unwrap().1, token);
    evict(&fakes[0]).await;
    assert!(
        matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)),
        "the late one makes up for it"
    );
}

#[tokio::test(start_paused = true)]
async fn c10_a_late_grant_that_can_not_be_raised_does_not_count() {
    let fakes = fakes(3);
    advance(&fakes[0], 100).await;
    fakes[2].always(Op::Attempt, Fault::SlowRequest(ms(200)));
    fakes[2].always(Op::RaiseToken, Fault::DOWN);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    tokio::time::sleep(ms(300)).await;
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    evict(&fakes[0]).await;
    claim.renew(None).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn c10_a_lease_is_extended_by_a_majority() {
    let fakes = fakes(3);
    fakes[1].all(Fault::Pass);
    let quorum = quorum(&fakes);
    assert!(quorum.descriptor().capabilities.extend);
    let mut claim = quorum.claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes[0].all(Fault::Hang);
    let RenewalOutcome::Alive(Lease::Proven { lasts, .. }) =
        claim.renew(Some(TTL * 4)).await.unwrap()
    else {
        panic!("lost")
    };
    assert_eq!(lasts, TTL * 4);
}

#[tokio::test(start_paused = true)]
async fn c3_one_members_longer_lease_is_not_the_quorums() {
    let fakes = fakes(3);
    let spec = spec("x");
    let mut claim = quorum(&fakes).claim(spec.clone()).unwrap();
    grant(&mut *claim).await;
    fakes[1].memory.claim(spec).unwrap().renew(Some(TTL * 10)).await.unwrap();
    let RenewalOutcome::Alive(Lease::Proven { lasts, .. }) = claim.renew(None).await.unwrap()
    else {
        panic!("lost")
    };
    assert_eq!(lasts, TTL);
    let again = grant(&mut *claim).await.lease;
    assert!(matches!(again, Lease::Proven { lasts: TTL, .. }), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_is_freed_though_members_are_silent() {
    for (silent, held) in [(2, 5), (1, 3)] {
        let fakes = fakes(5);
        fakes[held..].iter().for_each(|fake| fake.all(Fault::DOWN));
        let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
        grant(&mut *claim).await;
        fakes[..silent].iter().for_each(|fake| fake.all(Fault::Hang));
        let start = Instant::now();
        assert_eq!(claim.release().await.unwrap(), Released::Freed, "{silent} silent of {held}");
        assert!(start.elapsed() <= OP_TIMEOUT / 8 + ms(1), "{:?}", start.elapsed());
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_without_a_majority_is_unknown_and_continues() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes[0].all(Fault::Hang);
    fakes[1].all(Fault::DOWN);
    let error = claim.release().await.unwrap_err();
    assert!(error.is_outcome_unknown() && error.is_temporary(), "{error:?}");
    fakes[1].all(Fault::Pass);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_eq!(fakes[2].count(Op::Release), 1, "what was answered is not asked again");
}

#[tokio::test(start_paused = true)]
async fn c7_a_silent_member_is_not_believed_beyond_its_lease() {
    let fakes = fakes(3);
    fakes[2].all(Fault::DOWN);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes[0].all(Fault::Hang);
    tokio::time::sleep(TTL).await;
    // One member was freed by its lease, and the state of the other is unknown: the lock was not
    // held for a while.
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn c7_if_all_members_are_needed_the_lock_is_free_when_all_confirm() {
    let fakes = fakes(2);
    let mut claim = of(&fakes, Need::All).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes[1].all(Fault::Hang);
    claim.release().await.unwrap_err();
    fakes[1].all(Fault::Pass);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_dropped_midway_continues() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes.iter().for_each(|fake| fake.always(Op::Release, Fault::SlowReply(ms(200))));
    tokio::time::timeout(ms(100), claim.release()).await.unwrap_err();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert!(fakes.iter().all(|fake| fake.count(Op::Release) == 1));
}

#[tokio::test(start_paused = true)]
async fn c5_after_a_loss_the_next_attempt_is_a_new_grant() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let first = grant(&mut *claim).await.token;
    for fake in &fakes[1..] {
        evict(fake).await;
    }
    let second = grant(&mut *claim).await;
    assert!(second.token > first);
    assert!(second.owner.is_some());
    assert!(matches!(claim.attempt(Wait::No).await, Ok(lockkit_core::spi::Attempt::Granted(_))));
}

/// The longest leases of a quorum may be those of members that forget them.
#[tokio::test(start_paused = true)]
async fn c2_a_renewal_extends_a_member_that_missed_an_extension() {
    let fakes = fakes(3);
    let locker = Locker::builder(Arc::new(quorum(&fakes))).clock(Clock::Tokio).build();
    let options =
        LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT).with_renewal(Renewal::Manual);
    let guard = locker.mutex("x").unwrap().with_options(options).unwrap().lock().await.unwrap();
    fakes[2].always(Op::Extend, Fault::DOWN);
    guard.extend(TTL * 20).await.unwrap();
    fakes[2].always(Op::Extend, Fault::Pass);
    tokio::time::sleep(ms(1)).await;
    evict(&fakes[0]).await;
    guard.renew().await.unwrap();
    assert!(guard.remaining() > TTL * 19, "{:?}", guard.remaining());
    drop(guard);
    locker.shutdown().await.unwrap();
}
