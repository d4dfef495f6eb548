//! Checks that each live claim soon gets the lock once nothing fails any more.

use crate::{
    calls::{Redis, Tick},
    client::{Client, Ear, Phase},
    rules::Pushes,
    search::Found,
    world::{Setting, Step, World},
};

pub(crate) const HANGS: &str = "a claim hangs";

/// How many ticks that takes at most. One run takes messages as proofs and lets unanswered attempts
/// arrive; the other one does neither.
pub(crate) fn all(world: &World, setting: &Setting, redis: &mut Redis) -> Result<Tick, Found> {
    let mut slowest = 0;
    for (proofs, unanswered) in [(true, true), (false, false)] {
        let mut calm = Calm { world: world.clone(), setting, redis, proofs, trace: Vec::new() };
        let found = |broken, trace| Found { broken, trace };
        slowest = slowest.max(calm.run(unanswered).map_err(|broken| found(broken, calm.trace))?);
    }
    Ok(slowest)
}

struct Calm<'a> {
    world: World,
    setting: &'a Setting,
    redis: &'a mut Redis,
    proofs: bool,
    trace: Vec<Step>,
}

impl Calm<'_> {
    fn run(&mut self, unanswered: bool) -> Result<Tick, &'static str> {
        let rules = &self.setting.rules;
        let crashed = self.world.clients.iter().filter(|client| client.phase == Phase::Crashed);
        let counted = crashed
            .filter(|client| client.ear == Ear::Ghost || rules.pushes != Pushes::All)
            .count();
        let counted = Tick::try_from(counted).expect("few");
        // A crashed client may hold the lock for a whole lease. It may also be given the lock for a
        // window while it still counts as a listener. A release may have to wait for an unanswered
        // attempt, and two ticks pass between polls. The grant of a ticket that no claim uses stays
        // for a whole lease, too.
        let keeps = |client: &Client| client.phase == Phase::Crashed || client.ticket != 0;
        let kept = self.world.clients.iter().any(keeps);
        let held = if kept { rules.lease + 2 } else { rules.window };
        let bound = held + counted * rules.window + rules.op_timeout + 2;
        if unanswered {
            for at in 0..self.world.clients.len() {
                while self.step(Step::TakeUnanswered(at))? {}
            }
        }
        for passed in 0..=bound {
            for client in &mut self.world.clients {
                let more = u8::from(!client.is_over());
                (client.attempts, client.refreshes, client.releases, client.extends) =
                    (more, more, more, 0);
                (client.raises, client.transfers) = (0, 0);
                client.resumes = u8::from(client.phase == Phase::Resuming);
            }
            while self.go_on()? {}
            if self.world.clients.iter().all(Client::is_over) {
                return Ok(passed);
            }
            self.step(Step::Tick)?;
        }
        Err(HANGS)
    }

    /// Takes the step that comes next if all goes well in this tick; false if there is none.
    fn go_on(&mut self) -> Result<bool, &'static str> {
        for at in 0..self.world.clients.len() {
            if self.world.clients[at].is_over() {
                continue;
            }
            let holds = self.world.clients[at].phase == Phase::Holding;
            let steps = [
                Some(Step::Take(at)),
                Some(Step::Hear(at)),
                self.proofs.then_some(Step::Prove(at)),
                Some(Step::Heed(at)),
                holds.then_some(Step::Leave(at)),
                Some(Step::Send(at)),
                Some(Step::SendRefresh(at)),
            ];
            for step in steps.into_iter().flatten() {
                if self.step(step)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// False if this step can't be taken.
    fn step(&mut self, step: Step) -> Result<bool, &'static str> {
        let endless = Setting { ticks: Tick::MAX, skew: 0, ..*self.setting };
        let Some(next) = self.world.after(step, &endless, self.redis) else { return Ok(false) };
        self.trace.push(step);
        self.world = next?;
        Ok(true)
    }
}
