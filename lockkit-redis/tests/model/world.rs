//! The whole state at one instant, and the steps that can follow.

use crate::{
    calls::{Answer, CLIENTS, Call, Moment, Redis, StoreId, Tick, who},
    client::{Client, Ear, Phase},
    invariants,
    rules::{Pushes, Rules},
};

/// How many claims compete, for how long, and how much may go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) clients: usize,
    pub(crate) ticks: Tick,
    pub(crate) faults: u8,
    /// How far the server's clock may step, once.
    pub(crate) skew: Tick,
    pub(crate) rules: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Tick,
    pub(crate) skew: Tick,
    pub(crate) store: StoreId,
    pub(crate) clients: Vec<Client>,
    /// The highest token so far.
    pub(crate) top: i64,
    pub(crate) faults: u8,
}

/// One step; the number is the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    ClockSteps,
    /// An attempt, a renewal or a release, whichever is next.
    Send(usize),
    SendRefresh(usize),
    SendRaise(usize),
    /// A transfer. The second value says whether waiters go first.
    SendTransfer(usize, bool),
    /// A ticket. The client's next owner then asks for the grant.
    Ticket(usize),
    Leave(usize),
    /// The server takes the client's next request.
    Take(usize),
    /// The server is out of memory while it takes the client's next request.
    TakeFull(usize),
    /// The server takes a request that was left on the connection before.
    TakeUnanswered(usize),
    Hear(usize),
    Prove(usize),
    Heed(usize),
    Change(usize, Ear),
    Crash(usize, Ear),
    /// An operator frees the lock of a crashed client.
    Force,
}

impl Step {
    pub(crate) fn of(self) -> Option<usize> {
        match self {
            Self::Tick | Self::ClockSteps | Self::Force => None,
            Self::Send(at)
            | Self::SendRefresh(at)
            | Self::SendRaise(at)
            | Self::SendTransfer(at, _)
            | Self::Ticket(at)
            | Self::Leave(at)
            | Self::Take(at)
            | Self::TakeFull(at)
            | Self::TakeUnanswered(at)
            | Self::Hear(at)
            | Self::Prove(at)
            | Self::Heed(at)
            | Self::Change(at, _)
            | Self::Crash(at, _) => Some(at),
        }
    }
}

pub(crate) type Next = Result<World, &'static str>;

impl World {
    pub(crate) fn new(setting: &Setting, redis: &mut Redis) -> Self {
        Self {
            now: 0,
            skew: 0,
            store: redis.empty(),
            clients: vec![Client::new(&setting.rules); setting.clients],
            top: 0,
            faults: setting.faults,
        }
    }

    pub(crate) fn server_now(&self) -> Tick {
        self.now + self.skew
    }

    /// The clients that count as listeners, or that no message can reach: a set of bits.
    fn heard(&self, rules: &Rules) -> u8 {
        let counts = |at: usize| match rules.pushes {
            Pushes::NotToTheFirst if at == 0 => true,
            Pushes::Denied => true,
            Pushes::All | Pushes::NotToTheFirst => self.clients[at].ear != Ear::Closed,
        };
        (0..self.clients.len()).filter(|&at| counts(at)).fold(0, |set, at| set | 1 << at)
    }

