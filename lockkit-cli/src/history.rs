//! Writes a run down beside its lock, for users who ask later. If that fails, the command runs all
//! the same.

use std::time::SystemTime;

use lockkit::LockGuard;

use crate::{
    error::Result,
    journal::{Journal, RecordOutcome, Run, has_history, unix_ms},
    reporter::Reporter,
    store::Store,
};

/// The record of one run: its beginning and its end.
#[derive(Debug)]
pub(crate) struct History<'a> {
    store: &'a Store,
    reporter: Reporter,
    program: String,
    slot: Option<String>,
    /// The journal as it was last written.
    journal: Option<Journal>,
}

impl<'a> History<'a> {
    pub(crate) fn new(
        store: &'a Store,
        reporter: Reporter,
        program: String,
        slot: Option<String>,
    ) -> Self {
        Self { store, reporter, program, slot, journal: None }
    }

    /// A history whose beginning is already written.
    pub(crate) fn begun(self, journal: Journal) -> Self {
        Self { journal: Some(journal), ..self }
    }

    pub(crate) fn run(&self, guard: &LockGuard) -> Run {
        Run::now(guard.fencing_token().get(), &self.program, self.slot.as_deref())
    }

    /// Writes that the run has begun, unless that is already written.
    pub(crate) async fn begin(&mut self, guard: &LockGuard) {
        if self.journal.is_some() {
            return;
        }
        match self.try_begin(guard).await {
            Ok(journal) => self.journal = journal,
            Err(error) => {
                self.reporter.say(&format!("could not record this run in the history: {error}"))
            }
        }
    }

    async fn try_begin(&self, guard: &LockGuard) -> Result<Option<Journal>> {
        if !has_history(guard.name().kind()) {
            return Ok(None);
        }
        let Some(mut journal) = Journal::read(&self.store.locker, guard.name()).await? else {
            return Ok(None);
        };
        let run = self.run(guard);
        let kept = journal.write(guard, |record| record.begin(run)).await?;
        Ok(matches!(kept, RecordOutcome::Written).then_some(journal))
    }

    /// Writes how the run ended.
    pub(crate) async fn end(&mut self, guard: &LockGuard, outcome: &str) {
        let Some(journal) = &mut self.journal else { return };
        let token = guard.fencing_token().get();
        let now = unix_ms(SystemTime::now());
        if let Err(error) = journal.write(guard, |record| record.end(token, now, outcome)).await {
            self.reporter
                .say(&format!("could not record the end of this run in the history: {error}"));
        }
    }

    pub(crate) fn slot(&self) -> Option<&str> {
        self.slot.as_deref()
    }

    /// The journal of a run whose beginning is written.
    pub(crate) fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }
}
