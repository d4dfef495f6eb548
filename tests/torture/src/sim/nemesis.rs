//! The episodes of a run: pauses, silences, deaths, evictions.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    dice::Dice,
    link::{World, pause},
    process::Running,
    register::Register,
    scenario::Scenario,
};
use crate::history::{DIRECTOR, Event};

/// The documented reason why two processes may believe for a while that they hold.
const EVICTED: &str = "an operator freed it: the holder learns it at its next renewal";

/// Single requests fail, all the time.
const WEATHER: &str = "weather";
/// The number of the weather among the faults.
const THE_WEATHER: u32 = 1;

/// Within this time another retry has happened.
const LAST_RETRY: Duration = Duration::from_millis(1_300);

pub(super) struct Nemesis {
    world: Arc<World>,
    register: Arc<Register>,
    scenario: Arc<Scenario>,
    dice: Dice,
    faults: u32,
    next_process: u32,
}

impl Nemesis {
    pub(super) fn new(
        world: &Arc<World>,
        register: &Arc<Register>,
        scenario: &Arc<Scenario>,
    ) -> Self {
        Self {
            world: Arc::clone(world),
            register: Arc::clone(register),
            scenario: Arc::clone(scenario),
            dice: Dice::new(scenario.seed, 3),
            faults: 0,
            next_process: scenario.processes + 1,
        }
    }

    /// Causes faults at random until all tasks have ended.
    pub(super) async fn rage(&mut self, processes: &mut Vec<Running>, dead: &mut Vec<Running>) {
        if !self.scenario.weather.is_fair() {
            self.strikes(WEATHER, "all requests".to_owned(), None, None);
        }
        let mut often = self.scenario.weather.episodes;
        while !processes.iter().all(Running::is_done) {
            sleep(self.dice.ms(10..=60)).await;
            if !self.dice.chance(often) {
                continue;
            }
            match self.dice.small(0..=9) {
                0..=2 => self.silence().await,
                3..=5 => self.pause(processes).await,
                6..=7 => self.evict(),
                _ => {
                    self.kill(processes, dead);
                    often /= 2; // each death starts new tasks
                }
            }
        }
    }

    fn strikes(
        &mut self,
        kind: &'static str,
        target: String,
        victim: Option<u32>,
        weakens: Option<&str>,
    ) {
        self.faults += 1;
        self.world.log.count(kind);
        let fault = self.faults;
        let kind = kind.to_owned();
        let weakens = weakens.map(str::to_owned);
        self.world.log.write(DIRECTOR, Event::Strikes { fault, kind, target, victim, weakens });
    }

    fn heals(&self) {
        self.heals_the(self.faults);
    }

    fn heals_the(&self, fault: u32) {
        self.world.log.write(DIRECTOR, Event::Heals { fault });
    }

    async fn silence(&mut self) {
        let length = self.dice.ms(10..=400);
        self.strikes("silent store", "store".to_owned(), None, None);
        self.world.fall_silent(Instant::now() + length);
        sleep(length).await;
        self.heals();
    }

    async fn pause(&mut self, processes: &[Running]) {
        let length = self.scenario.longest_ttl() + self.dice.up_to(self.scenario.longest_ttl());
        let process = &self.choose(processes).process;
        let number = process.number();
        process.link.pause(Instant::now() + length);
        self.strikes("paused process", format!("process {number}"), Some(number), None);
        sleep(length).await;
        self.heals();
    }

    fn evict(&mut self) {
        let held = self.world.store.held();
        if held.is_empty() {
            return;
        }
        let at = self.dice.number(0..=u64::try_from(held.len()).unwrap_or(1) - 1);
        let Some((name, token)) = held.into_iter().nth(usize::try_from(at).unwrap_or(0)) else {
            return;
        };
        self.strikes("eviction", name.to_string(), None, Some(EVICTED));
        let (_, wakes) = self.world.store.free(DIRECTOR, &name, lockkit::FencingToken::new(token));
        self.world.wake(wakes);
        self.heals();
    }

    fn kill(&mut self, processes: &mut Vec<Running>, dead: &mut Vec<Running>) {
        let number = self.choose(processes).process.number();
        let Some(at) = processes.iter().position(|running| running.process.number() == number)
        else {
            return;
        };
        let mut victim = processes.remove(at);
        self.strikes("death", format!("process {number}"), Some(number), None);
        victim.die();
        self.world.log.write(DIRECTOR, Event::Died { victim: number });
        self.heals();
        self.world.store.bury(number);
        dead.push(victim);
        processes.push(Running::start(
            &self.world,
            &self.register,
            &self.scenario,
            self.next_process,
        ));
        self.next_process += 1;
    }

    fn choose<'a>(&self, processes: &'a [Running]) -> &'a Running {
        let last = u64::try_from(processes.len()).unwrap_or(1) - 1;
        &processes[usize::try_from(self.dice.number(0..=last)).unwrap_or(0)]
    }

    /// Waits until no request or reply is in flight any more.
    pub(super) async fn settle(&self) {
        self.world.calm();
        if !self.scenario.weather.is_fair() {
            self.heals_the(THE_WEATHER);
        }
        pause(self.scenario.longest_ttl() * 2 + LAST_RETRY).await;
    }
}
