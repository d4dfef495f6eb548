//! Checks each state, and each run of a script.

use crate::{
    calls::{CLIENTS, Call, Moment, Redis, Tick, View, who},
    client::{Client, Phase},
    permits,
    rules::Rules,
    world::World,
};

pub(crate) type Check = Result<(), &'static str>;

pub(crate) fn ensure(holds: bool, broken: &'static str) -> Check {
    if holds { Ok(()) } else { Err(broken) }
}

pub(crate) fn state(world: &World, rules: &Rules, redis: &Redis) -> Check {
    let view = redis.view(world.store);
    // A lease ends by the server's clock. After a step of that clock, only tokens are promised.
    if world.skew == 0
        && let Some(counts) = &rules.permits
    {
        permits::state(world, rules, counts, &view.permits)?;
    } else if world.skew == 0 {
        let mut believers =
            world.clients.iter().enumerate().filter(|(_, client)| client.acts(rules, world.now));
        if let Some((at, client)) = believers.next() {
            ensure(believers.next().is_none(), "two owners believe that they hold")?;
            ensure(
                view.holder == Some(who(at, client.owner)),
                "an owner that does not hold believes that it holds",
            )?;
            let token = [client.token, client.floor].contains(&view.token);
            ensure(token, "a holder's token is not the store's")?;
            ensure(
                view.until.is_none_or(|until| client.deadline <= until),
                "a holder's deadline is after the store's",
            )?;
        }
    }
    for (at, client) in world.clients.iter().enumerate() {
        // A clock that goes back makes old not-after times valid again. A lock that a late request
        // then takes stays until its lease is over.
        if client.phase == Phase::Done && world.skew >= 0 {
            let holds = view.permits.holds(at, world.server_now());
            ensure(view.owner != Some(at) && !holds, "a cancelled call left a lock")?;
            ensure(!view.knows(at), "a cancelled call left a place")?;
        }
        if client.phase == Phase::Unused && world.skew >= 0 {
            let owner = who(at, client.owner);
            let holds = view.permits.has(owner, world.server_now());
            ensure(view.holder != Some(owner) && !holds, "a cancelled call left a lock")?;
        }
    }
    Ok(())
}

/// A grant comes before its message, whatever the clocks say.
pub(crate) fn proof(client: &Client, now: Tick, window: Tick) -> Check {
    ensure(client.deadline <= now + window, "a proof reaches into the future")?;
    ensure(2 * (client.deadline - now) >= window, "a proof of less than half a window")
}

impl View {
    pub(crate) fn knows(&self, at: usize) -> bool {
        self.queue.contains(&at) || self.live.iter().any(|&(waiter, _)| waiter == at)
    }

    fn lives(&self, at: usize, now: Tick) -> bool {
        self.live.iter().any(|&(waiter, dies)| waiter == at && dies >= now)
    }
}

/// One run of a script.
pub(crate) struct Change<'a> {
    pub(crate) before: &'a View,
    pub(crate) after: &'a View,
    /// The number of the caller, as in [`who`].
    pub(crate) by: usize,
    pub(crate) call: Call,
    pub(crate) moment: Moment,
    pub(crate) top: i64,
    /// The server's clock went back, so old not-after times are valid again.
    pub(crate) goes_back: bool,
}

