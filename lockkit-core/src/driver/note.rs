//! Writes the note beside a lock, for its holder.

use std::{sync::Arc, time::Duration};

use tokio::sync::MutexGuard;

use super::{agenda::Agenda, held::Held, live::LiveClaim, renew::free_lost};
use crate::{
    error::{Error, ErrorKind, Result},
    spi::{LossReason, Note, Noted},
    within::within,
};

/// Writes a note. While the outcome is unknown, it asks again, within `bound` and before the
/// deadline. A renewal meanwhile moves the deadline.
///
/// # Errors
/// [`ErrorKind::Lost`] if the lock is lost; any other error may mean that the outcome is unknown.
pub(crate) async fn write_note(
    agenda: Arc<Agenda>,
    held: Arc<Held>,
    note: Note,
    bound: Duration,
) -> Result<Noted> {
    let clock = held.locker().clock;
    let last = clock.now().after(bound);
    let left = || clock.now().until(last.min(held.deadline()));
    let mut pause = held.limits().op_timeout / 64;
    let mut unknown = false;
    loop {
        let error = match attempt(&held, &note, left().min(held.limits().op_timeout)).await {
            // An earlier attempt may have written the note while the lock was held.
            Ok(Noted::NotHeld) => {
                held.lose(LossReason::Evicted);
                free_lost(&agenda, &held);
                held.lost_error()
            }
            Ok(noted) => return Ok(noted),
            Err(error) => error,
        };
        unknown |= error.is_outcome_unknown();
        if !error.is_temporary() || left() <= pause {
            let error = if unknown { error.with_outcome_unknown() } else { error };
            return Err(held.explain(error, "write note"));
        }
        clock.sleep_until(clock.now().after(pause)).await;
        pause = (pause * 2).min(held.limits().op_timeout);
    }
}

/// Makes one attempt. Between two attempts, the claim is free for a renewal.
async fn attempt(held: &Held, note: &Note, budget: Duration) -> Result<Noted> {
    let clock = held.locker().clock;
    let end = clock.now().after(budget);
    let mut slot = take_slot(held, budget).await?;
    // Tasks get the slot in the order in which they asked. A renewal must not wait for the requests
    // of all notes before it, so a note queues again behind it.
    if held.timer.is_out() {
        drop(slot);
        slot = take_slot(held, clock.now().until(end)).await?;
    }
    match slot.as_mut() {
        Some(claim) if held.is_held() => LiveClaim::write_note(claim, note, budget).await,
        _ => Err(held.lost_error()),
    }
}

/// Waits until no other request works with the claim.
///
/// # Errors
/// [`ErrorKind::Lost`], or [`ErrorKind::Unavailable`] after `budget`.
pub(super) async fn take_slot(
    held: &Held,
    budget: Duration,
) -> Result<MutexGuard<'_, Option<LiveClaim>>> {
    match within(budget, held.slot.lock()).await {
        Some(slot) => Ok(slot),
        None if !held.is_held() => Err(held.lost_error()),
        None => Err(Error::new(
            ErrorKind::Unavailable,
            "an earlier renewal or note of this lock did not end in time; try again",
        )),
    }
}
