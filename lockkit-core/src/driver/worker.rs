//! The one background task of a locker: it does the work in the agenda.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::task::{consume_budget, unconstrained};

use super::{
    agenda::{Agenda, Cleanup, Work},
    release::{clean_up, release_held},
    renew::renew_due,
};

/// Reports to the agenda when the task ends, also when its runtime is shut down.
struct Attendance(Arc<Agenda>);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Works on the agenda until no more work can come.
pub(crate) fn work(agenda: Arc<Agenda>) -> BoxFuture<'static, ()> {
    Box::pin(Attendance(agenda).work())
}

impl Attendance {
    async fn work(self) {
        let agenda = &self.0;
        let mut renewals = FuturesUnordered::new();
        let mut cleanups = FuturesUnordered::new();
        loop {
            let Work { due, cleanups: left, woken, next, last } = agenda.take_work();
            for held in woken {
                agenda.hasten(&held);
            }
            // FuturesUnordered polls a new future at once, so a wake-up that went to its former
            // task is not lost. Unconstrained, because otherwise tokio's budget would let only the
            // first 128 of them work. The others would be polled in vain, again and again.
            let left = left.into_iter().map(|cleanup| Todo { agenda, cleanup: Some(cleanup) });
            cleanups.extend(left.map(|todo| unconstrained(caught(finish(todo)))));
            renewals.extend(
                due.into_iter()
                    .map(|held| unconstrained(caught(renew_due(Arc::clone(agenda), held)))),
            );
            if last && cleanups.is_empty() && renewals.is_empty() {
                return;
            }
            tokio::select! {
                // A fixed order, so that a run can be repeated. All work that is done is removed
                // below.
                biased;
                Some(()) = renewals.next() => {}
                Some(()) = cleanups.next() => {}
                () = agenda.locker.work.notified() => {}
                () = agenda.locker.clock.watch_until(next) => {}
            }
            drain(&mut renewals).await;
            drain(&mut cleanups).await;
        }
    }
}

/// Removes the work that is done, and lets other tasks run now and then.
async fn drain(work: &mut FuturesUnordered<impl Future<Output = ()>>) {
    while let Some(Some(())) = work.next().now_or_never() {
        consume_budget().await;
    }
}

/// A panic ends only the piece of work that it came from.
async fn caught(work: impl Future<Output = ()>) {
    let _ = AssertUnwindSafe(work).catch_unwind().await;
}

/// A cleanup that returns to the agenda if its runtime ends before it begins.
struct Todo<'a> {
    agenda: &'a Arc<Agenda>,
    cleanup: Option<Cleanup>,
}

impl Drop for Todo<'_> {
    fn drop(&mut self) {
        if let Some(cleanup) = self.cleanup.take() {
            self.agenda.push(cleanup);
        }
    }
}

async fn finish(mut todo: Todo<'_>) {
    let Some(cleanup) = todo.cleanup.take() else { return };
    let agenda = Arc::clone(todo.agenda);
    match cleanup {
        Cleanup::Attempt(attempting, held) => {
            if let (Some(claim), _) = attempting.await {
                clean_up(agenda, claim, held).await;
            }
        }
        Cleanup::Claim(claim, held) => clean_up(agenda, claim, held).await,
        Cleanup::Finish(future) => future.await,
        Cleanup::Release(held, reply) => {
            let outcome = release_held(agenda, held).await;
            if let Some(reply) = reply {
                // The caller may have dropped the receiver.
                let _ = reply.send(outcome);
            }
        }
    }
}
