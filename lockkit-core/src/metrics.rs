//! Metrics for the recorder that the application installs.

use std::{sync::Arc, time::Duration};

use metrics::{
    SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::{
    observe::{Event, Observer, What},
    spi::LossReason,
};

const ACQUIRE: &str = "lockkit_acquire_duration_seconds";
const HOLD: &str = "lockkit_hold_duration_seconds";
const HELD: &str = "lockkit_held";
const WAITING: &str = "lockkit_waiting";
const RENEWAL_FAILURES: &str = "lockkit_renewal_failures_total";
const LOST: &str = "lockkit_lost_total";
const MARGIN: &str = "lockkit_lease_margin_seconds";

/// Reports what a locker does to the recorder of the [`metrics`] crate.
/// [`LockerBuilder::metrics`](crate::LockerBuilder::metrics) makes it; it needs the cargo feature
/// `metrics`.
///
/// Every metric has the labels `backend` and `group`. The group is that of the lock's
/// [options](crate::LockOptions::group), or `none`. The names of locks are not labels, because
/// there may be too many of them.
///
/// | metric | kind | further labels |
/// |---|---|---|
/// | `lockkit_acquire_duration_seconds` | histogram: from the call to its end | `outcome`: `granted`, `timed_out`, `refused`, `abandoned` |
/// | `lockkit_hold_duration_seconds` | histogram: from the grant to its end | `outcome`: `given_back`, `lost` |
/// | `lockkit_held` | gauge: locks held now | |
/// | `lockkit_waiting` | gauge: calls for a lock that have not ended | |
/// | `lockkit_lease_margin_seconds` | histogram: what was left of a lease when it was renewed | |
/// | `lockkit_renewal_failures_total` | counter: renewals without a good answer | |
/// | `lockkit_lost_total` | counter: locks that were lost while they were held | `reason`: `closed`, `evicted`, `expired`, `max_hold`, `session_lost` |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// use std::sync::Arc;
/// use lockkit_core::{Locker, Memory};
/// let locker = Locker::builder(Arc::new(Memory::new())).metrics().build();
/// locker.mutex("orders/42")?.lock().await?.release().await?; // told to the recorder that the program has installed
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Metrics {
    backend: &'static str,
}

impl Metrics {
    /// Reports under the name of a backend, and describes the metrics to the recorder that is
    /// installed now.
    #[must_use]
    pub fn new(backend: &'static str) -> Self {
        describe_histogram!(ACQUIRE, Unit::Seconds, "From the call for a lock to its end");
        describe_histogram!(HOLD, Unit::Seconds, "From the grant of a lock to its end");
        describe_gauge!(HELD, Unit::Count, "Locks that are held now");
        describe_gauge!(WAITING, Unit::Count, "Calls for a lock that have not ended");
        describe_histogram!(MARGIN, Unit::Seconds, "What was left of a lease when it was renewed");
        describe_counter!(RENEWAL_FAILURES, Unit::Count, "Renewals without a good answer");
        describe_counter!(LOST, Unit::Count, "Locks that were lost while they were held");
        Self { backend }
    }

    fn called(&self, group: SharedString, outcome: &'static str, waited: Duration) {
        gauge!(WAITING, "backend" => self.backend, "group" => group.clone()).decrement(1);
        histogram!(ACQUIRE, "backend" => self.backend, "group" => group, "outcome" => outcome)
            .record(waited);
    }

    fn held(&self, group: SharedString, outcome: &'static str, held: Duration) {
        gauge!(HELD, "backend" => self.backend, "group" => group.clone()).decrement(1);
        histogram!(HOLD, "backend" => self.backend, "group" => group, "outcome" => outcome)
            .record(held);
    }
}

impl Observer for Metrics {
    fn on_event(&self, event: &Event<'_>) {
        let backend = self.backend;
        let group =
            event.group.map_or(SharedString::const_str("none"), |group| Arc::clone(group).into());
        match event.what {
            What::Asked => gauge!(WAITING, "backend" => backend, "group" => group).increment(1),
            What::Abandoned { waited } => self.called(group, "abandoned", waited),
            What::Refused { waited, .. } => self.called(group, "refused", waited),
            What::TimedOut { waited } => self.called(group, "timed_out", waited),
            What::Acquired { waited, .. } => {
                gauge!(HELD, "backend" => backend, "group" => group.clone()).increment(1);
                self.called(group, "granted", waited);
            }
            What::GivenBack { held, .. } => self.held(group, "given_back", held),
            What::Lost { reason, held, .. } => {
                self.held(group.clone(), "lost", held);
                counter!(LOST, "backend" => backend, "group" => group, "reason" => word(reason))
                    .increment(1);
            }
            What::Renewed { margin, .. } => {
                histogram!(MARGIN, "backend" => backend, "group" => group).record(margin);
            }
            What::RenewalFailed { .. } => {
                counter!(RENEWAL_FAILURES, "backend" => backend, "group" => group).increment(1);
            }
            What::Failed { .. } | What::Released { .. } => {}
        }
    }
}

const fn word(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Closed => "closed",
        LossReason::Evicted => "evicted",
        LossReason::Expired => "expired",
        LossReason::MaxHold => "max_hold",
        LossReason::SessionLost => "session_lost",
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use tokio::{runtime::Builder, time};

    use crate::{
        Clock, LockOptions, Locker, LockerBuilder, Memory,
        observe::{Event, Observer},
        spi::Released,
    };

    const TTL: time::Duration = time::Duration::from_secs(3);

    /// Does the work, and returns what the recorder has then, each metric as `name{label=value,…}`.
    fn recorded(work: impl AsyncFnOnce(Locker)) -> BTreeMap<String, DebugValue> {
        recorded_by(LockerBuilder::metrics, work)
    }

    /// As [`recorded`], with the given observers.
    fn recorded_by(
        observed: impl FnOnce(LockerBuilder) -> LockerBuilder,
        work: impl AsyncFnOnce(Locker),
    ) -> BTreeMap<String, DebugValue> {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let runtime =
                Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let store = Arc::new(Memory::with_clock(Clock::Tokio));
                let builder = observed(Locker::builder(store).clock(Clock::Tokio));
                let options = LockOptions::new().with_ttl(TTL).with_group("orders");
                let locker = builder.build().with_defaults(options).unwrap();
                work(locker.clone()).await;
                locker.shutdown().await.unwrap();
            });
        });
        let entries = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
            let labels: Vec<_> =
                key.key().labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
            (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
        });
        entries.collect()
    }

    fn gauge(of: f64) -> DebugValue {
        DebugValue::Gauge(of.into())
    }

    fn samples(found: &BTreeMap<String, DebugValue>, name: &str) -> Vec<f64> {
        match &found[name] {
            DebugValue::Histogram(samples) => {
                samples.iter().map(|sample| sample.into_inner()).collect()
            }
            other => panic!("{name} is {other:?}"),
        }
    }

    #[test]
    fn each_end_of_a_call_and_of_a_hold_is_counted_once() {
        let found = recorded(async |locker| {
            let mutex = locker.mutex("a").unwrap();
            let guard = mutex.lock().await.unwrap();
            assert!(mutex.try_lock().await.unwrap().is_none());
            time::timeout(TTL, mutex.lock()).await.unwrap_err();
            guard.release().await.unwrap();
            drop(mutex.lock().await.unwrap());
            let doomed = mutex.lock().await.unwrap();
            assert_eq!(mutex.force_release(doomed.fencing_token()).await.unwrap(), Released::Freed);
            doomed.lost().await;
            drop(doomed);
            locker.shutdown().await.unwrap();
            mutex.lock().await.unwrap_err();
        });
        let one = |outcome| {
            format!(
                "lockkit_acquire_duration_seconds{{backend=memory,group=orders,outcome={outcome}}}"
            )
        };
        assert_eq!(samples(&found, &one("granted")).len(), 3, "{found:?}");
        assert_eq!(samples(&found, &one("timed_out")).len(), 1);
        assert_eq!(samples(&found, &one("abandoned")), [3.0]);
        assert_eq!(samples(&found, &one("refused")).len(), 1);
        let hold = |outcome| {
            format!(
                "lockkit_hold_duration_seconds{{backend=memory,group=orders,outcome={outcome}}}"
            )
        };
        assert_eq!(samples(&found, &hold("given_back")).len(), 2);
        assert!((3.0..3.1).contains(&samples(&found, &hold("given_back"))[0]));
        assert_eq!(samples(&found, &hold("lost")).len(), 1);
        assert_eq!(found["lockkit_held{backend=memory,group=orders}"], gauge(0.0));
        assert_eq!(found["lockkit_waiting{backend=memory,group=orders}"], gauge(0.0));
        let margins = samples(&found, "lockkit_lease_margin_seconds{backend=memory,group=orders}");
        assert!(
            !margins.is_empty() && margins.iter().all(|margin| (1.9..2.2).contains(margin)),
            "{margins:?}"
        );
        let lost = "lockkit_lost_total{backend=memory,group=orders,reason=evicted}";
        assert_eq!(found[lost], DebugValue::Counter(1));
        assert!(
            found.keys().all(|key| !key.contains("=a,") && !key.contains("=a}")),
            "a name is a label"
        );
    }

    /// An observer that panics at each event.
    #[derive(Debug)]
    struct Panics;

    impl Observer for Panics {
        fn on_event(&self, _: &Event<'_>) {
            panic!("as ordered");
        }
    }

    #[test]
    fn behind_an_observer_that_panics_the_gauges_are_right() {
        let panics_first = |builder: LockerBuilder| builder.observer(Arc::new(Panics)).metrics();
        let call = async |locker: &Locker| {
            let mutex = locker.mutex("a").unwrap();
            let guard = mutex.lock().await.unwrap();
            assert!(mutex.try_lock().await.unwrap().is_none());
            time::timeout(TTL, mutex.lock()).await.unwrap_err();
            guard
        };
        let held = "lockkit_held{backend=memory,group=orders}";
        let waiting = "lockkit_waiting{backend=memory,group=orders}";
        let found = recorded_by(panics_first, async |locker| {
            call(&locker).await.release().await.unwrap();
            drop(call(&locker).await);
            let doomed = call(&locker).await;
            assert_eq!(
                locker.mutex("a").unwrap().force_release(doomed.fencing_token()).await.unwrap(),
                Released::Freed
            );
            doomed.lost().await;
        });
        assert_eq!((&found[held], &found[waiting]), (&gauge(0.0), &gauge(0.0)), "{found:?}");
        let lost = "lockkit_lost_total{backend=memory,group=orders,reason=evicted}";
        assert_eq!(found[lost], DebugValue::Counter(1));
    }
}
