//! The one background task of a locker.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::{
    runtime::{Handle, Id},
    task::{consume_budget, unconstrained},
    time,
};

use super::{
    agenda::{Agenda, Chore, Work},
    release::{clean_up, release_held},
    renew::renew_due,
};
use crate::error::{Error, ErrorKind, Result};

/// The handle that lockers and guards share. The last one dropped ends the task, once nothing is left to do; the
/// task and the timers hold the agenda only.
#[derive(Debug)]
pub(crate) struct Keeper {
    agenda: Arc<Agenda>,
}

impl Keeper {
    pub(crate) fn new(agenda: Agenda) -> Arc<Self> {
        Arc::new(Self { agenda: Arc::new(agenda) })
    }

    pub(crate) fn agenda(&self) -> &Arc<Agenda> {
        &self.agenda
    }

    /// Spawns the task at first use, and again after its runtime has gone.
    pub(crate) fn ensure(&self) -> Result<()> {
        Self::attend(&self.agenda)
    }

    /// As [`ensure`](Self::ensure), for what must not keep the task at work.
    pub(crate) fn attend(agenda: &Arc<Agenda>) -> Result<()> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::NoRuntime, "lockkit works inside a tokio runtime, and there is none here")
        })?;
        // One that has ended has no tasks.
        let is_timed = || TIMED.get() == Some(runtime.id()) && runtime.metrics().num_alive_tasks() > 0;
        if agenda.is_attended() && is_timed() {
            return Ok(());
        }
        // Also where the keeper is at work elsewhere: a caller without timers would wait for ever.
        if !has_timers() {
            let text = "the tokio runtime here has ended, or has no timers; build it with `enable_time` or `enable_all`";
            return Err(Error::new(ErrorKind::NoRuntime, text));
        }
        TIMED.set(Some(runtime.id()));
        if !agenda.attended.swap(true, SeqCst) {
            #[expect(clippy::disallowed_methods, reason = "the one background task itself")]
            runtime.spawn(Attendance(Arc::clone(agenda)).work());
        }
        Ok(())
    }
}

thread_local! {
    /// The last runtime of this thread that was seen to have timers.
    static TIMED: Cell<Option<Id>> = const { Cell::new(None) };
}

/// tokio tells it by a panic only, and of a runtime that has ended when the timer is polled.
fn has_timers() -> bool {
    catch_unwind(|| time::sleep(Duration::ZERO).now_or_never()).is_ok()
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.agenda.orphan();
    }
}

/// The task's own presence: when it goes, also by a runtime that is shut down, the agenda learns it.
struct Attendance(Arc<Agenda>);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Attendance {
    async fn work(self) {
        let agenda = &self.0;
        let (mut renewals, mut chores) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            let Work { due, chores: left, rung, next, last } = agenda.take_work();
            for held in rung {
                agenda.hasten(&held);
            }
            // FuturesUnordered polls a new future at once: a wake-up that went to its former task is not lost.
            // Unconstrained: else all but the first 128 of them are polled in vain, again and again.
            let left = left.into_iter().map(|chore| Todo { agenda, chore: Some(chore) });
            chores.extend(left.map(|todo| unconstrained(caught(finish(todo)))));
            renewals.extend(due.into_iter().map(|held| unconstrained(caught(renew_due(held)))));
            if last && chores.is_empty() && renewals.is_empty() {
                return;
            }
            tokio::select! {
                biased; // in a fixed order, that a run can be repeated: whatever it was, all that is done is taken out
                Some(()) = renewals.next() => {}
                Some(()) = chores.next() => {}
                () = agenda.bell.notified() => {}
                () = agenda.clock.watch_until(next) => {}
            }
            drain(&mut renewals).await;
            drain(&mut chores).await;
        }
    }
}

/// Takes what is done, and gives way to other tasks now and then.
async fn drain(work: &mut FuturesUnordered<impl Future<Output = ()>>) {
    while let Some(Some(())) = work.next().now_or_never() {
        consume_budget().await;
    }
}

/// A panic ends the one piece of work that it came from.
async fn caught(work: impl Future<Output = ()>) {
    let _ = AssertUnwindSafe(work).catch_unwind().await;
}

/// A chore that goes back to the agenda if its runtime ends before it begins.
struct Todo<'a> {
    agenda: &'a Agenda,
    chore: Option<Chore>,
}

impl Drop for Todo<'_> {
    fn drop(&mut self) {
        if let Some(chore) = self.chore.take() {
            self.agenda.push(chore);
        }
    }
}

async fn finish(mut todo: Todo<'_>) {
    let Some(chore) = todo.chore.take() else { return };
    match chore {
        Chore::Attempt(attempting, held) => {
            if let (Some(claim), _) = attempting.await {
                clean_up(claim, held).await;
            }
        }
        Chore::Claim(claim, held) => clean_up(claim, held).await,
        Chore::Finish(future) => future.await,
        Chore::Release(held, reply) => {
            let outcome = release_held(held).await;
            if let Some(reply) = reply {
                // Nobody may wait for it any more.
                let _ = reply.send(outcome);
            }
        }
    }
}
