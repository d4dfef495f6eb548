//! Inspection, an operator's release, names and health.

use std::sync::Arc;

use lockkit_core::{
    Clock, ErrorKind, FencingToken, Kind, Locker,
    fake::{Fault, Op},
    spi::{Admin as _, Backend as _, Released, RenewalOutcome, Role, Wait},
};
use tokio::time::Instant;

use super::{
    grant::grant,
    members::{TTL, advance, fakes, ms, name, occupy, of, quorum, shown, spec},
};
use crate::Need;

#[tokio::test(start_paused = true)]
async fn c14_a_holder_is_shown_by_a_majority_with_the_grants_token() {
    let fakes = fakes(5);
    advance(&fakes[3], 1_000).await;
    advance(&fakes[4], 2_000).await;
    // These members grant after the token is settled, with larger tokens.
    fakes[3].always(Op::Attempt, Fault::SlowRequest(ms(100)));
    fakes[4].always(Op::Attempt, Fault::SlowRequest(ms(100)));
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    tokio::time::sleep(ms(1_000)).await;
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert!(shown(&fakes).await[4].unwrap().1 > token, "nothing was late");
    for hidden in [&[3, 4][..], &[3], &[], &[0], &[0, 4], &[0, 1], &[1, 2]] {
        fakes.iter().for_each(|fake| fake.always(Op::Inspect, Fault::Pass));
        hidden.iter().for_each(|place| fakes[*place].always(Op::Inspect, Fault::Hang));
        let seen = quorum.inspect(&name()).await;
        // As far as the other members show, the larger tokens may be the grant's.
        if hidden.iter().any(|place| *place < 3) {
            assert_eq!(seen.unwrap_err().kind(), ErrorKind::Unavailable, "without {hidden:?}");
            continue;
        }
        let seen = seen.unwrap();
        assert_eq!((seen.holders.len(), seen.waiters), (1, None));
        assert_eq!(seen.holders[0].token, Some(token), "without {hidden:?}");
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test(start_paused = true)]
async fn c14_a_holder_on_a_minority_is_not_shown() {
    let fakes = fakes(3);
    let _other = occupy(&fakes[0]).await;
    assert!(quorum(&fakes).inspect(&name()).await.unwrap().holders.is_empty());
    assert!(of(&fakes, Need::All).inspect(&name()).await.unwrap().holders.is_empty());
    fakes[0].all(Fault::DOWN);
    assert!(quorum(&fakes).inspect(&name()).await.unwrap().holders.is_empty());
    fakes[0].all(Fault::Pass);
    fakes[1].all(Fault::DOWN);
    fakes[2].all(Fault::DOWN);
    let error = quorum(&fakes).inspect(&name()).await.unwrap_err();
    assert!(
        error.to_string().contains("1 of 3 members answered, 2 are needed: member 2 (fake): "),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn c14_the_remaining_lease_is_that_of_the_quorum() {
    let fakes = fakes(3);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    tokio::time::advance(ms(10_000)).await;
    fakes[0].always(Op::KeepAlive, Fault::Hang);
    fakes[1].always(Op::KeepAlive, Fault::Hang);
    claim.renew(None).await.unwrap_err();
    let remaining = quorum(&fakes).inspect(&name()).await.unwrap().holders[0].remaining.unwrap();
    assert!(remaining <= TTL - ms(10_000), "{remaining:?} of one member");
}

#[tokio::test(start_paused = true)]
async fn c14_force_release_frees_a_majority_by_the_members_own_tokens() {
    let fakes = fakes(5);
    advance(&fakes[0], 1_000).await;
    fakes[0].always(Op::Attempt, Fault::SlowRequest(ms(100)));
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    tokio::time::sleep(ms(200)).await;
    claim.renew(None).await.unwrap();
    tokio::time::sleep(ms(200)).await;
    claim.renew(None).await.unwrap();
    for wrong in [
        FencingToken::new(0),
        FencingToken::new(token.get() + 1),
        shown(&fakes).await[0].unwrap().1,
    ] {
        assert_eq!(quorum.force_release(&name(), wrong).await.unwrap(), Released::NotHeld);
    }
    fakes[4].all(Fault::Hang);
    assert_eq!(quorum.force_release(&name(), token).await.unwrap(), Released::Freed);
    assert_eq!(shown(&fakes[..4]).await, [None; 4]);
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn c14_force_release_that_frees_too_few_is_unknown() {
    let fakes = fakes(3);
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    fakes[0].always(Op::ForceRelease, Fault::DOWN);
    fakes[1].always(Op::ForceRelease, Fault::DOWN);
    assert!(quorum.force_release(&name(), token).await.unwrap_err().is_outcome_unknown());
    let all = of(&fakes, Need::All);
    let mut other = all.claim(spec("y")).unwrap();
    other.attempt(Wait::No).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c14_health_and_names_need_no_dead_member() {
    let fakes = fakes(3);
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    fakes[0].all(Fault::Hang);
    let start = Instant::now();
    assert_eq!(quorum.probe().await.unwrap(), Role::Member);
    assert_eq!(start.elapsed(), ms(0));
    assert_eq!(quorum.names(Kind::Mutex, "").await.unwrap(), [name()]);
    assert!(start.elapsed() < ms(250), "{:?}", start.elapsed());
    fakes[1].all(Fault::DOWN);
    fakes[0].all(Fault::DOWN);
    quorum.probe().await.unwrap_err();
    quorum.names(Kind::Mutex, "").await.unwrap_err();
    assert!(quorum.close().await.unwrap_err().to_string().contains("member 2 (fake): as ordered"));
}

#[tokio::test(start_paused = true)]
async fn c13_names_of_silent_members_are_not_waited_for_for_ever() {
    let fakes = fakes(3);
    let locker = Locker::builder(Arc::new(quorum(&fakes))).clock(Clock::Tokio).build();
    fakes[0].all(Fault::Hang);
    fakes[1].all(Fault::Hang);
    let names = tokio::time::timeout(ms(60_000), locker.names("")).await.expect("it hangs");
    assert_eq!(names.unwrap_err().kind(), ErrorKind::Unavailable);
}
