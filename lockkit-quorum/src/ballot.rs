//! One ballot: the claims of one owner at the members, and the outcome of their answers.
//!
//! # Why the tokens rise
//! A ballot is won when `need` members hold the lock for its owner, all with the ballot's token T.
//! A member has the token T because it granted T, or because it was raised to T while it held. At
//! the win, T is the largest token of all members that hold the lock for this owner.
//!
//! Any two grants have a member in common. One of the two grants held that member first, and its T
//! was the member's token then. The other grant came later at that member, so it has a larger token
//! there (C4 of the member). Its own T is no smaller than that. The first grant had ended at that
//! member by its release or its lease. So the first grant was returned before the second one, and
//! was over by then.
//!
//! T can rise until the win. Suppose that the first `need` answers settled it. A lease could then
//! end before the win. Another client could get the lock with a larger token, and release it. A
//! member that grants after that would complete this ballot with the smaller T.
//!
//! After the win, members may join if their token is T or larger. They count only while the others
//! carry the grant without a gap. After a gap the grant is over, whichever members join, because
//! another client may have had the lock in between.
//!
//! A ballot that resumes a grant begins with the token of that grant. A member takes part if it
//! still holds the lock for the former owner, with that token or, as a late member, a larger one.
//! Members refuse a request that arrives late. So each member that takes part was in the former
//! ballot without a gap, and one of them is in every other quorum. No other client had the lock in
//! between, and the token is still the largest that was returned.
//!
//! Where all members are needed, the members that can be raised are raised. So each of them may be
//! the only store of the lock before or after, and tokens continue to rise. A member that cannot be
//! raised does not take part in that, unless it has a `token_base`. The `token_base` makes it such
//! a store: it must then have the largest token itself, or there is no grant.

use std::{mem, ops::ControlFlow, task::Context, time::Duration};

use lockkit_core::{
    Clock, FencingToken, OwnerId, Tick,
    spi::{ClaimSpec, Grant, LossReason, Released, RenewalOutcome},
};

use crate::{
    member::TokenRole,
    need::Need,
    vote::{Part, Standing, Vote},
};

/// The wait for slow or silent members, once they decide the outcome. It comes on top of twice the
/// time that had passed by then.
const STRAGGLERS: Duration = Duration::from_millis(10);
/// A release waits at least this long for the last members, so that the next grant finds them free,
/// too.
const LAST_ANSWERS: Duration = Duration::from_millis(1);

/// The time of one call, in shares of the core's `op_timeout`. The core drops the call at the
/// `op_timeout`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) clock: Clock,
    op_timeout: Duration,
}

impl Budget {
    pub(crate) fn of(spec: &ClaimSpec) -> Self {
        Self { clock: spec.clock, op_timeout: spec.op_timeout }
    }

    /// The time of one request to one member, and of the first phase of a call.
    pub(crate) fn request(self) -> Duration {
        self.op_timeout / 2
    }

    /// The time that a call may take, except for giving back.
    pub(crate) fn call(self) -> Duration {
        self.op_timeout / 4 * 3
    }

    /// The time for giving back inside a call, and the wait for silent members at a release.
    pub(crate) fn give_back(self) -> Duration {
        self.op_timeout / 8
    }
}

/// The state of a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Won,
    /// The ballot failed, or its grant is given back.
    Over,
}

#[derive(Debug)]
pub(crate) struct Ballot {
    pub(crate) owner: OwnerId,
    pub(crate) votes: Vec<Vote>,
    need: Need,
    budget: Budget,
    /// The ballot's token, once enough members have granted. It can rise until the win.
    token: Option<FencingToken>,
    /// The token of the grant that the ballot resumes.
    resumed: Option<FencingToken>,
    /// The grant has lasted, and lasts, without a gap until this instant.
    until: Tick,
    phase: Phase,
    /// The number of calls that have worked on the ballot.
    call: u64,
    started: Tick,
    /// When this call had so many answers that it waits only a little longer for the other members.
    met: Option<Tick>,
}

