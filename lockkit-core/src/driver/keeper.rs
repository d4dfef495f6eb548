//! Has a task work on a locker's agenda, for as long as somebody has the locker or a guard.

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
use crate::error::{Error, ErrorKind, Result};

/// The handle that lockers and guards share. The last one dropped ends the task, once nothing is
/// left to do; the task and the timers hold the agenda only.
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

    pub(crate) fn locker(&self) -> &Arc<LockerState> {
        &self.agenda.locker
    }

    /// Spawns the task at first use, and again after its runtime has gone.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`]: there is no runtime here that could run it.
    pub(crate) fn ensure(&self) -> Result<()> {
        ensure(&self.agenda)
    }
}

/// As [`Keeper::ensure`], for what must not keep the task at work.
pub(crate) fn ensure(agenda: &Arc<Agenda>) -> Result<()> {
    let runtime = Handle::try_current().map_err(|_| {
        Error::new(
            ErrorKind::NoRuntime,
            "lockkit works inside a tokio runtime, and there is none here",
        )
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
        runtime.spawn((agenda.worker)(Arc::clone(agenda)));
    }
    Ok(())
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

/// Waits until no claim lives. False if one outlives the shutdown by far: a future that nobody
/// polls any more may hold it for ever.
pub(crate) async fn until_quiet(agenda: &Arc<Agenda>) -> bool {
    let locker = &agenda.locker;
    let clock = locker.clock;
    let begun = locker.draining_since().unwrap_or_else(|| clock.now());
    // One ttl until the last guard is lost, and twice that to release what a silent store does not
    // answer for.
    let end = begun.after(locker.longest_ttl() * 3);
    loop {
        let mut quiet = pin!(locker.quiet.notified());
        quiet.as_mut().enable();
        if locker.live_claims() == 0 {
            return true;
        }
        // The task may go with its runtime meanwhile, and what it had to do is what this waits for.
        let _ = ensure(agenda);
        tokio::select! {
            () = clock.sleep_until(end) => return locker.live_claims() == 0,
            () = quiet => {}
        }
        // A runtime that is about to go drops a new task at once, which comes here again: it waits
        // for this one to pause, and so would this one for it.
        if locker.live_claims() > 0 {
            clock.sleep_until(clock.now().after(Duration::from_millis(1))).await;
        }
    }
}
