//! Members that answer after the win, lose their part of a grant, or do not answer an observer.

use std::{sync::Arc, time::Duration};

use lockkit_core::{
    Clock, FencingToken, LockOptions, Locker,
    fake::{Fake, Fault, Op},
    spi::{Backend as _, Claim, ClaimSpec, Released, RenewalOutcome},
};
use tokio::time::sleep;

use super::{
    grant::grant,
    members::{
        OP_TIMEOUT, TTL, advance, fakes, member, ms, name, quorum, shown, spec, without_leases,
    },
};

/// The lease of the one member that has leases.
const SHORT: Duration = ms(500);

fn short_spec() -> ClaimSpec {
    let mut spec = spec("x");
    spec.ttl = SHORT;
    spec
}

/// The first member has leases, the second and the third have none.
fn one_with_leases() -> [Fake; 3] {
    [member(), without_leases(member()), without_leases(member())]
}

/// Another client gets the lock without disturbance, and releases it.
async fn a_turn_of_another(fakes: &[Fake]) -> FencingToken {
    let others: Vec<_> = fakes.iter().map(Fake::another_way).collect();
    let mut other = quorum(&others).claim(short_spec()).unwrap();
    let token = grant(&mut *other).await.token;
    assert_eq!(other.release().await.unwrap(), Released::Freed);
    token
}

#[tokio::test(start_paused = true)]
async fn c4_the_token_rises_with_a_late_grant_after_the_end_of_a_lease() {
    let fakes = one_with_leases();
    advance(&fakes[0], 10).await;
    // The win waits for this raise. Meanwhile the lease of the first member ends, and another
    // client is granted.
    fakes[1].always(Op::RaiseToken, Fault::SlowRequest(ms(600)));
    fakes[2].always(Op::Attempt, Fault::SlowRequest(ms(700)));
    let mut claim = quorum(&fakes).claim(short_spec()).unwrap();
    let another = async {
        sleep(SHORT + ms(50)).await;
        a_turn_of_another(&fakes).await
    };
    let (first, second) = tokio::join!(another, grant(&mut *claim));
    assert!(second.token > first, "{} after {first}", second.token);
}

/// A claim that won with the first two members. The third member grants when the claim is next
/// polled.
async fn won_without_the_third(fakes: &[Fake]) -> (Box<dyn Claim>, FencingToken) {
    fakes[2].always(Op::Attempt, Fault::SlowRequest(SHORT + ms(200)));
    let mut claim = quorum(fakes).claim(short_spec()).unwrap();
    let token = grant(&mut *claim).await.token;
    (claim, token)
}

#[tokio::test(start_paused = true)]
async fn c4_a_repeated_attempt_after_the_lease_is_another_grant() {
    let fakes = one_with_leases();
    let (mut claim, token) = won_without_the_third(&fakes).await;
    sleep(SHORT + ms(50)).await;
    let second = a_turn_of_another(&fakes).await;
    assert!(second > token);
    sleep(ms(200)).await;
    let third = grant(&mut *claim).await.token;
    assert!(third > second, "{third} after {second}");
}

#[tokio::test(start_paused = true)]
async fn c10_a_late_grant_does_not_revive_a_hold_that_ended_meanwhile() {
    let fakes = one_with_leases();
    let (mut claim, _) = won_without_the_third(&fakes).await;
    sleep(SHORT + ms(50)).await;
    a_turn_of_another(&fakes).await;
    sleep(ms(200)).await;
    let outcome = claim.renew(None).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Lost(_)), "{outcome:?}");
}

/// The first two members win, with the token of the first. The third member then grants with a
/// smaller token, and the second does not answer observers.
async fn a_late_grant_and_a_silent_member() -> (Vec<Fake>, Box<dyn Claim>, FencingToken) {
    let fakes = fakes(3);
    advance(&fakes[0], 1_000).await;
    fakes[2].always(Op::Attempt, Fault::SlowReply(ms(100)));
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    assert!(shown(&fakes).await[2].unwrap().1 < token, "nothing was late");
    fakes[1].always(Op::Inspect, Fault::Hang);
    (fakes, claim, token)
}

#[tokio::test(start_paused = true)]
async fn c14_no_token_is_shown_that_may_not_be_the_grants() {
    let (fakes, mut claim, token) = a_late_grant_and_a_silent_member().await;
    let quorum = quorum(&fakes);
    let error = quorum.inspect(&name()).await.unwrap_err();
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("member 2 (fake): no answer in time"), "{text}");
    assert!(text.contains(&format!("member 1 (fake) shows token {token}")), "{text}");
    // The next two renewals learn of the late grant, and raise it.
    claim.renew(None).await.unwrap();
    sleep(ms(200)).await;
    claim.renew(None).await.unwrap();
    assert_eq!(quorum.inspect(&name()).await.unwrap().holders[0].token, Some(token));
}

#[tokio::test(start_paused = true)]
async fn c14_force_release_of_a_held_lock_never_answers_not_held() {
    let (fakes, mut claim, token) = a_late_grant_and_a_silent_member().await;
    let quorum = quorum(&fakes);
    let error = quorum.force_release(&name(), token).await.unwrap_err();
    assert!(!error.is_outcome_unknown(), "nothing was sent: {error:?}");
    fakes[1].always(Op::Inspect, Fault::Pass);
    assert_eq!(quorum.force_release(&name(), token).await.unwrap(), Released::Freed);
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
}

