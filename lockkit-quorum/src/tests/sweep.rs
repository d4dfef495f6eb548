//! No part stays at a member that answers late, or answers again.

use std::sync::Arc;

use lockkit_core::{
    Clock, LockOptions, Locker,
    fake::{Fake, Fault, Op},
    spi::{Attempt, Backend as _, Released, Wait},
};
use tokio::{runtime::Handle, time::Instant};

use super::{
    grant::grant,
    members::{OP_TIMEOUT, TTL, fakes, ms, occupy, quorum, shown, spec},
};

async fn eventually_free(fakes: &[Fake]) {
    let start = Instant::now();
    while shown(fakes).await.iter().any(Option::is_some) {
        assert!(start.elapsed() < TTL / 3, "left at {:?}", shown(fakes).await);
        tokio::time::sleep(ms(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_lost_ballot_is_undone() {
    for act in [Fault::HangAfter, Fault::SlowRequest(ms(700)), Fault::SlowReply(ms(700))] {
        let fakes = fakes(3);
        let others = [occupy(&fakes[0]).await, occupy(&fakes[1]).await];
        fakes[2].always(Op::Attempt, act);
        let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
        assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Busy { .. }));
        drop(claim);
        tokio::time::sleep(OP_TIMEOUT).await;
        eventually_free(&fakes[2..]).await;
        drop(others);
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_late_grant_of_a_released_lock_is_undone() {
    let fakes = fakes(3);
    fakes[2].always(Op::Attempt, Fault::SlowRequest(ms(500)));
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    tokio::time::sleep(ms(600)).await;
    eventually_free(&fakes).await;
}

#[tokio::test(start_paused = true)]
async fn c2_an_old_ballots_late_release_frees_no_newer_grant() {
    let fakes = fakes(3);
    let mut other = occupy(&fakes[0]).await;
    let mut another = occupy(&fakes[1]).await;
    fakes[2].always(Op::Release, Fault::SlowRequest(ms(900)));
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Busy { .. }));
    assert_eq!(other.release().await.unwrap(), Released::Freed);
    assert_eq!(another.release().await.unwrap(), Released::Freed);
    // The member still has the old ballot, whose release is under way.
    let owner = grant(&mut *claim).await.owner.unwrap();
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(shown(&fakes[..2]).await.iter().flatten().filter(|(by, _)| *by == owner).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn c6_a_claim_that_is_dropped_leaves_nothing() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    drop(claim);
    eventually_free(&fakes).await;
}

#[tokio::test(start_paused = true)]
async fn c6_the_task_ends_when_nothing_is_left() {
    let fakes = fakes(3);
    fakes[2].all(Fault::Hang);
    let quorum = quorum(&fakes);
    for _ in 0..40 {
        let mut claim = quorum.claim(spec("x")).unwrap();
        grant(&mut *claim).await;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 1, "one task for all of it");
    fakes[2].all(Fault::Pass);
    tokio::time::sleep(TTL).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(shown(&fakes).await, [None; 3]);
}

#[tokio::test(start_paused = true)]
async fn c6_a_lock_on_a_dead_member_is_left_to_its_lease() {
    let fakes = fakes(3);
    fakes[2].all(Fault::Hang);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    tokio::time::sleep(TTL + OP_TIMEOUT * 3).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn c7_a_close_waits_for_the_sweep_but_not_for_the_dead() {
    let fakes = fakes(3);
    fakes[1].always(Op::Attempt, Fault::SlowRequest(ms(300)));
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    fakes[2].always(Op::Release, Fault::Hang);
    grant(&mut *claim).await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    drop(claim);
    let start = Instant::now();
    quorum.close().await.unwrap();
    assert!(start.elapsed() <= OP_TIMEOUT + ms(5), "{:?}", start.elapsed());
    assert_eq!(shown(&fakes[..2]).await, [None; 2]);
    tokio::task::yield_now().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

/// Claims of one quorum differ in how long their requests may take.
#[tokio::test(start_paused = true)]
async fn c6_a_close_waits_for_the_claim_with_the_longest_requests() {
    let fakes = fakes(3);
    fakes[2].always(Op::Attempt, Fault::SlowReply(ms(300)));
    let quorum = quorum(&fakes);
    for (name, op_timeout) in [("x", OP_TIMEOUT), ("y", ms(20))] {
        let mut spec = spec(name);
        spec.op_timeout = op_timeout;
        let mut claim = quorum.claim(spec).unwrap();
        grant(&mut *claim).await;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    quorum.close().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(shown(&fakes).await, [None; 3]);
}

#[test]
fn c6_the_sweep_outlives_its_runtime() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let fakes = fakes(3);
    fakes[2].always(Op::Release, Fault::Hang);
    let quorum = quorum(&fakes);
    runtime().block_on(async {
        let mut claim = quorum.claim(spec("x")).unwrap();
        grant(&mut *claim).await;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    });
    fakes[2].all(Fault::Pass);
    runtime().block_on(async {
        assert!(shown(&fakes).await[2].is_some());
        quorum.close().await.unwrap();
        assert_eq!(shown(&fakes).await, [None; 3]);
    });
}

#[tokio::test(start_paused = true)]
async fn c14_a_guard_reports_the_owner_that_the_members_know() {
    let fakes = fakes(3);
    let locker = Locker::builder(Arc::new(quorum(&fakes))).clock(Clock::Tokio).build();
    let mut others = [occupy(&fakes[0]).await, occupy(&fakes[1]).await];
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    let mutex = locker.mutex("x").unwrap().with_options(options).unwrap();
    let (guard, ()) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(ms(400)).await;
        for other in &mut others {
            assert_eq!(other.release().await.unwrap(), Released::Freed);
        }
    });
    let guard = guard.unwrap();
    let seen = mutex.inspect().await.unwrap();
    assert_eq!(seen.holders[0].owner, Some(guard.owner()));
    assert_eq!(seen.holders[0].token, Some(guard.fencing_token()));
    guard.release().await.unwrap();
}

/// The lease was extended: more than a ttl of it is left.
#[tokio::test(start_paused = true)]
async fn c6_an_undo_is_retried_until_an_extended_lease_ends() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    claim.renew(Some(TTL * 20)).await.unwrap();
    tokio::time::sleep(ms(100)).await;
    fakes[2].all(Fault::Hang);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    drop(claim);
    tokio::time::sleep(TTL * 2).await;
    assert!(shown(&fakes).await[2].is_some());
    fakes[2].all(Fault::Pass);
    eventually_free(&fakes).await;
}
