//! Checks whether a lease has room for the end of a job.

use std::time::Duration;

use lockkit::{ErrorKind, LockGuard};

use super::deadline::margin;
use crate::error::{Error, Result};

/// The longest outage of the store that a job survives in every case. In the worst case the outage
/// begins just before a renewal, a third of the lease after the last one. The job must be gone
/// before the lease ends.
pub(crate) fn longest_outage(grace: Duration, lease: Duration) -> Duration {
    most_grace(lease).saturating_sub(grace)
}

fn most_grace(lease: Duration) -> Duration {
    (lease - lease / 3).saturating_sub(margin(lease))
}

/// Refuses a grace that is too long for a lease. lockkit renews a lease after a third of it. Only
/// then may it become necessary to stop the job.
///
/// # Errors
/// The relation that does not hold. `lease` is [`Duration::MAX`] on a store without leases.
pub(crate) fn check_grace(grace: Duration, lease: Duration) -> Result<()> {
    let margin = margin(lease);
    if lease == Duration::MAX || !longest_outage(grace, lease).is_zero() {
        return Ok(());
    }
    let most = most_grace(lease);
    if most.is_zero() {
        return Err(Error::new(format!(
            "a lease of {} is too short to run a command: the command must end {} before the lock \
             does, and the renewal needs a third of it; choose a longer --ttl, or on ZooKeeper a longer \
             session_timeout",
            humantime::format_duration(lease),
            humantime::format_duration(margin),
        )));
    }
    Err(Error::new(format!(
        "--grace {} is too long for a lease of {}: the command must end before the lock does, and \
         the renewal needs a third of the lease; choose a grace below {}, or a longer --ttl (on \
         ZooKeeper: session_timeout)",
        humantime::format_duration(grace),
        humantime::format_duration(lease),
        humantime::format_duration(Duration::from_millis(
            u64::try_from(most.as_millis()).unwrap_or(u64::MAX)
        )),
    )))
}

/// Renews a lease that is too short at its beginning: a grant to a waiter may last for less than
/// the ttl. If the lock is lost, the answer says why.
///
/// # Errors
/// The lease is still too short, or it could not be renewed.
pub(super) async fn make_room(guard: &LockGuard, grace: Duration) -> Result<Result<(), String>> {
    let left = || guard.remaining().saturating_sub(grace.saturating_add(margin(guard.remaining())));
    if left() > grace {
        return Ok(Ok(()));
    }
    match guard.renew().await {
        Err(error) if error.kind() == ErrorKind::Lost => return Ok(Err(error.to_string())),
        Err(error) if left().is_zero() => {
            return Err(Error::of("could not start the command", error));
        }
        _ => {}
    }
    if left().is_zero() {
        let text = "the lock would end before lockkit could stop the command; choose a shorter \
                    --grace or a longer --ttl";
        return Err(Error::new(text));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_must_have_room_for_renewal_and_grace() {
        let seconds = Duration::from_secs;
        check_grace(seconds(5), seconds(30)).unwrap();
        check_grace(seconds(500), Duration::MAX).unwrap();
        let error = check_grace(seconds(5), seconds(1)).unwrap_err().to_string();
        assert!(error.contains("--grace 5s") && error.contains("below 566ms"), "{error}");
        check_grace(seconds(2), seconds(3)).unwrap_err();
        check_grace(Duration::MAX, seconds(3)).unwrap_err();
        let error =
            check_grace(Duration::ZERO, Duration::from_millis(100)).unwrap_err().to_string();
        assert!(error.contains("100ms is too short") && error.contains("longer --ttl"), "{error}");
    }
}
