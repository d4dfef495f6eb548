//! Looks for a way to break a promise: through all states, breadth first, or along random walks.

use std::{
    collections::{HashSet, VecDeque},
    hash::{Hash, Hasher},
};

use crate::{
    calls::{Redis, Tick},
    drain,
    rules::Rules,
    world::{Setting, Step, World},
};

/// A broken promise, and the steps that broke it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) broken: &'static str,
    pub(crate) trace: Vec<Step>,
}

impl Found {
    /// The same promise, broken after these steps.
    pub(crate) fn behind(self, mut steps: Vec<Step>) -> Self {
        steps.extend(self.trace);
        Self { broken: self.broken, trace: steps }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// False if there were more states than the limit.
    pub(crate) complete: bool,
    pub(crate) slowest_drain: i16,
}

/// Visits every state that can be reached, up to a limit. From one in `drains` of them, checks that
/// all claims end if nothing more fails.
pub(crate) fn exhaust(
    setting: &Setting,
    redis: &mut Redis,
    limit: usize,
    drains: u64,
) -> Result<Report, Found> {
    let start = World::new(setting, redis);
    let fresh = start.clients[0].clone();
    let mut seen = HashSet::from([print(&start)]);
    let mut parents: Vec<(usize, Step)> = vec![(0, Step::Tick)];
    let mut open = VecDeque::from([(0, start)]);
    let mut report = Report { complete: true, ..Report::default() };
    while let Some((id, world)) = open.pop_front() {
        for step in world.steps() {
            // All clients begin alike, so they may begin in order.
            if step.of().is_some_and(|at| at > 0 && world.clients[at - 1] == fresh) {
                continue;
            }
            let Some(next) = world.after(step, setting, redis) else { continue };
            report.steps += 1;
            let before = || trace(&parents, id, Some(step));
            let next = next.map_err(|broken| Found { broken, trace: before() })?;
            let mark = print(&next);
            if !seen.insert(mark) {
                continue;
            }
            if mark.is_multiple_of(drains) {
                let slowest =
                    drain::all(&next, setting, redis).map_err(|found| found.behind(before()))?;
                report.slowest_drain = report.slowest_drain.max(slowest);
            }
            parents.push((id, step));
            open.push_back((parents.len() - 1, next));
        }
        if parents.len() > limit {
            report.complete = false;
            break;
        }
    }
    report.states = parents.len();
    Ok(report)
}

fn print(world: &World) -> u64 {
    let mut hasher = Print(0);
    world.hash(&mut hasher);
    hasher.0
}

/// 64 bits tell a few million states apart. The standard hasher would take most of the time here.
struct Print(u64);

impl Print {
    fn mix(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 29;
    }
}

impl Hasher for Print {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_i16(&mut self, number: i16) {
        self.mix(u64::from(number.cast_unsigned()));
    }

    fn write_i64(&mut self, number: i64) {
        self.mix(number.cast_unsigned());
    }

    fn write_isize(&mut self, number: isize) {
        self.write_i64(i64::try_from(number).expect("64 bits"));
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(u64::try_from(number).expect("64 bits"));
    }
}

fn trace(parents: &[(usize, Step)], mut id: usize, last: Option<Step>) -> Vec<Step> {
    let mut steps = Vec::from_iter(last);
    while id != 0 {
        steps.push(parents[id].1);
        id = parents[id].0;
    }
    steps.reverse();
    steps
}

/// Walks of at most 120 steps each, with a drain now and then, until this many steps were taken.
pub(crate) fn walk(
    setting: &Setting,
    redis: &mut Redis,
    seed: u64,
    steps: usize,
) -> Result<Report, Found> {
    let mut dice = Dice(seed);
    let mut report = Report::default();
    while report.steps < steps {
        let mut world = World::new(setting, redis);
        let mut trace = Vec::new();
        for _ in 0..120 {
            let Some((step, next)) = pick(&world, setting, redis, &mut dice) else { break };
            trace.push(step);
            report.steps += 1;
            let drained =
                next.map_err(|broken| Found { broken, trace: Vec::new() }).and_then(|next| {
                    world = next;
                    if dice.below(8) > 0 { Ok(0) } else { drain::all(&world, setting, redis) }
                });
            match drained {
                Ok(slowest) => report.slowest_drain = report.slowest_drain.max(slowest),
                Err(found) => return Err(shrink(found.behind(trace), setting, redis)),
            }
        }
        report.states += 1;
    }
    Ok(report)
}

/// Tries steps at random until one can be taken. A fault, or the end of a claim, comes more rarely.
fn pick(
    world: &World,
    setting: &Setting,
    redis: &mut Redis,
    dice: &mut Dice,
) -> Option<(Step, Result<World, &'static str>)> {
    let mut steps: Vec<Step> = world.steps().collect();
    while !steps.is_empty() {
        let at = dice.below(steps.len());
        let rare = match steps[at] {
            Step::Change(..) | Step::Crash(..) | Step::TakeFull(_) | Step::ClockSteps => 8,
            Step::Leave(_) | Step::TakeUnanswered(_) => 3,
            Step::Tick => 2,
            _ => 1,
        };
        if steps.len() > 1 && dice.below(rare) > 0 {
            continue;
        }
        let step = steps.swap_remove(at);
        if let Some(next) = world.after(step, setting, redis) {
            return Some((step, next));
        }
    }
    None
}

/// Leaves out every step that isn't needed to break the same promise.
fn shrink(Found { broken, mut trace }: Found, setting: &Setting, redis: &mut Redis) -> Found {
    if broken == drain::HANGS {
        return Found { broken, trace };
    }
    // A drain does more than the setting allows to a claim.
    let more = u8::MAX;
    let rules =
        Rules { attempts: more, refreshes: more, releases: more, resumes: more, ..setting.rules };
    let calm = Setting { ticks: Tick::MAX, rules, ..*setting };
    let mut at = trace.len();
    while at > 0 {
        at -= 1;
        let mut shorter = trace.clone();
        shorter.remove(at);
        if let Some(shorter) = breaks(&shorter, broken, &calm, redis) {
            trace = shorter;
            at = at.min(trace.len());
        }
    }
    Found { broken, trace }
}

/// Takes those of the steps that are possible, until the promise is broken.
fn breaks(
    trace: &[Step],
    broken: &'static str,
    setting: &Setting,
    redis: &mut Redis,
) -> Option<Vec<Step>> {
    let mut world = World::new(setting, redis);
    let mut taken = Vec::new();
    for &step in trace {
        let Some(next) = world.after(step, setting, redis) else { continue };
        taken.push(step);
        match next {
            Ok(next) => world = next,
            Err(other) => return (other == broken).then_some(taken),
        }
    }
    None
}

/// xorshift64*
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let end = u64::try_from(end).expect("64 bits");
        let number = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end;
        usize::try_from(number).expect("below a usize")
    }
}