impl Ballot {
    pub(crate) fn new(
        owner: OwnerId,
        votes: Vec<Vote>,
        need: Need,
        budget: Budget,
        resumed: Option<FencingToken>,
    ) -> Self {
        let phase = Phase::Open;
        let started = budget.clock.now();
        Self {
            owner,
            votes,
            need,
            budget,
            token: None,
            resumed,
            until: started,
            phase,
            call: 0,
            started,
            met: None,
        }
    }

    pub(crate) fn need(&self) -> usize {
        self.need.of(self.votes.len())
    }

    pub(crate) fn is_won(&self) -> bool {
        self.phase == Phase::Won
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(crate) fn end(&mut self) {
        self.phase = Phase::Over;
    }

    pub(crate) fn begin_call(&mut self) {
        (self.started, self.met) = (self.budget.clock.now(), None);
        self.call += 1;
    }

    /// Polls the requests that are under way. Returns true if a member answered.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut answered = false;
        for vote in self.votes.iter_mut().filter(|vote| vote.is_in_flight()) {
            answered |= vote.poll(cx).is_ready();
        }
        answered
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.votes.iter().any(Vote::is_fresh)
    }

    pub(crate) fn count(&self, which: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| which(vote)).count()
    }

    /// Asks for the lock. Breaks with true once the ballot is won, and with false when it cannot be
    /// won.
    pub(crate) fn elect(&mut self, now: Tick) -> ControlFlow<bool, Tick> {
        self.ask();
        let Some(largest) = self.largest(now) else { return self.await_grants(now) };
        let token = self.resumed.unwrap_or(largest);
        self.token = Some(token);
        let budget = self.budget.request();
        self.votes.iter_mut().for_each(|vote| vote.settle(token, budget));
        self.raise(token);
        if self.count(|vote| self.stands(vote, now)) >= self.need()
            && let Some(last) = self.last_part()
        {
            (self.phase, self.until) = (Phase::Won, last.deadline());
            return ControlFlow::Break(true);
        }
        let hopeful = |vote: &Vote| {
            self.stands(vote, now)
                || vote.is_asking()
                || vote.is_raising(self.call)
                || vote.is_catching_up()
        };
        let stop = self.started.after(self.budget.call());
        if self.count(hopeful) < self.need() || now >= stop {
            return ControlFlow::Break(false);
        }
        ControlFlow::Continue(stop)
    }

    /// Asks all members at once. Where all are needed, asks one after the other in their order, so
    /// that no two ballots each have a part of the members.
    fn ask(&mut self) {
        let budget = self.budget.request();
        for vote in &mut self.votes {
            if matches!(vote.standing, Standing::Open) && vote.is_idle() {
                vote.ask(budget);
            }
            if self.need == Need::All && vote.part().is_none() {
                return;
            }
        }
    }

    /// Asks the failed members again after an earlier call.
    pub(crate) fn reopen(&mut self) {
        for vote in &mut self.votes {
            if matches!(vote.standing, Standing::Failed) {
                vote.standing = Standing::Open;
            }
        }
    }

    /// The largest token of the members that hold the lock, if they are enough.
    fn largest(&self, now: Tick) -> Option<FencingToken> {
        let tokens = self.votes.iter().filter_map(|vote| vote.valid(now)).map(|part| part.token);
        let count = tokens.clone().count();
        let largest = tokens.max();
        largest.filter(|_| count >= self.need())
    }

    fn await_grants(&mut self, now: Tick) -> ControlFlow<bool, Tick> {
        let need = self.need();
        let granted = self.count(|vote| vote.valid(now).is_some());
        let open = self.count(|vote| matches!(vote.standing, Standing::Open));
        let refused = self.count(is_refused);
        let asking = self.count(Vote::is_asking);
        let lost = granted + open < need;
        let reached = granted + refused;
        // The refusals may mean contention, or too many members may be down. The other members
        // decide that.
        let is_unclear = refused > 0 && reached < need && reached + asking >= need;
        if lost && !is_unclear {
            return ControlFlow::Break(false);
        }
        let mut stop = self.started.after(self.budget.request());
        // Other claims compete. A wait for the silent members would block these claims, too.
        if lost || (refused > 0 && reached >= need) {
            let met = *self.met.get_or_insert(now);
            stop = stop.min(met.after(self.started.until(met) * 2 + STRAGGLERS));
        }
        if now >= stop { ControlFlow::Break(false) } else { ControlFlow::Continue(stop) }
    }

    fn raise(&mut self, token: FencingToken) {
        for vote in &mut self.votes {
            if vote.token_role == TokenRole::Raised
                && vote.is_idle()
                && vote.wants_raise(token, self.call)
                && vote.part().is_some_and(|part| part.token < token)
            {
                vote.raise(token, self.budget.request(), self.call);
            }
        }
    }

    /// Whether the member carries the grant.
    fn stands(&self, vote: &Vote, now: Tick) -> bool {
        vote.valid(now).is_some_and(|part| self.is_raised(vote, part))
    }

    fn is_raised(&self, vote: &Vote, part: &Part) -> bool {
        self.token.is_some_and(|token| part.token >= token || vote.token_role == TokenRole::Ignored)
    }

    /// The grant of a ballot that was won. It lasts for as long as `need` members do: at least one
    /// of the longest-lasting members is in every other quorum.
    pub(crate) fn grant(&self, asked_as: OwnerId) -> Option<Grant> {
        let owner = (self.owner != asked_as).then_some(self.owner);
        Some(Grant { owner, ..Grant::new(self.token?, self.last_part()?.proven()) })
    }

    /// The part that ends the grant when its lease ends.
    fn last_part(&self) -> Option<Part> {
        let carried = |vote| Vote::part(vote).filter(|part| self.is_raised(vote, part));
        let mut parts: Vec<_> = self.votes.iter().filter_map(carried).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.deadline()));
        parts.get(self.need() - 1).copied().copied()
    }

    /// Renews the grant of a won ballot. Breaks with `None` if the answers leave the outcome open.
    pub(crate) fn beat(
        &mut self,
        lease: Option<Duration>,
        now: Tick,
    ) -> ControlFlow<Option<RenewalOutcome>, Tick> {
        let call = self.call;
        let need = self.need();
        let request = self.budget.request();
        if now >= self.until {
            return ControlFlow::Break(Some(RenewalOutcome::Lost(LossReason::Expired)));
        }
        if let Some(token) = self.token {
            self.raise(token);
        }
        for at in 0..self.votes.len() {
            let vote = &self.votes[at];
            let is_ours = vote.part().is_some_and(|part| self.is_raised(vote, part));
            if vote.is_idle() && vote.wants_beat(call) && is_ours {
                self.votes[at].beat(lease, request, call);
            }
        }
        if self.confirmed() >= need
            && let Some(last) = self.last_part()
        {
            self.until = self.until.max(last.deadline());
            return ControlFlow::Break(Some(RenewalOutcome::Alive(last.proven())));
        }
        // A member that never granted is not asked again, because it would give a new grant with a
        // token of its own.
        let possible = |vote: &Vote| vote.part().is_some() || vote.is_asking();
        if self.count(possible) < need {
            let reason = self.votes.iter().rev().find_map(|vote| match vote.standing {
                Standing::Lost(reason) => Some(reason),
                _ => None,
            });
            return ControlFlow::Break(Some(RenewalOutcome::Lost(
                reason.unwrap_or(LossReason::Evicted),
            )));
        }
        let stop = self.started.after(self.budget.call());
        let hopeful =
            |vote: &Vote| self.is_confirmed(vote) || (possible(vote) && vote.is_in_flight());
        if self.count(hopeful) < need || now >= stop {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(stop)
    }

    pub(crate) fn is_confirmed(&self, vote: &Vote) -> bool {
        vote.is_confirmed_in(self.call) && vote.part().is_some()
    }

    pub(crate) fn confirmed(&self) -> usize {
        self.count(|vote| self.is_confirmed(vote))
    }

    /// Gives back the parts that were answered, as long as the members answer quickly.
    pub(crate) fn give_back(&mut self, now: Tick) -> ControlFlow<(), Tick> {
        self.release_idle();
        let stop = self.started.after(self.budget.give_back());
        let busy = self.count(|vote| vote.is_in_flight() && !vote.is_asking());
        if busy == 0 || now >= stop { ControlFlow::Break(()) } else { ControlFlow::Continue(stop) }
    }

    /// Gives all parts back. Breaks with `None` if the answers leave open whether the lock was
    /// held, or whether it is free.
    ///
    /// The lock is free once `need` members say so. For a member that stays silent for a while, the
    /// lease that it gave counts. With this member, the lock was held until now. Without it, the
    /// lock is free if enough other members are left.
    pub(crate) fn release(
        &mut self,
        was_won: bool,
        now: Tick,
    ) -> ControlFlow<Option<Released>, Tick> {
        self.release_idle();
        let need = self.need();
        let freed = self.count(|vote| matches!(vote.standing, Standing::Returned(Released::Freed)));
        let unknown = self.count(|vote| vote.dirty);
        let in_flight = self.count(Vote::is_in_flight);
        let decided = if freed >= need {
            Some(Released::Freed)
        } else if freed + unknown < need {
            Some(Released::NotHeld)
        } else {
            None
        };
        if let Some(released) = decided {
            let met = *self.met.get_or_insert(now);
            let patience = self
                .started
                .until(met)
                .clamp(LAST_ANSWERS, LAST_ANSWERS.max(self.budget.give_back()));
            let stop = met.after(patience);
            let done = in_flight == 0 || now >= stop;
            return if done {
                ControlFlow::Break(Some(released))
            } else {
                ControlFlow::Continue(stop)
            };
        }
        let patience = self.started.after(self.budget.give_back());
        if in_flight > 0 && now < patience {
            return ControlFlow::Continue(patience);
        }
        if !was_won {
            return ControlFlow::Break(Some(Released::NotHeld));
        }
        let trusted = self.count(|vote| vote.dirty && self.stands(vote, now));
        if freed + trusted >= need && unknown <= self.votes.len() - need {
            return ControlFlow::Break(Some(Released::Freed));
        }
        let stop = self.started.after(self.budget.call());
        if in_flight > 0 && now < stop {
            ControlFlow::Continue(stop)
        } else {
            ControlFlow::Break(None)
        }
    }

    fn release_idle(&mut self) {
        let call = self.call;
        let request = self.budget.request();
        for vote in &mut self.votes {
            if vote.dirty && vote.is_idle() && !vote.is_released_in(call) {
                vote.release(request, call);
            }
        }
    }

    /// When another ballot may succeed. As many refusing members as are missing must first release
    /// the lock.
    pub(crate) fn retry_after(&self, now: Tick) -> Option<Duration> {
        let missing = self.need().saturating_sub(self.count(|vote| vote.valid(now).is_some()));
        let mut lapses: Vec<_> = self
            .votes
            .iter()
            .filter_map(|vote| match vote.standing {
                Standing::Refused(lapse) => Some(lapse.unwrap_or(Duration::MAX)),
                _ => None,
            })
            .collect();
        lapses.sort_unstable();
        lapses.get(missing.checked_sub(1)?).copied().filter(|lapse| *lapse < Duration::MAX)
    }

    /// Leaves the members' grants to another owner. The rest is taken back: parts that were not
    /// raised, too, because another owner can't take them.
    pub(crate) fn leave_grant(&mut self) {
        let mut votes = mem::take(&mut self.votes);
        let carries = |vote: &Vote| vote.part().is_some_and(|part| self.is_raised(vote, part));
        votes.retain_mut(|vote| !(carries(vote) && vote.leave_grant()));
        self.votes = votes;
    }

    /// Whether the ballot is to continue a grant, and not to make one.
    pub(crate) fn resumes(&self) -> bool {
        self.resumed.is_some()
    }

    /// Whether the members that could be reached would have been enough. The other members may
    /// still have a grant that the ballot resumes, so there it counts whether they can be enough.
    pub(crate) fn is_contended(&self) -> bool {
        if self.resumes() {
            return self.count(is_refused) > self.votes.len() - self.need();
        }
        let unasked = |vote: &Vote| matches!(vote.standing, Standing::Open) && vote.is_idle();
        let reached = |vote: &Vote| is_refused(vote) || vote.part().is_some() || unasked(vote);
        self.count(is_refused) > 0 && self.count(reached) >= self.need()
    }
}

fn is_refused(vote: &Vote) -> bool {
    matches!(vote.standing, Standing::Refused(_))
}
