//! Ends a hold, and leaves its grant in the store for a claim that resumes it.

use std::sync::Arc;

use super::{agenda::Agenda, held::Held, note::take_slot};
use crate::error::Result;

/// Ends the hold without a request. It waits for a renewal or a note that is under way. It also
/// waits until no attempt can arrive any more. Such an attempt could take the lock after the
/// release of the next owner, and no claim would take that back.
///
/// # Errors
/// [`ErrorKind::Lost`](crate::ErrorKind::Lost), or
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the renewal or the note does not
/// end in time. The hold then stays.
///
/// # Cancel safety
/// Cancel safe: there is no await after the hold has ended.
pub(crate) async fn leave(agenda: &Agenda, held: &Arc<Held>) -> Result<()> {
    held.locker().clock.sleep_until(held.settled_at()).await;
    let mut slot = take_slot(held, held.limits().op_timeout).await?;
    if !held.is_held() || !held.give_back() {
        return Err(held.lost_error());
    }
    agenda.retire(held, None);
    let claim = slot.take();
    drop(slot);
    if let Some(mut claim) = claim {
        claim.leave_grant();
    }
    held.pass_on();
    Ok(())
}