/// Two members show the lock, and one of them does not answer. The third was down at the grant, and
/// has no part of it.
#[tokio::test(start_paused = true)]
async fn c14_a_held_lock_is_not_reported_free_while_a_member_is_silent() {
    let fakes = fakes(3);
    fakes[2].all(Fault::DOWN);
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    fakes[2].all(Fault::Pass);
    for act in [Fault::Hang, Fault::DOWN] {
        fakes[1].always(Op::Inspect, act);
        quorum.inspect(&name()).await.unwrap_err();
        quorum.force_release(&name(), token).await.unwrap_err();
    }
    fakes[1].always(Op::Inspect, Fault::Pass);
    assert_eq!(quorum.inspect(&name()).await.unwrap().holders[0].token, Some(token));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    fakes[1].always(Op::Inspect, Fault::Hang);
    assert!(quorum.inspect(&name()).await.unwrap().holders.is_empty());
}

/// All three have granted, and the raise of two of them is under way.
#[tokio::test(start_paused = true)]
async fn c14_a_ballot_that_is_not_won_yet_is_shown_with_no_smaller_token() {
    let fakes = fakes(3);
    for (place, ahead) in [(0, 30), (1, 10), (2, 20)] {
        advance(&fakes[place], ahead).await;
        fakes[place].always(Op::RaiseToken, Fault::SlowRequest(ms(30)));
    }
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let look = async {
        sleep(ms(10)).await;
        quorum.inspect(&name()).await
    };
    let (grant, seen) = tokio::join!(grant(&mut *claim), look);
    for holder in seen.unwrap().holders {
        assert_eq!(holder.token, Some(grant.token));
    }
}

/// The last member grants after the win, with a smaller token. The renewal raises it before the
/// request to free it comes.
#[tokio::test(start_paused = true)]
async fn c14_force_release_frees_a_member_that_is_raised_to_the_named_token_meanwhile() {
    let fakes = fakes(3);
    advance(&fakes[0], 10).await;
    advance(&fakes[1], 10).await;
    fakes[2].always(Op::Attempt, Fault::SlowReply(ms(30)));
    fakes.iter().for_each(|fake| fake.always(Op::ForceRelease, Fault::SlowRequest(ms(50))));
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    sleep(ms(100)).await;
    assert!(shown(&fakes).await[2].unwrap().1 < token, "the last member has the token already");
    let renewal = async {
        sleep(ms(10)).await;
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    };
    let name = name();
    let (freed, ()) = tokio::join!(quorum.force_release(&name, token), renewal);
    assert_eq!(freed.unwrap(), Released::Freed);
    assert_eq!(shown(&fakes).await, [None; 3]);
}

/// Frees a ballot by force before it is won. Fails unless the operator learns that this is
/// uncertain, and the holder keeps its grant.
async fn assert_goes_on(fakes: &[Fake]) {
    let quorum = quorum(fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let free = async {
        sleep(ms(10)).await;
        let smaller = quorum.inspect(&name()).await.unwrap().holders[0].token.unwrap();
        (smaller, quorum.force_release(&name(), smaller).await)
    };
    let (grant, (smaller, freed)) = tokio::join!(grant(&mut *claim), free);
    assert!(smaller < grant.token, "the token was not raised");
    let error = freed.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
}

/// The members have granted, and the ballot raises their tokens before the requests to free them
/// come.
#[tokio::test(start_paused = true)]
async fn c14_force_release_by_a_token_that_is_raised_meanwhile_is_not_freed() {
    let fakes = fakes(5);
    advance(&fakes[4], 10).await;
    for fake in &fakes {
        fake.always(Op::Attempt, Fault::SlowReply(ms(30)));
        fake.always(Op::ForceRelease, Fault::SlowRequest(ms(100)));
    }
    assert_goes_on(&fakes).await;
}

/// One member is freed, one is raised before, and one grants only after the look.
#[tokio::test(start_paused = true)]
async fn c14_force_release_of_a_ballot_that_goes_on_with_another_member_is_not_freed() {
    let fakes = fakes(3);
    advance(&fakes[2], 10).await;
    fakes[0].always(Op::Attempt, Fault::SlowReply(ms(30)));
    fakes[1].always(Op::Attempt, Fault::SlowReply(ms(30)));
    fakes[1].always(Op::RaiseToken, Fault::SlowRequest(ms(100)));
    fakes[2].always(Op::Attempt, Fault::SlowRequest(ms(20)));
    fakes.iter().for_each(|fake| fake.always(Op::ForceRelease, Fault::SlowRequest(ms(40))));
    assert_goes_on(&fakes).await;
}

#[tokio::test(start_paused = true)]
async fn c14_one_leadership_has_one_term_whichever_member_is_silent() {
    let fakes = fakes(3);
    advance(&fakes[0], 1_000).await;
    fakes[2].always(Op::Attempt, Fault::SlowReply(ms(100)));
    let locker = || Locker::builder(Arc::new(quorum(&fakes))).clock(Clock::Tokio).build();
    let candidate = locker();
    let observer = locker();
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    let election = candidate.election("x").unwrap().with_options(options.clone()).unwrap();
    let leadership = election.campaign("a").await.unwrap();
    let mut watch = observer.election("x").unwrap().with_options(options).unwrap().watch();
    for round in 0..200_usize {
        fakes.iter().for_each(|fake| fake.always(Op::Inspect, Fault::Pass));
        fakes[(round + 1) % 3].always(Op::Inspect, Fault::Hang);
        let Ok(news) = tokio::time::timeout(ms(200), watch.changed()).await else { continue };
        let leader = news.unwrap().expect("it leads");
        assert_eq!(leader.term, leadership.term());
    }
    assert!(watch.current().is_some());
    fakes.iter().for_each(|fake| fake.always(Op::Inspect, Fault::Pass));
    leadership.resign().await.unwrap();
    drop(watch);
    for locker in [candidate, observer] {
        locker.shutdown().await.unwrap();
    }
}
