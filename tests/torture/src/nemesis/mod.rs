//! Causes the faults of a plan, and records the start and the end of each fault.

mod companions;
mod fleet;
mod last;
mod ours;
mod plan;
mod servers;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

pub use self::plan::Plan;
pub(crate) use self::{
    companions::Companions,
    fleet::{Crew, Fleet, Life},
    last::kill_a_holder,
    ours::hurt_processes,
    plan::{Deck, KILL_HOLDER},
    servers::{Hands, hurt_servers},
};
use crate::history::{Event, Writer};

/// The director's part of the history.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    pub(crate) writer: Writer,
    faults: Arc<AtomicU32>,
    skipped: Arc<Mutex<Vec<&'static str>>>,
}

impl Notes {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer, faults: Arc::default(), skipped: Arc::default() }
    }

    /// Records that a fault begins, and returns its number.
    fn strikes(
        &self,
        kind: &str,
        target: String,
        victim: Option<u32>,
        weakens: Option<&str>,
    ) -> u32 {
        let fault = self.faults.fetch_add(1, Relaxed) + 1;
        let kind = kind.to_owned();
        let weakens = weakens.map(str::to_owned);
        self.writer.write(Event::Strikes { fault, kind, target, victim, weakens });
        fault
    }

    fn heals(&self, fault: u32) {
        self.writer.write(Event::Heals { fault });
    }

    /// Records that no time was left for a fault of this kind.
    fn skips(&self, kind: &'static str) {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).push(kind);
    }

    /// The kinds of faults without time left, once for each fault.
    pub(crate) fn skipped(&self) -> Vec<&'static str> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a leftover.
    pub(crate) fn leaks(&self, what: String) {
        self.writer.write(Event::Leaks { what });
    }
}

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) start: Instant,
    pub(crate) span: Duration,
}

impl Schedule {
    /// Waits for the time of a fault. Returns false if there is no more time for the fault, because
    /// an earlier fault took longer than planned.
    async fn reaches(&self, at: Duration, lasts: Duration) -> bool {
        sleep_until(self.start + at).await;
        Instant::now() + lasts <= self.start + self.span + Duration::from_secs(1)
    }

    /// Waits until the time is over.
    async fn ends(&self) {
        sleep_until(self.start + self.span).await;
    }
}