impl Change<'_> {
    pub(crate) fn check(&self, rules: &Rules) -> Check {
        if let Some(permits) = &rules.permits {
            return self.check_permits(rules, permits);
        }
        self.lock_and_token()?;
        match (self.before.holder, self.after.holder) {
            (Some(former), Some(new)) if self.moves(former, new) => {
                let tokens = [self.before, self.after].map(|view| view.granted);
                ensure(tokens[0] == tokens[1], "a resumed grant has another token")?;
                let until = [self.before, self.after].map(|view| view.until);
                ensure(until[0] <= until[1], "a lease was shortened")?;
                self.whole_lease(self.after.until, rules)?;
            }
            (old, Some(new)) if old != Some(new) => self.granted(new, rules)?,
            (Some(_), Some(holder)) => self.kept(holder)?,
            _ => {}
        }
        self.taken_away()?;
        self.places()?;
        self.left_free(rules)?;
        self.done()
    }

    /// True if a claim got the grant that it resumes.
    pub(crate) fn moves(&self, former: usize, new: usize) -> bool {
        let resumes = matches!(self.call, Call::Resume { .. });
        resumes && new == self.by && former + CLIENTS == self.by
    }

    pub(crate) fn whole_lease(&self, until: Option<Tick>, rules: &Rules) -> Check {
        let is_whole = until.is_some_and(|until| until - self.moment.now >= rules.lease);
        ensure(is_whole, "a resumed grant has no whole lease")
    }

    /// Checks what every script must leave: the queue, the lock and its token fit together.
    fn lock_and_token(&self) -> Check {
        let Self { after, .. } = self;
        self.queue_and_counter()?;
        ensure(
            after.granted.is_none_or(|token| token == after.token),
            "two grants have one token, or a grant has none",
        )?;
        ensure(after.owner.is_none() || after.until.is_some(), "a lock without a lease")
    }

    pub(crate) fn queue_and_counter(&self) -> Check {
        let Self { after, .. } = self;
        let mut members: Vec<usize> = after.live.iter().map(|&(waiter, _)| waiter).collect();
        let mut queue = after.queue.clone();
        members.sort_unstable();
        queue.sort_unstable();
        ensure(members == queue, "the queue and the liveness entries differ")?;
        ensure(after.token >= self.top, "the token fell")?;
        ensure(!after.counter_lapses, "the counter expires")
    }

    /// Only its holder or an operator takes a lock away.
    fn taken_away(&self) -> Check {
        let Self { before, after, .. } = self;
        if let Some(old) = before.holder.filter(|_| before.holder != after.holder) {
            let by_owner = match self.call {
                Call::Release { successor, .. } => {
                    old == self.by || successor && old == self.by + CLIENTS
                }
                Call::Transfer { .. } => old == self.by,
                Call::Resume { .. } => self.after.holder.is_some_and(|new| self.moves(old, new)),
                _ => false,
            };
            ensure(
                by_owner || matches!(self.call, Call::ForceRelease { .. }),
                "a client took another client's lock away",
            )?;
        }
        Ok(())
    }

    /// A lock stays free only if no waiter can have it.
    fn left_free(&self, rules: &Rules) -> Check {
        let Self { before, after, .. } = self;
        // If a full server refuses a newcomer, the lock may stay free.
        let refused = self.moment.full && !before.queue.contains(&self.client());
        if after.owner.is_none()
            && !(refused && matches!(self.call, Call::Acquire { .. }))
            && self.looks_after()
        {
            let waits = after.queue.iter().any(|&waiter| self.can_have(waiter));
            ensure(!waits || rules.hurried, "the lock is free although a client waits")?;
        }
        Ok(())
    }

    /// Checks that the script did what was asked for.
    fn done(&self) -> Check {
        let Self { before, after, .. } = self;
        match self.call {
            Call::Release { owned: true, .. } => {
                // Another owner of this client may have the lock. After the clock went back, an old
                // attempt of this owner may be in the queue again. The release may serve it next.
                let comes_late = self.goes_back && before.queue.contains(&self.client());
                ensure(
                    after.holder != Some(self.by) || comes_late,
                    "the lock is held after its release",
                )
            }
            Call::Transfer { not_after, .. } if self.moment.now > not_after => {
                ensure(before == after, "a transfer was done after not_after")
            }
            Call::Transfer { first, .. } if before.holder == Some(self.by) => {
                let somebody = first
                    && after.queue.iter().any(|&waiter| before.lives(waiter, self.moment.now));
                ensure(
                    after.owner.is_some() || somebody,
                    "the lock is free after a transfer, and no client waits",
                )
            }
            Call::Resume { not_after, .. } if self.moment.now > not_after => {
                ensure(before == after, "a grant was resumed after not_after")
            }
            Call::Resume { .. } if before.holder.is_some_and(|old| old + CLIENTS == self.by) => {
                ensure(after.holder == Some(self.by), "a grant was not resumed")
            }
            Call::Raise { floor } if before.holder == Some(self.by) => ensure(
                after.token == before.token.max(floor),
                "the token is below the requested one",
            ),
            _ => Ok(()),
        }
    }

    pub(crate) fn client(&self) -> usize {
        self.by % CLIENTS
    }

    /// Checks a new grant. `top` is the highest token so far.
    fn granted(&self, holder: usize, rules: &Rules) -> Check {
        let new = holder % CLIENTS;
        let inside = holder == self.by + CLIENTS;
        ensure(self.after.token > self.top, "a grant didn't raise the token")?;
        let lease = self.after.until.map(|until| until - self.moment.now);
        let asked = self.by == holder && matches!(self.call, Call::Acquire { .. });
        if let Call::Transfer { first, .. } = self.call
            && inside
        {
            ensure(
                self.before.holder == Some(self.by),
                "a client transferred a lock that it did not hold",
            )?;
            let waits = |waiter: &usize| self.before.lives(*waiter, self.moment.now);
            ensure(
                !first || !self.before.queue.iter().any(waits),
                "the first waiter was passed over",
            )?;
            return ensure(lease == Some(rules.lease), "a grant's lease is not what was asked for");
        }
        if asked {
            ensure(lease == Some(rules.lease), "a grant's lease is not what was asked for")?;
        } else {
            let waits_on = matches!(self.call, Call::Transfer { first: false, .. });
            ensure(!waits_on, "the lock went to a waiter that is not the first")?;
            ensure(
                lease == Some(rules.window),
                "a hand-over has another lease than the claim window",
            )?;
            ensure(
                self.before.queue.contains(&new),
                "the lock went to a client that does not wait",
            )?;
            ensure(
                self.can_have(new),
                "a hand-over went to a waiter that is dead or has no connection",
            )?;
        }
        let leaves =
            |waiter: &usize| *waiter == self.client() && matches!(self.call, Call::Release { .. });
        let mut ahead = self.before.queue.iter().take_while(|waiter| **waiter != new);
        ensure(
            !ahead.any(|waiter| self.can_have(*waiter) && !leaves(waiter)),
            "a waiter was overtaken",
        )?;
        ensure(!self.after.queue.contains(&new), "a holder is still in the queue")
    }

    fn kept(&self, holder: usize) -> Check {
        let Self { before, after, .. } = self;
        let raised = holder == self.by && matches!(self.call, Call::Raise { .. });
        ensure(raised || after.token == before.token, "a retry changed the token")?;
        ensure(after.until >= before.until, "a lease was shortened")?;
        ensure(after.until == before.until || holder == self.by, "someone else's lease was changed")
    }

    /// No waiter loses its place, or gets a better one than by the order in which they came.
    pub(crate) fn places(&self) -> Check {
        self.set_aside()?;
        let before = &self.before.queue;
        let after = &self.after.queue;
        let stayed: Vec<_> = before.iter().filter(|waiter| after.contains(waiter)).collect();
        let first: Vec<_> = after.iter().take(stayed.len()).collect();
        ensure(stayed == first, "the order of the queue changed")?;
        let dropped = before.iter().filter(|waiter| !after.contains(waiter));
        for &waiter in dropped {
            let left = waiter == self.client() && matches!(self.call, Call::Release { .. });
            let granted = self.after.owner == Some(waiter)
                || self.after.permits.holds(waiter, self.moment.now);
            ensure(
                left || granted || !self.before.lives(waiter, self.moment.now),
                "a waiter lost its place",
            )?;
        }
        Ok(())
    }

    /// Only waiters that can't hear are set aside, and only until they ask. A newcomer is the last.
    fn set_aside(&self) -> Check {
        let Self { before, after, .. } = self;
        let mut new = after.aside.iter().filter(|waiter| !before.aside.contains(waiter));
        let deaf = |waiter: &usize| self.moment.heard & 1 << waiter == 0;
        ensure(new.all(deaf), "a waiter that hears was set aside")?;
        let asks = match self.call {
            Call::Acquire { not_after, .. } => self.moment.now <= not_after,
            call => call == Call::Refresh,
        };
        let still = after.aside.contains(&self.client());
        ensure(!(asks && still), "a waiter that asks is still passed over")?;
        let last = after.queue.last() == Some(&self.client());
        let new = after.queue.contains(&self.client()) && !before.queue.contains(&self.client());
        ensure(!new || last, "a newcomer is not the last")
    }

    /// True if this call must give a free lock to a waiter that can have it.
    fn looks_after(&self) -> bool {
        match self.call {
            Call::Refresh => true,
            Call::Release { owned, .. } => owned && self.before.holder == Some(self.by),
            Call::ForceRelease { .. } => self.before.owner.is_some(),
            Call::Acquire { not_after, .. } => self.moment.now <= not_after,
            Call::Transfer { first, not_after, .. } => {
                first && self.before.holder == Some(self.by) && self.moment.now <= not_after
            }
            Call::Extend { .. } | Call::Raise { .. } | Call::Resume { .. } => false,
        }
    }

    /// True for a live waiter that hears its message, or that asks now. A refresh makes its own
    /// waiter live.
    pub(crate) fn can_have(&self, waiter: usize) -> bool {
        let asks = waiter == self.client() && matches!(self.call, Call::Acquire { .. });
        if waiter == self.client() && self.call == Call::Refresh {
            return self.before.knows(waiter);
        }
        let hears = self.moment.heard & 1 << waiter != 0 && !self.before.aside.contains(&waiter);
        self.before.lives(waiter, self.moment.now) && (hears || asks)
    }
}
