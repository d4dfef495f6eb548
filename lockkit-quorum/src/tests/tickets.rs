//! A quorum's grant that another claim resumes: each member moves its part.

use lockkit_core::{
    FencingToken, OwnerId,
    fake::{Fake, Fault, Op},
    spi::{Attempt, Backend as _, Claim, ClaimSpec, GrantId, Released, RenewalOutcome, Wait},
};
use tokio::time::sleep;

use super::{
    grant::grant,
    members::{OP_TIMEOUT, TTL, advance, fakes, ms, of, quorum, shown, spec},
};
use crate::{Need, Quorum};

/// The spec of a claim that resumes a grant.
fn heir_spec(owner: OwnerId, token: FencingToken) -> ClaimSpec {
    let mut spec = spec("x");
    spec.resumes = Some(Box::new(GrantId { owner, token }));
    spec
}

/// A grant that its claim has left in the store.
async fn left(quorum: &Quorum) -> (OwnerId, FencingToken) {
    let spec = spec("x");
    let owner = spec.owner;
    let mut claim = quorum.claim(spec).unwrap();
    let token = grant(&mut *claim).await.token;
    claim.leave_grant();
    drop(claim);
    (owner, token)
}

async fn owners(fakes: &[Fake]) -> Vec<Option<OwnerId>> {
    shown(fakes).await.into_iter().map(|part| part.map(|(owner, _)| owner)).collect()
}

async fn busy(claim: &mut dyn Claim) {
    let answer = claim.attempt(Wait::No).await.unwrap();
    assert!(matches!(answer, Attempt::Busy { .. }), "{answer:?}");
}

/// Fails if the drop of the former claim takes its parts back.
#[tokio::test(start_paused = true)]
async fn c2_each_member_moves_its_part_and_the_token_stays() {
    for need in [Need::Majority, Need::All] {
        let fakes = fakes(3);
        let quorum = of(&fakes, need);
        let (owner, token) = left(&quorum).await;
        sleep(OP_TIMEOUT * 2).await;
        assert_eq!(owners(&fakes).await, [Some(owner); 3], "{need:?}");
        let spec = heir_spec(owner, token);
        let heir = spec.owner;
        let mut claim = quorum.claim(spec).unwrap();
        assert_eq!(grant(&mut *claim).await.token, token, "{need:?}");
        // The last answer may come after the win.
        let alive = claim.renew(None).await.unwrap();
        assert!(matches!(alive, RenewalOutcome::Alive(_)), "{alive:?}");
        sleep(ms(50)).await;
        assert_eq!(owners(&fakes).await, [Some(heir); 3], "{need:?}");
        assert_eq!(grant(&mut *claim).await.token, token, "C5: a repeated attempt");
        let mut again = quorum.claim(heir_spec(owner, token)).unwrap();
        busy(&mut *again).await;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        busy(&mut *again).await;
    }
}

/// The third member grants after the win, with a larger token. Fails if it drops out of the grant,
/// or if its token becomes that of the grant.
#[tokio::test(start_paused = true)]
async fn c4_a_late_member_with_a_larger_token_takes_part() {
    let fakes = fakes(3);
    advance(&fakes[2], 50).await;
    fakes[2].once(Op::Attempt, [Fault::SlowReply(ms(300))]);
    let quorum = quorum(&fakes);
    let spec = spec("x");
    let owner = spec.owner;
    let mut former = quorum.claim(spec).unwrap();
    let token = grant(&mut *former).await.token;
    sleep(ms(500)).await;
    former.renew(None).await.unwrap();
    former.renew(None).await.unwrap();
    former.leave_grant();
    drop(former);
    let parts = shown(&fakes).await;
    assert!(parts[2].is_some_and(|(_, larger)| larger > token), "{parts:?}");
    // The grant needs the late member.
    fakes[0].all(Fault::DOWN);
    let mut heir = quorum.claim(heir_spec(owner, token)).unwrap();
    assert_eq!(grant(&mut *heir).await.token, token);
    fakes[0].heal();
    assert_eq!(heir.release().await.unwrap(), Released::Freed);
}

