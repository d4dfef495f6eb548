//! A lock that moves from one store to another through both, while it is used.

use std::sync::Arc;

use lockkit_core::{
    ErrorKind, FencingToken, Result,
    fake::{Fake, Fault, Op},
    spi::{Attempt, Backend, Released, Wait},
};

use super::grant::grant;
use super::members::{OP_TIMEOUT, advance, member, ms, shown, spec, try_of, without_raise};
use crate::{Need, Quorum};

/// The configuration of a deployed service.
#[derive(Clone, Copy, Debug)]
pub(super) enum Config {
    Old,
    Both,
    /// Both stores, and the new store has a base.
    Based,
    New,
    /// The new store alone, with its base.
    NewBased,
}

/// Above all times. The tokens of a new store begin with the time.
const BASE: u64 = 1 << 52;

pub(super) struct Stores {
    pub(super) new: Fake,
    pub(super) old: Fake,
}

impl Stores {
    pub(super) fn new(new: Fake, old: Fake) -> Self {
        Self { new, old }
    }

    /// A quorum of both stores, with the new store first.
    fn both(&self) -> Quorum {
        try_of(&[self.new.clone(), self.old.clone()], Need::All).unwrap()
    }

    pub(super) fn of(&self, config: Config) -> (Arc<dyn Backend>, u64) {
        match config {
            Config::Old => (Arc::new(self.old.clone()), 0),
            Config::Both => (Arc::new(self.both()), 0),
            Config::Based => (Arc::new(self.both().with_first_token_base(BASE).unwrap()), 0),
            Config::New => (Arc::new(self.new.clone()), 0),
            Config::NewBased => (Arc::new(self.new.clone()), BASE),
        }
    }

    pub(super) async fn turn(&self, config: Config) -> Result<FencingToken> {
        let (backend, base) = self.of(config);
        let mut claim = backend.claim(spec("x"))?;
        let Attempt::Granted(grant) = claim.attempt(Wait::No).await? else {
            panic!("nobody has it")
        };
        assert_eq!(claim.release().await?, Released::Freed);
        Ok(FencingToken::new(grant.token.get() + base))
    }

    /// Uses each pair of consecutive configurations together for a while. With `touch`, the name is
    /// locked once after all services use the second configuration.
    async fn roll(
        &self,
        steps: &[Config],
        touch: bool,
        mut last: FencingToken,
    ) -> Result<FencingToken, String> {
        for (at, pair) in steps.windows(2).enumerate() {
            for round in 0..60_usize {
                // The pattern differs from step to step.
                let config = pair[usize::from((round * (7 + at) / 3).is_multiple_of(2))];
                let token = self.turn(config).await.map_err(|error| error.to_string())?;
                if token <= last {
                    return Err(format!("{token} after {last}, {config:?}"));
                }
                last = token;
                // Some attempts fail midway, at the old store or at the new one.
                if round % 7 == 3 && matches!(config, Config::Both | Config::Based) {
                    let fake = if round % 2 == 0 { &self.new } else { &self.old };
                    fake.always(
                        Op::Attempt,
                        if round % 3 == 0 { Fault::DOWN } else { Fault::HangAfter },
                    );
                    assert!(self.turn(config).await.unwrap_err().is_temporary());
                    fake.always(Op::Attempt, Fault::Pass);
                    tokio::time::sleep(OP_TIMEOUT * 3).await;
                }
            }
            if touch {
                last = self.turn(pair[1]).await.map_err(|error| error.to_string())?.max(last);
            }
        }
        Ok(last)
    }
}

pub(super) fn unraised() -> Fake {
    without_raise(member())
}

pub(super) const RAISED: [Config; 3] = [Config::Old, Config::Both, Config::New];
pub(super) const BASED: [Config; 4] = [Config::Old, Config::Both, Config::Based, Config::NewBased];

#[tokio::test(start_paused = true)]
async fn c4_tokens_rise_through_a_move_whichever_store_is_ahead() {
    for (new, old) in [(0, 0), (5_000, 0), (0, 5_000), (40, 3)] {
        let stores = Stores::new(member(), member());
        advance(&stores.new, new).await;
        advance(&stores.old, old).await;
        let last = stores.roll(&RAISED, true, FencingToken::new(0)).await.unwrap();
        // And back again.
        stores.roll(&[Config::New, Config::Both, Config::Old], true, last).await.unwrap();
    }
}

