//! What must hold at each state, and over each run of a script.

use crate::{
    calls::{Call, Moment, Redis, Tick, View},
    client::{Client, Phase},
    rules::Rules,
    world::World,
};

type Check = Result<(), &'static str>;

fn ensure(holds: bool, broken: &'static str) -> Check {
    if holds { Ok(()) } else { Err(broken) }
}

pub(crate) fn state(world: &World, redis: &Redis) -> Check {
    let view = redis.view(world.store);
    // A lease ends by the server's clock: when that steps, only tokens are promised.
    if world.skew == 0 {
        let mut believers = world.clients.iter().enumerate().filter(|(_, client)| client.believes(world.now));
        if let Some((at, client)) = believers.next() {
            ensure(believers.next().is_none(), "two believe that they hold")?;
            ensure(view.owner == Some(at), "one believes that it holds, and doesn't")?;
            ensure(view.fence == client.token, "a holder's token is not the store's")?;
            ensure(
                view.until.is_none_or(|until| client.deadline <= until),
                "a holder counts on too long a lease",
            )?;
        }
    }
    for (at, client) in world.clients.iter().enumerate() {
        // A clock that goes back brings not-after times back: what arrives then stays until its lease is over.
        if client.phase == Phase::Done && world.skew >= 0 {
            ensure(view.owner != Some(at), "a lock is left of one who gave up")?;
            ensure(!view.knows(at), "a place is left of one who gave up")?;
        }
    }
    Ok(())
}

/// A grant happened before it was heard of, whatever the clocks say.
pub(crate) fn proof(client: &Client, now: Tick, window: Tick) -> Check {
    ensure(client.deadline <= now + window, "a proof reaches into the future")?;
    ensure(2 * (client.deadline - now) >= window, "a proof of less than half a window")
}

impl View {
    fn knows(&self, at: usize) -> bool {
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
    pub(crate) by: usize,
    pub(crate) call: Call,
    pub(crate) moment: Moment,
    pub(crate) top: i64,
}

impl Change<'_> {
    pub(crate) fn check(&self, rules: &Rules) -> Check {
        let Self { before, after, .. } = self;
        let mut members: Vec<usize> = after.live.iter().map(|&(waiter, _)| waiter).collect();
        let mut queue = after.queue.clone();
        members.sort_unstable();
        queue.sort_unstable();
        ensure(members == queue, "queue and liveness differ")?;
        ensure(after.owner.is_none() || after.fenced == after.owner, "a lock without a fence of its own")?;
        ensure(after.owner.is_none() || after.until.is_some(), "a lock that never lapses")?;
        ensure(after.fence >= self.top, "the fence fell")?;
        match (before.owner, after.owner) {
            (old, Some(new)) if old != Some(new) => self.granted(new, rules)?,
            (Some(_), Some(owner)) => self.kept(owner)?,
            _ => {}
        }
        if let Some(old) = before.owner.filter(|_| before.owner != after.owner) {
            let by_owner = old == self.by && matches!(self.call, Call::Release { .. });
            ensure(
                by_owner || matches!(self.call, Call::ForceRelease { .. }),
                "someone else's lock is taken away",
            )?;
        }
        self.places()?;
        if after.owner.is_none() && !self.moment.full && self.looks_after() {
            let waits = after.queue.iter().any(|&waiter| self.can_have(waiter));
            ensure(!waits, "the lock is free, and a waiter was not given it")?;
        }
        match self.call {
            Call::Release { owned: true, .. } if !self.moment.full => {
                ensure(after.owner != Some(self.by), "released, and still held")
            }
            _ => Ok(()),
        }
    }

    /// A new grant. `top` is the highest fence so far.
    fn granted(&self, new: usize, rules: &Rules) -> Check {
        ensure(self.after.fence > self.top, "a grant didn't raise the fence")?;
        let lease = self.after.until.map(|until| until - self.moment.now);
        let asked = self.by == new && matches!(self.call, Call::Acquire { .. });
        if asked {
            ensure(lease == Some(rules.lease), "a grant's lease is not what was asked for")?;
        } else {
            ensure(lease == Some(rules.window), "a hand-over's lease is not the claim window")?;
            ensure(self.before.queue.contains(&new), "given to one who doesn't wait")?;
            ensure(self.can_have(new), "given to a waiter who is dead or deaf")?;
        }
        let leaves = |waiter: &usize| *waiter == self.by && matches!(self.call, Call::Release { .. });
        let mut ahead = self.before.queue.iter().take_while(|waiter| **waiter != new);
        ensure(!ahead.any(|waiter| self.can_have(*waiter) && !leaves(waiter)), "a waiter was overtaken")?;
        ensure(!self.after.queue.contains(&new), "a holder is still in the queue")
    }

    fn kept(&self, owner: usize) -> Check {
        let Self { before, after, .. } = self;
        ensure(after.fence == before.fence, "a retry changed the token")?;
        ensure(after.until >= before.until, "a lease was shortened")?;
        ensure(after.until == before.until || owner == self.by, "someone else's lease was changed")
    }

    /// Nobody loses a place, or gets a better one than that of the order in which they came.
    fn places(&self) -> Check {
        let (before, after) = (&self.before.queue, &self.after.queue);
        let stayed: Vec<_> = before.iter().filter(|waiter| after.contains(waiter)).collect();
        let first: Vec<_> = after.iter().take(stayed.len()).collect();
        ensure(stayed == first, "the order of the queue changed")?;
        let dropped = before.iter().filter(|waiter| !after.contains(waiter));
        for &waiter in dropped {
            let left = waiter == self.by && matches!(self.call, Call::Release { .. });
            let granted = self.after.owner == Some(waiter);
            ensure(
                left || granted || !self.before.lives(waiter, self.moment.now),
                "a waiter lost its place",
            )?;
        }
        Ok(())
    }

    /// True if this call, finding the lock free, must give it to whoever can have it.
    fn looks_after(&self) -> bool {
        match self.call {
            Call::Refresh => true,
            Call::Release { owned, .. } => owned && self.before.owner == Some(self.by),
            Call::ForceRelease { .. } => self.before.owner.is_some(),
            Call::Acquire { not_after, .. } => self.moment.now <= not_after,
            Call::Extend { .. } => false,
        }
    }

    /// A live waiter who hears of it, or who is asking now. A refresh makes its own waiter live.
    fn can_have(&self, waiter: usize) -> bool {
        let asks = waiter == self.by && matches!(self.call, Call::Acquire { .. });
        if waiter == self.by && self.call == Call::Refresh {
            return self.before.knows(waiter);
        }
        let hears = self.moment.heard & 1 << waiter != 0;
        self.before.lives(waiter, self.moment.now) && (hears || asks)
    }
}
