//! The permits of a name, and the promises about them. A mutex has the same promises in
//! [`invariants`](crate::invariants).

use crate::{
    calls::{CLIENTS, Call, Tick, tick, who},
    fake::Store,
    invariants::{Change, Check, ensure},
    rules::{Permits, Rules},
    world::World,
};

/// The permits in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The stored grants, with those that have lapsed.
    grants: Vec<Grant>,
    /// The stored sum of their counts.
    used: i64,
    limit: Option<i64>,
    /// When the keys lapse: of the holders, and of the grants.
    until: [Option<Tick>; 2],
    /// Some key of them is there.
    is_stored: bool,
    /// Some key of the name never lapses.
    lasts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    /// The number of the owner among all owners, and its client.
    owner: usize,
    client: usize,
    until: Tick,
    count: i64,
    token: i64,
}

impl View {
    pub(crate) fn read(store: &Store, find: impl Fn(&str) -> Option<usize>) -> Self {
        let fields = store.fields("grants").expect("a hash");
        let deadline = |owner: &str| {
            let mut members = store.members("holders").iter();
            members.find(|(_, member)| &**member == owner).map(|(deadline, _)| *deadline)
        };
        let number = |name: &str| fields.get(name).map(|text| text.parse().expect("a number"));
        let grants = fields.iter().filter(|(name, _)| !matches!(&***name, "used" | "limit"));
        let grant = |(owner, grant): (&_, &_)| {
            let (owner, grant): (&str, &str) = (owner, grant);
            let (count, token) = grant.split_once(':').expect("a count and a token");
            let at = find(owner).expect("an owner");
            Grant {
                owner: at,
                client: at % CLIENTS,
                until: deadline(owner).map_or(Tick::MIN, |deadline| tick(deadline / 1000)),
                count: count.parse().expect("a count"),
                token: token.parse().expect("a token"),
            }
        };
        let until = ["holders", "grants"].map(|key| store.until(key).map(tick));
        Self {
            grants: grants.map(|(owner, text)| grant((&**owner, &**text))).collect(),
            used: number("used").unwrap_or(0),
            limit: number("limit"),
            until,
            is_stored: !fields.is_empty() || !store.members("holders").is_empty(),
            lasts: !fields.is_empty() && store.until("grants").is_none()
                || ["holders", "queue", "live"]
                    .into_iter()
                    .any(|key| !store.members(key).is_empty() && store.until(key).is_none()),
        }
    }

    fn live(&self, now: Tick) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| grant.until > now)
    }

    fn of(&self, client: usize, now: Tick) -> Option<&Grant> {
        self.live(now).find(|grant| grant.client == client)
    }

    pub(crate) fn holds(&self, client: usize, now: Tick) -> bool {
        self.of(client, now).is_some()
    }

    fn by_owner(&self, owner: usize, now: Tick) -> Option<&Grant> {
        self.live(now).find(|grant| grant.owner == owner)
    }

    pub(crate) fn has(&self, owner: usize, now: Tick) -> bool {
        self.by_owner(owner, now).is_some()
    }

    /// The clients that hold, and their tokens.
    pub(crate) fn tokens(&self, now: Tick) -> Vec<(usize, i64)> {
        self.live(now).map(|grant| (grant.client, grant.token)).collect()
    }

    fn live_sum(&self, now: Tick) -> i64 {
        self.live(now).map(|grant| grant.count).sum()
    }

    /// Checks what each script must leave.
    fn check(&self, counter: i64, waits: bool, permits: &Permits, now: Tick) -> Check {
        let sum: i64 = self.grants.iter().map(|grant| grant.count).sum();
        ensure(sum == self.used, "the sum of the used permits is wrong")?;
        ensure(sum <= i64::from(permits.limit), "more permits are used than there are")?;
        let own = |grant: &Grant| grant.count == i64::from(permits.counts[grant.client]);
        ensure(self.grants.iter().all(own), "a grant has another count than its claim")?;
        let right = sum == 0 || self.limit == Some(i64::from(permits.limit));
        ensure(right, "the limit is wrong")?;
        let mut tokens: Vec<_> = self.grants.iter().map(|grant| grant.token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        ensure(
            tokens.len() == self.grants.len() && tokens.iter().all(|token| *token <= counter),
            "two grants have one token, or a grant has none",
        )?;
        for grant in self.live(now) {
            let lapse = |until: &Option<Tick>| until.is_some();
            ensure(self.until.iter().all(lapse), "a lock without a lease")?;
            let kept = |until: &Option<Tick>| until.is_none_or(|until| until >= grant.until);
            ensure(self.until.iter().all(kept), "a key of the grants lapses before a lease")?;
        }
        ensure(!self.lasts, "a key of the name never lapses")?;
        let needed = waits || !self.grants.is_empty();
        ensure(needed || !self.is_stored, "a key is left although no claim uses the name")
    }
}

/// Checks the clients that believe that they hold permits.
pub(crate) fn state(world: &World, rules: &Rules, permits: &Permits, view: &View) -> Check {
    let now = world.server_now();
    let mut sum = 0;
    for (at, client) in world.clients.iter().enumerate() {
        if !client.acts(rules, world.now) {
            continue;
        }
        sum += permits.counts[at];
        ensure(sum <= permits.limit, "two owners believe that they hold")?;
        let grant = view.by_owner(who(at, client.owner), now);
        let grant = grant.ok_or("an owner that does not hold believes that it holds")?;
        let raised = client.floor > 0 && grant.token >= client.floor;
        ensure(grant.token == client.token || raised, "a holder's token is not the store's")?;
        ensure(client.deadline <= grant.until, "a holder's deadline is after the store's")?;
    }
    Ok(())
}

