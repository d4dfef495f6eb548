//! Diagnoses what is known of a store without its settings.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant, SystemTime},
};

use lockkit::{
    Locker,
    spi::{Descriptor, Diagnostic, LeaseScope, Role, Severity},
};

/// The round trip of a renewal should be shorter than this.
const SLOW: Duration = Duration::from_millis(250);
/// `once` does not make up for a larger difference by itself.
const FAR: Duration = Duration::from_secs(1);
/// For how long the rate of the store's clock is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// Half of the margin that a holder leaves for clocks that differ. The other half is for this
/// host's clock.
const FASTEST_PPM: f64 = 5_000.0;

/// Promises that the kind of store can't keep by design. The settings decide whether that ever
/// matters.
pub(super) fn exceptions(descriptor: &Descriptor, settings: &[Diagnostic]) -> Vec<Diagnostic> {
    let exceptions = descriptor.exceptions;
    let all = [
        (
            exceptions.async_failover && !is_without_replicas(settings),
            "failover",
            "a grant may be lost",
            "a replica that becomes the primary may not know the last grants; let the protected \
             resource check tokens",
        ),
        (
            exceptions.connection_bound,
            "connections",
            "a lock ends with its connection",
            "the store may free a lock as soon as its connection breaks; the holder may notice \
             that late",
        ),
        (
            exceptions.no_lease,
            "leases",
            "none",
            "only its process frees a lock, so a process that hangs holds the lock for ever",
        ),
        (
            exceptions.server_clock_step,
            "server's clock",
            "leases follow it",
            "a step of the server's wall clock ends leases early or late: let NTP slew it by 5,000 ppm at \
             most, never step it",
        ),
    ];
    let mut diagnostics: Vec<_> = all
        .into_iter()
        .filter(|(applies, ..)| *applies)
        .map(|(_, what, found, advice)| {
            Diagnostic::new(Severity::Note, what, found).with_advice(advice)
        })
        .collect();
    if descriptor.lease_scope == LeaseScope::Session && !exceptions.no_lease {
        let found = format!("of the session, {:?}", descriptor.min_ttl);
        diagnostics.push(Diagnostic::new(Severity::Good, "leases", found));
    }
    diagnostics
}

/// Whether each server that keeps locks has reported no replica, so that no server could take over.
fn is_without_replicas(settings: &[Diagnostic]) -> bool {
    let mut replication =
        settings.iter().filter(|diagnostic| diagnostic.what.starts_with("replication")).peekable();
    replication.peek().is_some()
        && replication.all(|diagnostic| diagnostic.found.starts_with("no replica"))
}

pub(super) async fn health(locker: &Locker) -> Diagnostic {
    match locker.health().await {
        Ok(health) if health.role == Role::Replica => {
            let advice = "nothing can be locked on a replica: name the primary in the URL";
            Diagnostic::new(Severity::Unsafe, "server", "a replica").with_advice(advice)
        }
        Ok(health) => {
            let found = format!("{}, answers in {:.1?}", health.role, health.round_trip);
            let diagnostic = Diagnostic::new(
                if health.round_trip < SLOW { Severity::Good } else { Severity::Note },
                "server",
                found,
            );
            if health.round_trip < SLOW {
                return diagnostic;
            }
            diagnostic.with_advice(
                "each lock and each release takes at least this long; use a nearer store",
            )
        }
        Err(error) => Diagnostic::new(Severity::Unsafe, "server", error.to_string())
            .with_advice("the store does not grant locks now"),
    }
}

/// How far this host's clock is from the store's.
pub(super) async fn clock(locker: &Locker) -> Option<Diagnostic> {
    if !locker.capabilities().time {
        return None;
    }
    let asked = SystemTime::now();
    let Ok(theirs) = locker.time().await else {
        return Some(Diagnostic::new(
            Severity::Unknown,
            "clocks",
            "could not read the store's clock",
        ));
    };
    let trip = asked.elapsed().unwrap_or_default();
    let ours = asked + trip / 2;
    let (ahead, word) = match theirs.duration_since(ours) {
        Ok(behind) => (behind, "behind"),
        Err(error) => (error.duration(), "ahead of"),
    };
    let found = format!("this host is {ahead:.1?} {word} the store (± {:.1?})", trip / 2);
    if ahead.saturating_sub(trip / 2) < FAR {
        return Some(Diagnostic::new(Severity::Good, "clocks", found));
    }
    let advice = "no lock depends on it; timers of cron or systemd do: set the clocks by NTP, or give `once` a longer \
                  --early";
    Some(Diagnostic::new(Severity::Note, "clocks", found).with_advice(advice))
}

/// How fast the store's clock runs, if leases follow it.
pub(super) async fn rate(locker: &Locker) -> Option<Diagnostic> {
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
        None => Diagnostic::new(
            Severity::Unknown,
            "clock's rate",
            "could not read the store's clock, or it went back",
        ),
        Some(ppm) => judge_rate(&ppm),
    })
}

/// How much more time has passed on the store's clock than here, in parts per million: the least
/// and the most.
fn ppm(there: Duration, here: RangeInclusive<Duration>) -> RangeInclusive<f64> {
    let ppm = |here: Duration| (there.div_duration_f64(here) - 1.0) * 1_000_000.0;
    ppm(*here.end())..=ppm(*here.start())
}

fn judge_rate(ppm: &RangeInclusive<f64>) -> Diagnostic {
    let found = format!("{:+.0} to {:+.0} ppm of this host's", ppm.start(), ppm.end());
    if *ppm.start() <= FASTEST_PPM {
        return Diagnostic::new(Severity::Good, "clock's rate", found);
    }
    Diagnostic::new(Severity::Weak, "clock's rate", found).with_advice(
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
        let severity =
            |there, least, most| judge_rate(&ppm(ms(there), ms(least)..=ms(most))).severity;
        assert_eq!(severity(2_000, 1_999, 2_001), Severity::Good);
        assert_eq!(severity(2_009, 1_999, 2_001), Severity::Good, "4,000 ppm may be all");
        assert_eq!(severity(2_012, 1_999, 2_001), Severity::Weak);
        assert_eq!(severity(2_166, 2_000, 2_300), Severity::Good, "a slow answer");
        assert_eq!(
            severity(1_800, 1_999, 2_001),
            Severity::Good,
            "leases last longer, and holders know no better"
        );
    }

    #[test]
    fn a_possible_failover_is_reported_if_a_server_may_have_a_replica() {
        let replication = |slot: &str, found: &str| {
            Diagnostic::new(Severity::Note, format!("replication{slot}"), found)
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