    /// All steps that may follow, and more. A step that may not follow has no next world.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + use<> {
        let of = |(at, tickets): (usize, bool)| {
            let steps = [
                Step::Send(at),
                Step::Take(at),
                Step::Hear(at),
                Step::Prove(at),
                Step::Heed(at),
                Step::SendRefresh(at),
                Step::SendRaise(at),
                Step::SendTransfer(at, false),
                Step::SendTransfer(at, true),
                Step::Leave(at),
                Step::TakeUnanswered(at),
                Step::TakeFull(at),
                Step::Change(at, Ear::Closed),
                Step::Change(at, Ear::Ghost),
                Step::Crash(at, Ear::Closed),
                Step::Crash(at, Ear::Ghost),
            ];
            steps.into_iter().chain(tickets.then_some(Step::Ticket(at)))
        };
        let tickets: Vec<_> = self.clients.iter().map(|client| client.resumes > 0).collect();
        [Step::Tick, Step::ClockSteps, Step::Force]
            .into_iter()
            .chain(tickets.into_iter().enumerate().flat_map(of))
    }

    /// The world after a step. It is an error if the step breaks a promise, and `None` if the step
    /// can't be taken.
    pub(crate) fn after(&self, step: Step, setting: &Setting, redis: &mut Redis) -> Option<Next> {
        if !self.may(step) {
            return None;
        }
        let rules = &setting.rules;
        let mut next = self.clone();
        let mut fault = || next.faults.checked_sub(1).map(|left| next.faults = left);
        let done = match step {
            Step::Tick => Ok(next.tick(setting, redis)?),
            Step::ClockSteps => {
                next.skew = Some(setting.skew).filter(|_| self.skew == 0 && setting.skew != 0)?;
                next.store = redis.prune(next.store, next.server_now());
                Ok(())
            }
            Step::Send(at) => Ok(next.clients[at].next(rules, self.now)?),
            Step::SendRefresh(at) => Ok(next.clients[at].refresh(rules, self.now)?),
            Step::SendRaise(at) => Ok(next.clients[at].raise(rules, self.now)?),
            Step::SendTransfer(at, first) => Ok(next.clients[at].transfer(first, rules, self.now)?),
            Step::Ticket(at) => Ok(next.clients[at].resume(rules, self.now)?),
            Step::Leave(at) => Ok(next.clients[at].leave(rules)?),
            Step::Take(at) => next.take(at, false, rules, redis),
            Step::TakeFull(at) => {
                fault()?;
                next.take(at, true, rules, redis)
            }
            Step::TakeUnanswered(at) => {
                let unanswered = next.clients[at].unanswered.remove(0);
                next.run(who(at, unanswered.owner), unanswered.call, false, rules, redis)
                    .map(|_| ())
            }
            Step::Hear(at) => next.clients[at].hear(rules, self.now, self.skew),
            Step::Prove(at) => {
                let window = self.clients[at].messages.first()?.window;
                next.clients[at].prove(rules, self.now)?;
                invariants::proof(&next.clients[at], self.now, window)
            }
            Step::Heed(at) => Ok(next.clients[at].heed()?),
            Step::Change(at, ear) => {
                fault()?;
                Ok(next.clients[at].change(ear)?)
            }
            Step::Crash(at, ear) => {
                fault()?;
                Ok(next.clients[at].crash(ear, rules)?)
            }
            Step::Force => {
                let view = redis.view(self.store);
                let mut grants = match rules.permits {
                    None => Vec::from_iter(view.owner.zip(Some(view.token))),
                    Some(_) => view.permits.tokens(self.server_now()),
                }
                .into_iter();
                let (owner, token) =
                    grants.find(|&(owner, _)| self.clients[owner].phase == Phase::Crashed)?;
                fault()?;
                next.run(owner, Call::ForceRelease { token }, false, rules, redis).map(|_| ())
            }
        };
        let done = done.and_then(|()| invariants::state(&next, rules, redis));
        Some(done.map(|()| next))
    }

    /// Lets one tick pass. Returns `None` if the time of the setting is over.
    fn tick(&mut self, setting: &Setting, redis: &mut Redis) -> Option<()> {
        self.now = Some(self.now + 1).filter(|&now| now <= setting.ticks)?;
        self.clients.iter_mut().for_each(|client| client.ticked(self.now));
        self.store = redis.prune(self.store, self.server_now());
        Some(())
    }

    /// Rules out most impossible steps, cheaply.
    fn may(&self, step: Step) -> bool {
        let client = |at: usize| &self.clients[at];
        match step {
            Step::Tick | Step::ClockSteps => true,
            Step::Send(at) | Step::SendRefresh(at) | Step::Leave(at) => !client(at).is_over(),
            Step::SendRaise(at) => client(at).raises > 0 && client(at).phase == Phase::Holding,
            Step::SendTransfer(at, _) => {
                client(at).transfers > 0 && client(at).phase == Phase::Holding
            }
            Step::Ticket(at) => client(at).phase == Phase::Holding,
            Step::Take(at) => !client(at).requests.is_empty(),
            Step::TakeFull(at) => self.faults > 0 && !client(at).requests.is_empty(),
            Step::TakeUnanswered(at) => !client(at).unanswered.is_empty(),
            Step::Hear(at) => !client(at).replies.is_empty(),
            Step::Prove(at) | Step::Heed(at) => !client(at).messages.is_empty(),
            Step::Change(at, _) | Step::Crash(at, _) => self.faults > 0 && !client(at).is_over(),
            Step::Force => {
                self.faults > 0 && self.clients.iter().any(|client| client.phase == Phase::Crashed)
            }
        }
    }

    fn take(
        &mut self,
        at: usize,
        full: bool,
        rules: &Rules,
        redis: &mut Redis,
    ) -> Result<(), &'static str> {
        let client = &mut self.clients[at];
        let request = client.requests.remove(0);
        // The client subscribes before its first request.
        client.ear = Ear::Open;
        let answer = self.run(who(at, request.owner), request.call, full, rules, redis)?;
        let client = &mut self.clients[at];
        if [client.asked, client.refreshing].contains(&Some(request)) {
            client.replies.push((request, answer));
        }
        Ok(())
    }

    fn run(
        &mut self,
        by: usize,
        call: Call,
        full: bool,
        rules: &Rules,
        redis: &mut Redis,
    ) -> Result<Answer, &'static str> {
        let moment = Moment { now: self.server_now(), heard: self.heard(rules), full };
        let (store, answer, told) = redis.run(self.store, by, call, moment);
        let before = redis.view(self.store);
        let after = redis.view(store);
        let change = invariants::Change {
            before: &before,
            after: &after,
            by,
            call,
            moment,
            top: self.top,
            goes_back: self.skew < 0,
        };
        let grows = matches!(call, Call::Acquire { .. }) && !before.knows(by % CLIENTS);
        if answer == Answer::Refused && !grows {
            return Err("a full server refused a request that needs no memory");
        }
        change.check(rules)?;
        self.store = store;
        self.top = self.top.max(after.token);
        if let Some((to, message)) = told
            && self.clients[to].ear == Ear::Open
            && self.clients[to].phase == Phase::Waiting
        {
            self.clients[to].messages.push(message);
        }
        Ok(answer)
    }
}
