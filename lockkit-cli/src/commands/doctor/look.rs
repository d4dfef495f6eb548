//! What is known of a store without its settings.

use std::time::{Duration, SystemTime};

use lockkit::{
    Locker,
    spi::{Descriptor, Finding, Grade, LeaseScope, Role},
};

/// A round trip that a renewal should not take.
const SLOW: Duration = Duration::from_millis(250);
/// More than `once` makes up for by itself.
const FAR: Duration = Duration::from_secs(1);

/// What the kind of store can't promise by design. The settings decide whether it ever matters.
pub(super) fn exceptions(descriptor: &Descriptor, settings: &[Finding]) -> Vec<Finding> {
    let exceptions = descriptor.exceptions;
    let all = [
        (
            exceptions.async_failover && !is_without_replicas(settings),
            "failover",
            "a grant may be lost",
            "a replica that becomes the primary may not know the last grants: what the lock protects should check tokens",
        ),
        (
            exceptions.connection_bound,
            "connections",
            "a lock ends with its connection",
            "the store may free a lock as soon as its connection dies; the holder hears of it, and may do so late",
        ),
        (
            exceptions.no_lease,
            "leases",
            "none",
            "a lock is freed by its process alone: one that hangs holds it for ever, and nobody else can lose it",
        ),
        (
            exceptions.server_clock_step,
            "server's clock",
            "leases follow it",
            "a step of the server's wall clock ends leases early or late: let NTP slew it, never step it",
        ),
    ];
    let mut findings: Vec<_> = all
        .into_iter()
        .filter(|(applies, ..)| *applies)
        .map(|(_, what, found, advice)| Finding::new(Grade::Note, what, found).with_advice(advice))
        .collect();
    if descriptor.lease_scope == LeaseScope::Session && !exceptions.no_lease {
        let found = format!("of the session, {:?}", descriptor.min_ttl);
        findings.push(Finding::new(Grade::Good, "leases", found));
    }
    findings
}

/// Each server that keeps locks has said so: there is nothing that could take over.
fn is_without_replicas(settings: &[Finding]) -> bool {
    let mut replication =
        settings.iter().filter(|finding| finding.what.starts_with("replication")).peekable();
    replication.peek().is_some() && replication.all(|finding| finding.found.starts_with("no replica"))
}

pub(super) async fn health(locker: &Locker) -> Finding {
    match locker.health().await {
        Ok(health) if health.role == Role::Replica => {
            let advice = "nothing can be locked on a replica: name the primary in the URL";
            Finding::new(Grade::Unsafe, "server", "a replica").with_advice(advice)
        }
        Ok(health) => {
            let found = format!("{}, answers in {:.1?}", health.role, health.round_trip);
            let finding = Finding::new(
                if health.round_trip < SLOW { Grade::Good } else { Grade::Note },
                "server",
                found,
            );
            if health.round_trip < SLOW {
                return finding;
            }
            finding.with_advice("each lock and release takes at least so long; use a store that is nearer")
        }
        Err(error) => Finding::new(Grade::Unsafe, "server", error.to_string())
            .with_advice("the store does not work for locks now"),
    }
}

/// How far this host's clock is from the store's.
pub(super) async fn clock(locker: &Locker) -> Option<Finding> {
    if !locker.capabilities().time {
        return None;
    }
    let asked = SystemTime::now();
    let Ok(theirs) = locker.time().await else {
        return Some(Finding::new(Grade::Unknown, "clocks", "the store's clock can't be asked"));
    };
    let trip = asked.elapsed().unwrap_or_default();
    let ours = asked + trip / 2;
    let (ahead, word) = match theirs.duration_since(ours) {
        Ok(behind) => (behind, "behind"),
        Err(error) => (error.duration(), "ahead of"),
    };
    let found = format!("this host is {ahead:.1?} {word} the store (± {:.1?})", trip / 2);
    if ahead.saturating_sub(trip / 2) < FAR {
        return Some(Finding::new(Grade::Good, "clocks", found));
    }
    let advice = "no lock depends on it; timers of cron or systemd do: set the clocks by NTP, or give `once` a longer \
                  --early";
    Some(Finding::new(Grade::Note, "clocks", found).with_advice(advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_is_told_where_one_server_may_have_a_replica() {
        let replication =
            |slot: &str, found: &str| Finding::new(Grade::Note, format!("replication{slot}"), found);
        let none = replication(" of the server with slot 0", "no replica");
        assert!(is_without_replicas(&[none.clone(), none.clone()]));
        assert!(!is_without_replicas(&[none, replication(" of the server with slot 9", "1 replicas")]));
        assert!(!is_without_replicas(&[replication("", "not told")]));
        assert!(!is_without_replicas(&[]));
    }
}
