//! Listens for requests to release a hold. The background task looks for them while a call listens.

use std::{future::pending, pin::pin, sync::Arc};

use crate::{
    ask::{ask_name, reason_for},
    clock::sleep,
    driver::{
        agenda::{Agenda, Cleanup},
        held::Held,
        keeper,
        listening::BETWEEN_LOOKS,
    },
    error::Result,
    lost::Lost,
    spi::{Backend, bounded, change_of},
    token::FencingToken,
};

/// Completes with the reason of a request for this hold. It never completes once the lock was given
/// back.
///
/// # Errors
/// [`ErrorKind::Lost`](crate::ErrorKind::Lost), or
/// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime).
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn release_requested(agenda: &Arc<Agenda>, held: &Arc<Held>) -> Result<String> {
    let lost = Lost::new(Arc::clone(held));
    tokio::select! {
        biased;
        _ = lost.wait() => Err(held.lost_error()),
        reason = listen(agenda, held) => reason,
    }
}

async fn listen(agenda: &Arc<Agenda>, held: &Arc<Held>) -> Result<String> {
    let locker = held.locker();
    let listener = held.listening().join();
    loop {
        let mut woken = pin!(held.signal.notified());
        woken.as_mut().enable();
        if held.ending().is_some() {
            break;
        }
        keeper::ensure(agenda)?;
        if let Some(reason) = listener.reason(locker.clock.now()) {
            return Ok(reason);
        }
        let Some(backend) = locker.backend() else { break };
        if held.listening().begin_watch() {
            let watch = Watch { held: Arc::clone(held) };
            agenda.push(Cleanup::Finish(Box::pin(watch.run(backend))));
        }
        // The background task may have ended with its runtime, and this call waits for its work.
        tokio::select! {
            () = woken => {}
            _ = sleep(BETWEEN_LOOKS) => {}
        }
    }
    // The caller hears of a loss from the loss signal.
    drop(listener);
    pending().await
}

/// The looks of the background task. Its drop lets a call that still listens begin another watch.
struct Watch {
    held: Arc<Held>,
}

impl Watch {
    /// Looks about once a second, and when the store reports a change. It ends with the hold, or
    /// when no call listens.
    async fn run(self, backend: Arc<dyn Backend>) {
        let held = &self.held;
        let listening = held.listening();
        let clock = held.locker().clock;
        let name = ask_name(&held.name);
        let stored = held.token().get().saturating_sub(held.locker().token_base);
        let mut change = change_of(Arc::clone(&backend), name.clone());
        let mut waits_for_change = true;
        loop {
            let is_due = tokio::select! {
                biased;
                () = ended(held) => return,
                () = &mut change, if waits_for_change => false,
                () = clock.sleep_until(listening.due()) => true,
            };
            if !listening.is_heard() || !held.is_held() {
                return;
            }
            if is_due && !waits_for_change {
                change = change_of(Arc::clone(&backend), name.clone());
            }
            // After a change, the next look is not due before the usual time: the watch of a broken
            // connection may end at once, each time.
            waits_for_change = is_due;
            listening.begin_look(clock.now());
            // If the store can't answer now, the next look asks again.
            if let Ok(seen) = bounded(held.limits().op_timeout, backend.inspect(&name)).await {
                let reason = reason_for(FencingToken::new(stored), &seen);
                let is_found = reason.is_some();
                listening.end_look(reason);
                if is_found {
                    held.signal.notify_waiters();
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.held.listening().end_watch();
        self.held.signal.notify_waiters();
    }
}

/// Completes when the hold has ended.
async fn ended(held: &Held) {
    loop {
        let mut woken = pin!(held.signal.notified());
        woken.as_mut().enable();
        if held.ending().is_some() {
            return;
        }
        woken.await;
    }
}
