//! Starts the background task of a locker, and keeps it at work while a locker or a guard lives.

use std::{
    cell::Cell,
    panic::catch_unwind,
    pin::pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    runtime::{Handle, Id},
    time,
};

use super::{agenda::Agenda, locker_state::LockerState};
use crate::{
    error::{Error, ErrorKind, Result},
    spi::Backend,
};

/// The handle that lockers and guards share. When the last one is dropped, the task ends as soon as
/// no work is left. The task and the timers hold only the agenda.
#[derive(Debug)]
pub(crate) struct Keeper {
    agenda: Arc<Agenda>,
    /// Kept for calls that only have the agenda.
    _backend: Arc<dyn Backend>,
}

impl Keeper {
    pub(crate) fn new(agenda: Agenda, backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self { agenda: Arc::new(agenda), _backend: backend })
    }

    pub(crate) fn agenda(&self) -> &Arc<Agenda> {
        &self.agenda
    }

    pub(crate) fn locker(&self) -> &Arc<LockerState> {
        &self.agenda.locker
    }

    /// Spawns the task at first use, and again after its runtime has ended.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`]: there is no runtime here that could run the task.
    pub(crate) fn ensure(&self) -> Result<()> {
        ensure(&self.agenda)
    }
}

/// As [`Keeper::ensure`], for a caller that must not keep the task at work.
pub(crate) fn ensure(agenda: &Arc<Agenda>) -> Result<()> {
    let runtime = Handle::try_current().map_err(|_| {
        Error::new(
            ErrorKind::NoRuntime,
            "there is no tokio runtime here, and lockkit needs one; call it from inside a runtime",
        )
    })?;
    // A runtime that has ended has no tasks.
    let is_timed = || TIMED.get() == Some(runtime.id()) && runtime.metrics().num_alive_tasks() > 0;
    if agenda.is_attended() && is_timed() {
        return Ok(());
    }
    // Checked also where the task runs on another runtime: a caller without timers would wait for
    // ever.
    if !has_timers() {
        let text = "the tokio runtime here has ended or has no timers; build the runtime with \
                    `enable_time` or `enable_all`";
        return Err(Error::new(ErrorKind::NoRuntime, text));
    }
    TIMED.set(Some(runtime.id()));
    if !agenda.attended.swap(true, SeqCst) {
        #[expect(clippy::disallowed_methods, reason = "the one background task itself")]
        runtime.spawn((agenda.worker)(Arc::clone(agenda)));
    }
    Ok(())
}

thread_local! {
    /// The last runtime of this thread that was seen to have timers.
    static TIMED: Cell<Option<Id>> = const { Cell::new(None) };
}

/// tokio reports missing timers only by a panic. After a runtime has ended, it panics when the
/// timer is polled.
fn has_timers() -> bool {
    catch_unwind(|| time::sleep(Duration::ZERO).now_or_never()).is_ok()
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.agenda.orphan();
    }
}

/// Waits until no task works on the agenda. The task works while a locker, a guard or a hold
/// without a guard is left, and then finishes what they left behind.
#[cfg(feature = "blocking")]
pub(crate) async fn until_ended(agenda: &Agenda) {
    loop {
        let mut ended = pin!(agenda.locker.quiet.notified());
        ended.as_mut().enable();
        if !agenda.is_attended() {
            return;
        }
        ended.await;
    }
}

/// Waits until no claim lives. Returns false if a claim outlives the shutdown by far: a future that
/// is not polled any more may hold it for ever.
pub(crate) async fn until_quiet(agenda: &Arc<Agenda>) -> bool {
    let locker = &agenda.locker;
    let clock = locker.clock;
    let begun = locker.draining_since().unwrap_or_else(|| clock.now());
    // One ttl until the last guard is lost, and two more to release what a silent store does not
    // confirm.
    let end = begun.after(locker.longest_ttl() * 3);
    loop {
        let mut quiet = pin!(locker.quiet.notified());
        quiet.as_mut().enable();
        if locker.live_claims() == 0 {
            return true;
        }
        // The task may end with its runtime meanwhile, and this call waits for the work of that
        // task.
        let _ = ensure(agenda);
        tokio::select! {
            () = clock.sleep_until(end) => return locker.live_claims() == 0,
            () = quiet => {}
        }
        // A runtime that is about to end drops a new task at once, and `quiet` then wakes this
        // loop. That runtime waits until this future pauses, and without the pause this future
        // would wait for that runtime.
        if locker.live_claims() > 0 {
            clock.sleep_until(clock.now().after(Duration::from_millis(1))).await;
        }
    }
}