impl Change<'_> {
    /// Checks one run of a script about permits.
    pub(crate) fn check_permits(&self, rules: &Rules, permits: &Permits) -> Check {
        let now = self.moment.now;
        let [before, after] = [self.before, self.after].map(|view| &view.permits);
        self.queue_and_counter()?;
        after.check(self.after.token, !self.after.queue.is_empty(), permits, now)?;
        for grant in after.live(now) {
            match before.of(grant.client, now) {
                None => self.permits_granted(*grant, rules)?,
                Some(old) => self.permits_kept(*old, *grant, rules)?,
            }
        }
        for old in before.live(now).filter(|old| !after.holds(old.client, now)) {
            let by_owner = matches!(self.call, Call::Release { .. }) && old.owner == self.by;
            let by_force = matches!(self.call, Call::ForceRelease { token } if token == old.token);
            ensure(by_owner || by_force, "a client took another client's lock away")?;
        }
        // Otherwise, the grants of dead clients would pile up.
        let changes = before.has(self.by, now) != after.has(self.by, now);
        ensure(
            !changes || after.live(now).count() == after.grants.len(),
            "a lapsed grant is left",
        )?;
        self.places()?;
        self.permits_left_free(rules, permits)?;
        self.permits_done()
    }

    fn permits_granted(&self, grant: Grant, rules: &Rules) -> Check {
        let now = self.moment.now;
        let lease = grant.until - now;
        ensure(grant.token > self.top, "a grant didn't raise the token")?;
        if self.by == grant.owner && matches!(self.call, Call::Acquire { .. }) {
            ensure(lease == rules.lease, "a grant's lease is not what was asked for")?;
        } else {
            ensure(lease == rules.window, "a hand-over has another lease than the claim window")?;
            ensure(
                self.before.queue.contains(&grant.client),
                "the lock went to a client that does not wait",
            )?;
            ensure(
                self.can_have(grant.client),
                "a hand-over went to a waiter that is dead or has no connection",
            )?;
        }
        let served = |waiter: &usize| {
            *waiter == self.client() && matches!(self.call, Call::Release { .. })
                || self.after.permits.holds(*waiter, now)
        };
        let mut ahead = self.before.queue.iter().take_while(|waiter| **waiter != grant.client);
        ensure(
            !ahead.any(|waiter| self.can_have(*waiter) && !served(waiter)),
            "a waiter was overtaken",
        )?;
        ensure(!self.after.queue.contains(&grant.client), "a holder is still in the queue")
    }

    fn permits_kept(&self, old: Grant, new: Grant, rules: &Rules) -> Check {
        let own = new.owner == self.by;
        if self.moves(old.owner, new.owner) {
            self.whole_lease(Some(new.until), rules)?;
        } else {
            ensure(old.owner == new.owner, "a client took another client's lock away")?;
        }
        let raised = own && matches!(self.call, Call::Raise { .. });
        ensure(raised || new.token == old.token, "a retry changed the token")?;
        ensure(new.until >= old.until, "a lease was shortened")?;
        ensure(own || new.until == old.until, "someone else's lease was changed")
    }

    /// Permits stay free only if the first waiter that can have some needs more.
    fn permits_left_free(&self, rules: &Rules, permits: &Permits) -> Check {
        let now = self.moment.now;
        let held = self.before.permits.holds(self.client(), now);
        let looks_after = match self.call {
            Call::Refresh | Call::Release { .. } | Call::ForceRelease { .. } => true,
            // If the answer to an earlier attempt was lost, the owner gets it again.
            Call::Acquire { not_after, .. } => now <= not_after && !held,
            Call::Extend { .. }
            | Call::Raise { .. }
            | Call::Transfer { .. }
            | Call::Resume { .. } => false,
        };
        let refused = self.moment.full && !self.before.queue.contains(&self.client());
        if !looks_after || rules.hurried || refused && matches!(self.call, Call::Acquire { .. }) {
            return Ok(());
        }
        let free = i64::from(permits.limit) - self.after.permits.live_sum(now);
        let mut waiters = self.after.queue.iter().filter(|waiter| self.can_have(**waiter));
        let fits = waiters.next().is_some_and(|waiter| i64::from(permits.counts[*waiter]) <= free);
        ensure(!fits, "the lock is free although a client waits")
    }

    fn permits_done(&self) -> Check {
        let now = self.moment.now;
        let [before, after] =
            [self.before, self.after].map(|view| view.permits.by_owner(self.by, now));
        match (self.call, before, after) {
            (Call::Resume { not_after, .. }, _, _) if now > not_after => {
                ensure(self.before == self.after, "a grant was resumed after not_after")
            }
            (Call::Resume { .. }, None, None) => {
                let left = self.after.permits.has(self.by - CLIENTS, now);
                ensure(!left, "a grant was not resumed")
            }
            (Call::Release { owned: true, .. }, _, Some(_)) => {
                Err("the lock is held after its release")
            }
            (Call::Raise { floor }, Some(_), Some(after)) => {
                ensure(after.token >= floor, "the token is below the requested one")
            }
            _ => Ok(()),
        }
    }
}
