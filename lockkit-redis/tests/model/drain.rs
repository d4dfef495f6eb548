//! From now on nothing fails: everyone who lives must get the lock, and soon.

use crate::{
    calls::{Redis, Tick},
    client::{Ear, Phase},
    world::{Setting, Step, World},
};

/// How many ticks it takes at most, whether messages are taken for proofs or not, and strays arrive or not.
pub(crate) fn all(world: &World, setting: &Setting, redis: &mut Redis) -> Result<Tick, &'static str> {
    let mut slowest = 0;
    for (proofs, strays) in [(true, true), (false, false)] {
        slowest = slowest.max(drain(world.clone(), setting, redis, proofs, strays)?);
    }
    Ok(slowest)
}

fn drain(
    mut world: World,
    setting: &Setting,
    redis: &mut Redis,
    proofs: bool,
    strays: bool,
) -> Result<Tick, &'static str> {
    let rules = &setting.rules;
    let endless = Setting { ticks: Tick::MAX, faults: 0, skew: 0, ..*setting };
    let crashed = world.clients.iter().filter(|client| client.phase == Phase::Crashed);
    let counted = Tick::try_from(crashed.clone().filter(|client| client.ear == Ear::Ghost).count()).expect("few");
    // Who crashed may hold the lock for a whole lease, and be given it for a window while it still counts as a
    // listener; a release may have to wait for a stray; and two ticks pass between polls.
    let held = if crashed.count() > 0 { rules.lease + 2 } else { rules.window };
    let bound = held + counted * rules.window + rules.op_timeout + 2;
    if strays {
        for at in 0..world.clients.len() {
            while let Some(next) = world.after(Step::TakeStray(at), &endless, redis) {
                world = next?;
            }
        }
    }
    for passed in 0..=bound {
        for client in &mut world.clients {
            let more = u8::from(matches!(client.phase, Phase::Waiting | Phase::Holding | Phase::Leaving));
            (client.attempts, client.refreshes, client.releases, client.extends) = (more, more, more, 0);
        }
        while let Some(next) = calm(&world, proofs, &endless, redis) {
            world = next?;
        }
        if world.clients.iter().all(|client| matches!(client.phase, Phase::Done | Phase::Crashed)) {
            return Ok(passed);
        }
        world = world.after(Step::Tick, &endless, redis).expect("time goes on")?;
    }
    Err("a claim hangs")
}

/// What happens next if all goes well in this tick.
fn calm(world: &World, proofs: bool, endless: &Setting, redis: &mut Redis) -> Option<Result<World, &'static str>> {
    (0..world.clients.len()).find_map(|at| {
        let client = &world.clients[at];
        if matches!(client.phase, Phase::Done | Phase::Crashed) {
            return None;
        }
        let proof = proofs.then_some(Step::Prove(at));
        let leave = (client.phase == Phase::Holding).then_some(Step::Leave(at));
        let steps = [Some(Step::Take(at)), Some(Step::Hear(at)), proof, Some(Step::Heed(at)), leave];
        let steps = steps.into_iter().flatten().chain([Step::Send(at), Step::SendRefresh(at)]);
        steps.into_iter().find_map(|step| world.after(step, endless, redis))
    })
}
