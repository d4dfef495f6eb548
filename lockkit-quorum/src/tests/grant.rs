//! Ballots: when they grant, with which token, and how soon.

use lockkit_core::{
    Clock, ErrorKind, FencingToken,
    fake::{Fake, Fault, Op},
    spi::{Attempt, Backend as _, Claim, Grant, Lease, Released, RenewalOutcome, Wait},
};
use tokio::time::Instant;

use super::members::{
    OP_TIMEOUT, TTL, advance, fakes, member, ms, occupy, of, quorum, shown, spec, without_raise,
};
use crate::Need;

pub(super) async fn grant(claim: &mut dyn Claim) -> Grant {
    match claim.attempt(Wait::No).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

async fn held_by(fakes: &[Fake]) -> usize {
    shown(fakes).await.iter().flatten().count()
}

#[tokio::test(start_paused = true)]
async fn c4_a_majority_has_the_largest_token_before_the_grant_is_returned() {
    let fakes = fakes(5);
    advance(&fakes[3], 50).await;
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    let shown = shown(&fakes).await;
    assert!(
        shown.iter().flatten().filter(|(_, shown)| *shown == token).count() >= 3,
        "{token}: {shown:?}"
    );
    assert_eq!(shown[3].unwrap().1, token);
}

#[tokio::test(start_paused = true)]
async fn c4_tokens_rise_though_the_members_of_each_grant_differ() {
    let fakes = fakes(3);
    // The first two members are far ahead of the third. Then each member is down in turn.
    advance(&fakes[0], 1_000).await;
    advance(&fakes[1], 2_000).await;
    let quorum = quorum(&fakes);
    let mut last = FencingToken::new(0);
    for down in (0..30).map(|round| [2, 1, 0, 2, 0, 1][round % 6]) {
        fakes.iter().for_each(|fake| fake.all(Fault::Pass));
        fakes[down].all(Fault::DOWN);
        let mut claim = quorum.claim(spec("x")).unwrap();
        let token = grant(&mut *claim).await.token;
        assert!(token > last, "{token} after {last}, without member {down}");
        last = token;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test(start_paused = true)]
async fn c4_a_member_that_was_not_raised_does_not_count() {
    let fakes = fakes(3);
    advance(&fakes[0], 9).await;
    fakes[1].always(Op::RaiseToken, Fault::DOWN);
    fakes[2].always(Op::RaiseToken, Fault::Hang);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("as ordered"), "{error}");
    tokio::time::sleep(OP_TIMEOUT).await;
    assert_eq!(held_by(&fakes).await, 0);
}

#[tokio::test(start_paused = true)]
async fn c4_a_member_that_lost_the_lock_before_the_raise_does_not_count() {
    let fakes = fakes(3);
    advance(&fakes[0], 9).await;
    for fake in &fakes[1..] {
        fake.always(Op::RaiseToken, Fault::SlowRequest(ms(100)));
    }
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let (error, ()) = tokio::join!(claim.attempt(Wait::No), async {
        tokio::time::sleep(ms(50)).await;
        for fake in &fakes[1..] {
            let holder =
                fake.memory.inspect(&super::members::name()).await.unwrap().holders.remove(0);
            assert_eq!(
                fake.memory
                    .force_release(&super::members::name(), holder.token.unwrap())
                    .await
                    .unwrap(),
                Released::Freed
            );
        }
    });
    error.unwrap_err();
    assert_eq!(held_by(&fakes).await, 0);
}

#[tokio::test(start_paused = true)]
async fn c5_a_repeated_attempt_is_the_same_grant() {
    let fakes = fakes(5);
    // The last member joins later, with a larger token.
    advance(&fakes[4], 10).await;
    fakes[4].always(Op::Attempt, Fault::SlowRequest(ms(100)));
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let first = grant(&mut *claim).await;
    tokio::time::sleep(TTL / 2).await;
    let again = grant(&mut *claim).await;
    assert_eq!(first.token, again.token);
    assert!(shown(&fakes).await[4].unwrap().1 > first.token, "the last member has not joined");
    let (Lease::Proven { at: before, .. }, Lease::Proven { at: after, .. }) =
        (first.lease, again.lease)
    else {
        panic!("{first:?}, {again:?}")
    };
    assert_eq!(before.until(after), TTL / 2);
}

#[tokio::test(start_paused = true)]
async fn c5_an_attempt_that_was_dropped_midway_is_continued() {
    let fakes = fakes(3);
    fakes.iter().for_each(|fake| fake.always(Op::Attempt, Fault::SlowReply(ms(500))));
    let spec = spec("x");
    let owner = spec.owner;
    let mut claim = quorum(&fakes).claim(spec).unwrap();
    tokio::time::timeout(ms(100), claim.attempt(Wait::No)).await.unwrap_err();
    let start = Instant::now();
    let grant = grant(&mut *claim).await;
    assert!(start.elapsed() <= ms(401), "{:?}", start.elapsed());
    assert!(shown(&fakes).await.iter().flatten().all(|(by, _)| *by == owner));
    assert!(fakes.iter().all(|fake| fake.count(Op::Attempt) == 1));
    // The lease counts from the request, not from the answer.
    let Lease::Proven { at, lasts } = grant.lease else { panic!("{grant:?}") };
    assert_eq!((at.until(Clock::Tokio.now()), lasts), (ms(500), TTL));
}

#[tokio::test(start_paused = true)]
async fn c2_each_ballot_has_an_owner_of_its_own() {
    let fakes = fakes(3);
    let others = [occupy(&fakes[0]).await, occupy(&fakes[1]).await];
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    for _ in 0..3 {
        assert!(matches!(
            claim.attempt(Wait::No).await.unwrap(),
            Attempt::Busy { queued: false, .. }
        ));
    }
    for mut other in others {
        assert_eq!(other.release().await.unwrap(), Released::Freed);
    }
    let granted_to = grant(&mut *claim).await.owner;
    let mut owners = fakes[2].owners(Op::Attempt);
    assert_eq!(granted_to, owners.last().copied());
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn c8_dead_members_are_not_waited_for() {
    for dead in [Fault::Hang, Fault::HangAfter, Fault::DOWN] {
        let fakes = fakes(5);
        fakes[1].all(dead);
        fakes[4].all(dead);
        let quorum = quorum(&fakes);
        let start = Instant::now();
        let mut claim = quorum.claim(spec("x")).unwrap();
        grant(&mut *claim).await;
        let mut other = quorum.claim(spec("x")).unwrap();
        assert!(matches!(other.attempt(Wait::No).await.unwrap(), Attempt::Busy { .. }), "{dead:?}");
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert!(start.elapsed() <= ms(11), "{dead:?}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_split_vote_is_busy_soon_though_members_are_silent() {
    let fakes = fakes(5);
    fakes[3].all(Fault::Hang);
    fakes[4].all(Fault::Hang);
    let other = occupy(&fakes[0]).await;
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let start = Instant::now();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Busy { queued: false, .. }));
    assert!(start.elapsed() <= ms(11), "{:?}", start.elapsed());
    assert_eq!(held_by(&fakes[1..]).await, 0, "kept while another one competes");
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn c8_a_lost_vote_is_busy_or_an_error_by_the_members_that_answer_late() {
    for (late, contended) in [(Fault::SlowReply(ms(3)), true), (Fault::Hang, false)] {
        let fakes = fakes(5);
        fakes[..2].iter().for_each(|fake| fake.all(Fault::DOWN));
        fakes[3..].iter().for_each(|fake| fake.always(Op::Attempt, late));
        let _other = occupy(&fakes[2]).await;
        let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
        let start = Instant::now();
        let answer = claim.attempt(Wait::No).await;
        assert!(start.elapsed() <= ms(11), "{:?}", start.elapsed());
        assert_eq!(matches!(answer, Ok(Attempt::Busy { .. })), contended, "{late:?}: {answer:?}");
        assert_eq!(answer.is_err(), !contended);
    }
}

#[tokio::test(start_paused = true)]
async fn c13_without_a_majority_it_is_an_error_that_names_the_members() {
    let fakes = fakes(5);
    fakes[0].all(Fault::DOWN);
    fakes[1].all(Fault::Hang);
    fakes[3].all(Fault::HangAfter);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let start = Instant::now();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert!(
        start.elapsed() < OP_TIMEOUT,
        "the core would have given up on it: {:?}",
        start.elapsed()
    );
    assert_eq!(
        error.to_string(),
        "2 of 5 members granted, 3 are needed: member 1 (fake): as ordered; member 2 (fake): the store did not \
         answer within 1s; is the store running and reachable?; member 4 (fake): the store did not answer within 1s; \
         is the store running and reachable?"
    );
    assert!(error.is_temporary() && !error.is_outcome_unknown());
    assert_eq!(held_by(&[fakes[2].clone(), fakes[4].clone()]).await, 0);
}

#[tokio::test(start_paused = true)]
async fn c5_an_error_is_unknown_if_a_quorum_may_be_left() {
    let fakes = fakes(3);
    for fake in &fakes[1..] {
        fake.always(Op::Attempt, Fault::HangAfter);
        fake.always(Op::Release, Fault::Hang);
    }
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c13_a_permanent_error_is_one_if_the_others_are_not_enough() {
    let fakes = fakes(3);
    fakes[0].all(Fault::Fail(ErrorKind::PermissionDenied));
    let quorum = quorum(&fakes);
    let mut claim = quorum.claim(spec("x")).unwrap();
    grant(&mut *claim).await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    fakes[1].all(Fault::Fail(ErrorKind::PermissionDenied));
    let error = quorum.claim(spec("x")).unwrap().attempt(Wait::No).await.unwrap_err();
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::PermissionDenied, false));
}

#[tokio::test(start_paused = true)]
async fn c8_busy_reports_when_enough_members_will_be_free() {
    let fakes = fakes(3);
    let _first = occupy(&fakes[0]).await;
    tokio::time::advance(ms(5_000)).await;
    let _second = occupy(&fakes[1]).await;
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let Attempt::Busy { retry_after: Some(after), .. } = claim.attempt(Wait::No).await.unwrap()
    else {
        panic!("it is not known")
    };
    assert_eq!(after, TTL - ms(5_000));
}

#[tokio::test(start_paused = true)]
async fn c3_a_lease_is_that_of_the_member_that_makes_the_quorum() {
    let fakes = fakes(3);
    fakes[1].always(Op::Attempt, Fault::SlowRequest(ms(300)));
    fakes[2].always(Op::Attempt, Fault::Hang);
    let mut claim = quorum(&fakes).claim(spec("x")).unwrap();
    let asked = Clock::Tokio.now();
    let Lease::Proven { at, lasts } = grant(&mut *claim).await.lease else {
        panic!("not counted from the request")
    };
    assert_eq!((at, lasts), (asked, TTL));
}

#[tokio::test(start_paused = true)]
async fn c1_all_members_are_asked_in_turn_and_released() {
    let fakes = [member(), without_raise(member()), member()];
    let quorum = of(&fakes, Need::All);
    let mut claim = quorum.claim(spec("x")).unwrap();
    let first = grant(&mut *claim).await.token;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    let mut other = occupy(&fakes[1]).await;
    let mut claim = quorum.claim(spec("x")).unwrap();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Busy { .. }));
    assert_eq!(fakes.each_ref().map(|fake| fake.count(Op::Attempt)), [2, 2, 1]);
    assert_eq!(held_by(&fakes[..1]).await, 0);
    assert_eq!(other.release().await.unwrap(), Released::Freed);
    fakes[2].all(Fault::DOWN);
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("2 of 3 members granted, 3 are needed: member 3 (fake): as ordered"),
        "{error}"
    );
    fakes[2].all(Fault::Pass);
    let token = grant(&mut *claim).await.token;
    assert!(token > first);
    // A member that cannot be raised keeps its token.
    assert_eq!(fakes[1].count(Op::RaiseToken), 0);
    let shown = shown(&fakes).await.into_iter().map(|shown| shown.unwrap().1).collect::<Vec<_>>();
    assert_eq!((shown[0], shown[2]), (token, token));
}

#[tokio::test(start_paused = true)]
async fn c1_a_grant_whose_leases_ended_before_the_answer_is_no_grant() {
    let fakes = fakes(3);
    fakes[0].always(Op::Attempt, Fault::Pass);
    fakes[1].always(Op::Attempt, Fault::SlowReply(ms(900)));
    fakes[2].all(Fault::DOWN);
    let mut short = spec("x");
    short.ttl = ms(500);
    let mut claim = quorum(&fakes).claim(short).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert!(error.to_string().contains("lease has ended"), "{error}");
}