/// Fails if an attempt without enough answers gives back its parts, because no other attempt can
/// get them again.
#[tokio::test(start_paused = true)]
async fn c5_a_failed_attempt_keeps_its_parts_for_the_next_one() {
    let fakes = fakes(3);
    let quorum = quorum(&fakes);
    let (owner, token) = left(&quorum).await;
    let spec = heir_spec(owner, token);
    let heir = spec.owner;
    let mut claim = quorum.claim(spec).unwrap();
    for fault in [Fault::DOWN, Fault::LoseReply] {
        fakes[1].once(Op::Attempt, [fault]);
        fakes[2].once(Op::Attempt, [fault]);
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert!(error.is_outcome_unknown() && error.is_temporary(), "{error:?}");
        assert_eq!(owners(&fakes).await[0], Some(heir), "{fault:?}");
    }
    assert_eq!(grant(&mut *claim).await.token, token);
    assert_eq!(owners(&fakes).await, [Some(heir); 3]);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// A member that is down may have the grant, so one refusal of three is no answer.
#[tokio::test(start_paused = true)]
async fn c5_a_grant_is_gone_only_if_the_silent_members_could_not_have_it() {
    let fakes = fakes(3);
    let quorum = quorum(&fakes);
    let (owner, token) = left(&quorum).await;
    let mut part = fakes[0].memory.claim(heir_spec(owner, token)).unwrap();
    assert!(matches!(part.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    fakes[1].once(Op::Attempt, [Fault::DOWN]);
    let mut heir = quorum.claim(heir_spec(owner, token)).unwrap();
    heir.attempt(Wait::No).await.unwrap_err();
    assert_eq!(grant(&mut *heir).await.token, token);
    let mut late = quorum.claim(heir_spec(owner, token)).unwrap();
    fakes[1].all(Fault::DOWN);
    busy(&mut *late).await;
    fakes[1].heal();
    assert_eq!(heir.release().await.unwrap(), Released::Freed);
    assert_eq!(part.release().await.unwrap(), Released::Freed);
}

#[tokio::test(start_paused = true)]
async fn c6_a_resume_that_gives_up_frees_its_parts() {
    let fakes = fakes(3);
    let quorum = quorum(&fakes);
    let (owner, token) = left(&quorum).await;
    fakes[1].always(Op::Attempt, Fault::DOWN);
    fakes[2].always(Op::Attempt, Fault::LoseReply);
    let mut claim = quorum.claim(heir_spec(owner, token)).unwrap();
    claim.attempt(Wait::No).await.unwrap_err();
    let _ = claim.release().await;
    drop(claim);
    sleep(OP_TIMEOUT * 2).await;
    assert_eq!(owners(&fakes).await, [None, Some(owner), None], "only what it had asked for");
    sleep(TTL).await;
    assert_eq!(owners(&fakes).await, [None; 3], "the lease of the ticket has ended");
}

/// A member whose token was not raised is no part of the grant, so no heir can take its part. Fails
/// if that part stays until its lease ends.
#[tokio::test(start_paused = true)]
async fn c7_a_part_that_was_not_raised_is_taken_back_and_not_left() {
    for fault in [Fault::DOWN, Fault::Hang] {
        let fakes = fakes(3);
        advance(&fakes[0], 50).await;
        advance(&fakes[1], 50).await;
        fakes[2].once(Op::RaiseToken, [fault]);
        let quorum = quorum(&fakes);
        let (owner, token) = left(&quorum).await;
        sleep(OP_TIMEOUT * 2).await;
        assert_eq!(owners(&fakes).await, [Some(owner), Some(owner), None], "{fault:?}");
        let mut heir = quorum.claim(heir_spec(owner, token)).unwrap();
        assert_eq!(grant(&mut *heir).await.token, token);
        assert_eq!(heir.release().await.unwrap(), Released::Freed);
        sleep(OP_TIMEOUT * 2).await;
        assert_eq!(owners(&fakes).await, [None; 3], "{fault:?}");
    }
}
