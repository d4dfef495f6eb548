//! A virtual process: a locker and the tasks that take locks with it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use lockkit::{Clock, Locker, spi::Backend};
use lockkit_conformance::mutant::Mutation;
use tokio::task::JoinHandle;

use super::{
    backend::Simulator,
    dice::Dice,
    link::{Link, World},
    register::Register,
    scenario::Scenario,
    task,
};
use crate::history::{Event, Op};

/// The state that the tasks of a process share.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) link: Arc<Link>,
    pub(super) locker: Locker,
    pub(super) register: Arc<Register>,
    pub(super) scenario: Arc<Scenario>,
    numbers: AtomicU64,
}

impl Process {
    pub(super) fn number(&self) -> u32 {
        self.link.process
    }

    pub(super) fn next_op(&self) -> Op {
        Op { process: self.number(), number: self.numbers.fetch_add(1, Relaxed) }
    }

    /// Writes a record of this process.
    pub(super) fn write(&self, event: Event) {
        self.link.world.log.write(self.number(), event);
    }
}

/// A process and its tasks, as the director keeps them.
pub(super) struct Running {
    pub(super) process: Arc<Process>,
    tasks: VecDeque<JoinHandle<()>>,
}

impl Running {
    /// Starts a process.
    pub(super) fn start(
        world: &Arc<World>,
        register: &Arc<Register>,
        scenario: &Arc<Scenario>,
        number: u32,
    ) -> Self {
        let dice = Dice::new(scenario.seed, u64::from(number) << 8 | 2);
        let link = Link::new(Arc::clone(world), number);
        let mut backend: Arc<dyn Backend> = Arc::new(Simulator::new(Arc::clone(&link)));
        if let Some(flaw) = scenario.flaw {
            backend = Mutation::new(flaw).wrap(backend);
        }
        let locker = Locker::builder(backend).clock(Clock::Tokio).build();
        let locker = locker.with_process_gate(dice.chance(650));
        let process = Arc::new(Process {
            link,
            locker,
            register: Arc::clone(register),
            scenario: Arc::clone(scenario),
            numbers: AtomicU64::new(1),
        });
        process.write(Event::Begins { backend: process.locker.descriptor().name.to_owned() });
        let tasks = (0..scenario.tasks).map(|at| {
            let dice = Dice::new(scenario.seed, u64::from(number) << 8 | u64::from(at) << 3 | 7);
            tokio::spawn(task::run(Arc::clone(&process), dice))
        });
        let tasks = tasks.collect();
        Self { process, tasks }
    }

    /// Kills the process: from here on it sends, receives and records nothing.
    pub(super) fn die(&mut self) {
        self.process.link.die();
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    pub(super) fn is_done(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the tasks have ended. Returns an error if a task panicked.
    pub(super) async fn done(&mut self) -> Result<(), String> {
        while let Some(task) = self.tasks.front_mut() {
            let ended = task.await;
            self.tasks.pop_front();
            if let Err(error) = ended
                && error.is_panic()
            {
                return Err(format!("a task of process {} panicked", self.process.number()));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("process", &self.process).finish_non_exhaustive()
    }
}