/// The new store learns the old store's tokens only through a quorum of both.
#[tokio::test(start_paused = true)]
async fn c4_a_move_without_a_common_phase_makes_tokens_fall() {
    let stores = Stores::new(member(), member());
    advance(&stores.old, 5_000).await;
    let error = stores.roll(&RAISED, false, FencingToken::new(0)).await.unwrap_err();
    assert!(error.contains(", New"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c4_tokens_rise_through_a_move_to_a_store_that_cant_raise_them_and_back() {
    let stores = Stores::new(unraised(), member());
    advance(&stores.old, 9_000).await;
    let last = stores.roll(&BASED, false, FencingToken::new(0)).await.unwrap();
    let back: Vec<_> = BASED.into_iter().rev().collect();
    stores.roll(&back, true, last).await.unwrap();
}

/// Without the step before it, half of the services would get tokens of the new store, and half
/// tokens of the old one.
#[tokio::test(start_paused = true)]
async fn c4_a_move_that_leaves_a_step_out_is_seen_to_fall() {
    let stores = Stores::new(unraised(), member());
    advance(&stores.old, 9_000).await;
    let error = stores
        .roll(&[Config::Both, Config::NewBased], true, FencingToken::new(0))
        .await
        .unwrap_err();
    assert!(error.contains(" after "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c13_a_base_below_the_tokens_of_the_others_is_an_error_and_nothing_is_left() {
    let stores = Stores::new(unraised(), member());
    advance(&stores.old, 50).await;
    let new = stores.turn(Config::New).await.unwrap();
    let old = stores.turn(Config::Old).await.unwrap();
    let ahead = old.get() - new.get();
    let base = ahead - 30;
    let quorum = stores.both().with_first_token_base(base).unwrap();
    let mut claim = quorum.claim(spec("x")).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::InvalidOption, false));
    let wanted = format!("which includes token_base {base}, is smaller than another member's");
    assert!(error.to_string().contains(&wanted), "{error}");
    assert!(shown(&[stores.new.clone(), stores.old.clone()]).await.iter().all(Option::is_none));
    let quorum = stores.both().with_first_token_base(ahead).unwrap();
    // The earlier ballot asked the leading member nine times.
    assert_eq!(grant(&mut *quorum.claim(spec("x")).unwrap()).await.token.get(), old.get() + 10);
}

/// A request reached the other member late, after its ballot had been given up. So only that member
/// moved ahead.
#[tokio::test(start_paused = true)]
async fn c4_c8_a_leading_member_that_is_a_little_behind_catches_up() {
    let stores = Stores::new(unraised(), member());
    advance(&stores.old, 50).await;
    let new = stores.turn(Config::New).await.unwrap();
    let old = stores.turn(Config::Old).await.unwrap();
    let mut last = old;
    for late in 0..5 {
        advance(&stores.old, late).await;
        let quorum = stores.both().with_first_token_base(old.get() - new.get()).unwrap();
        let mut claim = quorum.claim(spec("x")).unwrap();
        let token = grant(&mut *claim).await.token;
        assert!(token > last, "{token} after {last}");
        last = token;
        let carried = shown(&[stores.new.clone(), stores.old.clone()]).await;
        assert!(carried.iter().all(Option::is_some), "{carried:?}");
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert_eq!(shown(&[stores.new.clone(), stores.old.clone()]).await, [None; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn c4_a_member_that_was_not_raised_is_no_grant_where_all_are_needed() {
    for act in [Fault::DOWN, Fault::Hang, Fault::HangAfter] {
        let stores = Stores::new(member(), member());
        advance(&stores.new, 9).await;
        stores.old.always(Op::RaiseToken, act);
        let error = stores.turn(Config::Both).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{act:?}");
        tokio::time::sleep(OP_TIMEOUT).await;
        assert!(shown(&[stores.new.clone(), stores.old.clone()]).await.iter().all(Option::is_none));
    }
}

#[tokio::test(start_paused = true)]
async fn c14_a_holder_is_seen_and_freed_by_its_token_with_a_base_in_it() {
    let stores = Stores::new(unraised(), member());
    let quorum = stores.both().with_first_token_base(BASE).unwrap();
    let mut claim = quorum.claim(spec("x")).unwrap();
    let token = grant(&mut *claim).await.token;
    let name = super::members::name();
    assert_eq!(quorum.inspect(&name).await.unwrap().holders[0].token, Some(token));
    let own = FencingToken::new(token.get() - BASE);
    assert_eq!(quorum.force_release(&name, own).await.unwrap(), Released::NotHeld);
    assert_eq!(quorum.force_release(&name, token).await.unwrap(), Released::Freed);
    assert!(shown(&[stores.new.clone(), stores.old.clone()]).await.iter().all(Option::is_none));
}

/// Both use the same two stores, one with the base and one without it.
#[tokio::test(start_paused = true)]
async fn c14_a_holder_of_the_step_before_is_seen_and_freed_by_the_token_of_its_grant() {
    for (holds, looks) in [(Config::Both, Config::Based), (Config::Based, Config::Both)] {
        let stores = Stores::new(unraised(), member());
        advance(&stores.old, 9_000).await;
        let mut claim = stores.of(holds).0.claim(spec("x")).unwrap();
        let token = grant(&mut *claim).await.token;
        let other = stores.of(looks).0;
        let name = super::members::name();
        assert_eq!(other.inspect(&name).await.unwrap().holders[0].token, Some(token), "{looks:?}");
        let wrong = FencingToken::new(token.get() + 1);
        assert_eq!(other.force_release(&name, wrong).await.unwrap(), Released::NotHeld);
        assert_eq!(other.force_release(&name, token).await.unwrap(), Released::Freed, "{looks:?}");
        assert!(shown(&[stores.new.clone(), stores.old.clone()]).await.iter().all(Option::is_none));
    }
}

#[test]
fn c13_only_the_first_of_all_members_may_have_a_token_base_and_only_without_raises() {
    let refusal = |members: &[Fake], need, base| {
        let error = try_of(members, need).unwrap().with_first_token_base(base).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        error.to_string()
    };
    let pair = [unraised(), member()];
    assert!(refusal(&[member()], Need::Majority, 1).contains("write it beside the members"));
    assert!(
        refusal(&[member(), unraised()], Need::All, 1).contains("the quorum raises its tokens")
    );
    assert!(refusal(&pair, Need::All, (1 << 62) + 1).contains("is allowed"));
    try_of(&pair, Need::All).unwrap().with_first_token_base(1 << 62).unwrap();
}

/// A quorum of both members, with the leading one behind by three, and the last token.
async fn behind() -> (Stores, Quorum, FencingToken) {
    let stores = Stores::new(unraised(), member());
    advance(&stores.old, 50).await;
    let new = stores.turn(Config::New).await.unwrap();
    let old = stores.turn(Config::Old).await.unwrap();
    advance(&stores.old, 3).await;
    let quorum = stores.both().with_first_token_base(old.get() - new.get()).unwrap();
    (stores, quorum, FencingToken::new(old.get() + 3))
}

#[tokio::test(start_paused = true)]
async fn c6_c8_a_leading_member_that_fails_as_it_catches_up_keeps_nothing() {
    for act in [
        Fault::Hang,
        Fault::HangAfter,
        Fault::DOWN,
        Fault::SlowReply(OP_TIMEOUT),
        Fault::SlowRequest(OP_TIMEOUT),
    ] {
        let (stores, quorum, last) = behind().await;
        let mut claim = quorum.claim(spec("x")).unwrap();
        stores.new.always(Op::Release, act);
        let start = tokio::time::Instant::now();
        claim.attempt(Wait::No).await.unwrap_err();
        assert!(start.elapsed() < OP_TIMEOUT, "{act:?}");
        stores.new.always(Op::Release, Fault::Pass);
        tokio::time::sleep(OP_TIMEOUT * 3).await;
        assert_eq!(shown(&[stores.new.clone(), stores.old.clone()]).await, [None; 2], "{act:?}");
        // Again with the same claim.
        let token = grant(&mut *claim).await.token;
        assert!(token > last, "{act:?}");
        assert_eq!(claim.release().await.unwrap(), Released::Freed, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c4_c6_a_call_that_is_dropped_as_the_leading_member_catches_up_leaves_nothing() {
    for (at, again) in (0..14).flat_map(|at| [(at, false), (at, true)]) {
        let (stores, quorum, last) = behind().await;
        for fake in [&stores.new, &stores.old] {
            for op in [Op::Attempt, Op::RaiseToken, Op::Release] {
                fake.always(
                    op,
                    if at % 2 == 0 { Fault::SlowRequest(ms(10)) } else { Fault::SlowReply(ms(10)) },
                );
            }
        }
        let mut claim = quorum.claim(spec("x")).unwrap();
        let dropped = tokio::time::timeout(ms(5 + 10 * at), claim.attempt(Wait::No)).await;
        if again || dropped.is_ok() {
            let token = grant(&mut *claim).await.token;
            assert!(token > last, "{at}");
            let carried = shown(&[stores.new.clone(), stores.old.clone()]).await;
            assert!(carried.iter().all(Option::is_some), "{at}: {carried:?}");
            assert_eq!(claim.release().await.unwrap(), Released::Freed, "{at}");
        }
        drop(claim);
        tokio::time::sleep(OP_TIMEOUT * 3).await;
        assert_eq!(
            shown(&[stores.new.clone(), stores.old.clone()]).await,
            [None; 2],
            "{at} {again}"
        );
    }
}
