//! What is known of a store without its settings.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant, SystemTime},
};

use lockkit::{
    Locker,
    spi::{Descriptor, Finding, Grade, LeaseScope, Role},
};

/// A round trip that a renewal should not take.
const SLOW: Duration = Duration::from_millis(250);
/// More than `once` makes up for by itself.
const FAR: Duration = Duration::from_secs(1);
/// For so long the rate of the store's clock is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// Half of the margin that a holder leaves for clocks that differ: the other half is for this
/// host's.
const FASTEST_PPM: f64 = 5_000.0;

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
            "a step of the server's wall clock ends leases early or late: let NTP slew it by 5,000 ppm at \
             most, never step it",
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
    replication.peek().is_some()
        && replication.all(|finding| finding.found.starts_with("no replica"))
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
            finding.with_advice(
                "each lock and release takes at least so long; use a store that is nearer",
            )
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

/// How fast the store's clock runs, where leases follow it.
pub(super) async fn rate(locker: &Locker) -> Option<Finding> {
    if !locker.capabilities().time || !locker.descriptor().exceptions.server_clock_step {
        return None;
    }
    let measured = async {
        let asked = Instant::now();
        let first = locker.time().await.ok()?;
        let answered = Instant::now();
        tokio::time::sleep(MEASURED).await;
        let asked_again = Instant::now();
        let passed = locker.time().await.ok()?.duration_since(first).ok()?;
        Some(ppm(passed, asked_again - answered..=asked.elapsed()))
    };
    Some(match measured.await {
        None => Finding::new(
            Grade::Unknown,
            "clock's rate",
            "the store's clock can't be asked, or went back",
        ),
        Some(ppm) => judge_rate(&ppm),
    })
}

/// By how many parts in a million more than here has passed on the store's clock, at least and at
/// most.
fn ppm(there: Duration, here: RangeInclusive<Duration>) -> RangeInclusive<f64> {
    let ppm = |here: Duration| (there.div_duration_f64(here) - 1.0) * 1_000_000.0;
    ppm(*here.end())..=ppm(*here.start())
}

fn judge_rate(ppm: &RangeInclusive<f64>) -> Finding {
    let found = format!("{:+.0} to {:+.0} ppm of this host's", ppm.start(), ppm.end());
    if *ppm.start() <= FASTEST_PPM {
        return Finding::new(Grade::Good, "clock's rate", found);
    }
    Finding::new(Grade::Weak, "clock's rate", found).with_advice(
        "the store's clock runs ahead of this host's, so leases end before their holders expect it; if NTP corrects the \
         clock, limit it (chronyd: maxslewrate 5000)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_fast_only_if_the_round_trips_leave_no_doubt() {
        let ms = Duration::from_millis;
        let grade = |there, least, most| judge_rate(&ppm(ms(there), ms(least)..=ms(most))).grade;
        assert_eq!(grade(2_000, 1_999, 2_001), Grade::Good);
        assert_eq!(grade(2_009, 1_999, 2_001), Grade::Good, "4,000 ppm may be all");
        assert_eq!(grade(2_012, 1_999, 2_001), Grade::Weak);
        assert_eq!(grade(2_166, 2_000, 2_300), Grade::Good, "a slow answer");
        assert_eq!(
            grade(1_800, 1_999, 2_001),
            Grade::Good,
            "leases last longer, and holders know no better"
        );
    }

    #[test]
    fn a_failover_is_told_where_one_server_may_have_a_replica() {
        let replication = |slot: &str, found: &str| {
            Finding::new(Grade::Note, format!("replication{slot}"), found)
        };
        let none = replication(" of the server with slot 0", "no replica");
        assert!(is_without_replicas(&[none.clone(), none.clone()]));
        assert!(!is_without_replicas(&[
            none,
            replication(" of the server with slot 9", "1 replicas")
        ]));
        assert!(!is_without_replicas(&[replication("", "not told")]));
        assert!(!is_without_replicas(&[]));
    }
}
