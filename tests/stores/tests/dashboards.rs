//! Checks the dashboard and the alerts of docs/operations.md: lockkit must have each metric and
//! each label. Where a label has only a few values, lockkit must have each value too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Records the metrics that are described to it: the name, and the endings that Prometheus adds.
#[derive(Default)]
struct Described(Mutex<BTreeMap<String, &'static [&'static str]>>);

impl Described {
    fn add(&self, name: &KeyName, endings: &'static [&'static str]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.as_str().to_owned(), endings);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, &[""]);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, &[""]);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, &["_bucket", "_sum", "_count"]);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// All series that lockkit has in Prometheus.
fn series() -> BTreeSet<String> {
    let described = Described::default();
    metrics::with_local_recorder(&described, || lockkit::Metrics::new("test"));
    let known = described.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    known
        .iter()
        .flat_map(|(name, endings)| endings.iter().map(move |ending| format!("{name}{ending}")))
        .collect()
}

/// The labels of a metric, with their values where there are only a few.
type Labels = BTreeMap<String, Option<BTreeSet<String>>>;

/// The words in backquotes.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The table in the documentation of `Metrics`, by the series in Prometheus.
fn labels() -> BTreeMap<String, Labels> {
    let page = include_str!("../../../lockkit-core/src/metrics.rs");
    let mut labels = BTreeMap::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("/// | `lockkit_")) {
        let cells: Vec<_> = row.split('|').collect();
        let mut of_metric: Labels =
            ["backend", "group"].map(|label| (label.to_owned(), None)).into_iter().collect();
        let mut further = words(cells[2]);
        of_metric.extend(further.next().map(|label| (label, Some(further.collect()))));
        let name = format!("lockkit_{}", cells[0].trim().trim_end_matches('`'));
        if cells[1].trim().starts_with("histogram") {
            for ending in ["_sum", "_count"] {
                labels.insert(format!("{name}{ending}"), of_metric.clone());
            }
            of_metric.insert("le".to_owned(), None);
            labels.insert(format!("{name}_bucket"), of_metric);
        } else {
            labels.insert(name, of_metric);
        }
    }
    labels
}

fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("lockkit_")).map(str::to_owned).collect()
}

/// The text up to the bracket that closes the one before it.
fn inside(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    &text[..end.expect("a bracket that closes")]
}

/// The faults in the labels that an expression uses to choose and to sum metrics.
fn faults(expression: &str, known: &BTreeMap<String, Labels>) -> Vec<String> {
    let mut faults = Vec::new();
    for (before, choice) in expression.match_indices('{').map(|(at, _)| expression.split_at(at)) {
        let start =
            before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        let of_metric = &known[&before[start..]];
        for term in choice[1..].split_once('}').expect("an end of the choice").0.split(',') {
            let (label, rest) = term.trim().split_once(['=', '!']).expect("a label and a value");
            let values = rest.trim_matches(['=', '~', '"']);
            match of_metric.get(label) {
                None => faults.push(format!("{} has no label {label}", &before[start..])),
                Some(Some(few)) if values.split('|').any(|value| !few.contains(value)) => {
                    faults.push(format!("{label} is never {values}"));
                }
                Some(_) => {}
            }
        }
    }
    for sum in expression.split("by (").skip(1) {
        let (by, summed) = sum.split_once(") (").expect("what is summed");
        for metric in metrics_in(inside(summed)) {
            let unknown =
                by.split(',').map(str::trim).filter(|label| !known[&metric].contains_key(*label));
            faults.extend(unknown.map(|label| format!("{metric} has no label {label}")));
        }
    }
    faults
}

fn check(expression: &str, series: &BTreeSet<String>) -> BTreeSet<String> {
    let metrics = metrics_in(expression);
    assert!(!metrics.is_empty(), "no metric in {expression}");
    for metric in &metrics {
        assert!(series.contains(metric), "{metric} in {expression} is none of {series:?}");
    }
    assert_eq!(faults(expression, &labels()), [""; 0], "in {expression}");
    metrics
}

#[test]
fn a_label_that_the_metric_lacks_is_found() {
    let labels = labels();
    assert_eq!(labels.keys().cloned().collect::<BTreeSet<_>>(), series());
    for (expression, fault) in [
        ("lockkit_held{reason=\"closed\"}", "lockkit_held has no label reason"),
        ("lockkit_lost_total{reason!=\"shut\"}", "reason is never shut"),
        (
            "lockkit_acquire_duration_seconds_count{outcome=~\"granted|lost\"}",
            "outcome is never granted|lost",
        ),
        (
            "sum by (group, outcome) (rate(lockkit_lost_total[5m]))",
            "lockkit_lost_total has no label outcome",
        ),
        ("sum by (le) (lockkit_held)", "lockkit_held has no label le"),
    ] {
        assert_eq!(faults(expression, &labels), [fault]);
    }
}

/// A locker's labels agree with the table that the other tests use.
#[tokio::test]
async fn a_locker_reports_the_labels_of_the_table() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let locker = lockkit::builder("memory://").await.unwrap().metrics().build();
    let mutex = locker.mutex("a").unwrap();
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let options = lockkit::LockOptions::new().with_ttl(Duration::from_millis(300));
    let doomed = mutex.with_options(options).unwrap().lock().await.unwrap();
    // The lock is lost, because its locker is shut down while it is held.
    locker.shutdown().await.unwrap();
    doomed.lost().await;
    let known = labels();
    let mut seen = BTreeSet::new();
    for (key, ..) in snapshotter.snapshot().into_vec() {
        let name = key.key().name();
        let of_metric = known.get(name).unwrap_or_else(|| &known[&format!("{name}_count")]);
        let told: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        let names: BTreeSet<_> = told.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, of_metric.keys().map(String::as_str).collect(), "{name}");
        for (label, value) in told {
            assert!(
                of_metric[label].as_ref().is_none_or(|few| few.contains(value)),
                "{name}: {label}={value}"
            );
        }
        seen.insert(name.to_owned());
    }
    assert!(
        seen.contains("lockkit_lost_total") && seen.contains("lockkit_acquire_duration_seconds"),
        "{seen:?}"
    );
}

#[test]
fn the_dashboard_uses_exactly_the_existing_metrics() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/grafana/lockkit.json")).unwrap();
    let series = series();
    let mut seen = BTreeSet::new();
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        seen.extend(check(target["expr"].as_str().unwrap(), &series));
    }
    for metric in series.iter().filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"))
    {
        assert!(seen.contains(metric), "no panel shows {metric}");
    }
}

#[test]
fn the_alerts_use_existing_metrics() {
    let page = include_str!("../../../docs/operations.md");
    let alerts = page.split_once("```yaml").unwrap().1.split_once("```").unwrap().0;
    let rules: Vec<_> = alerts.split("- alert:").skip(1).collect();
    assert!(rules.len() >= 6);
    let series = series();
    for rule in rules {
        let expression = rule.split_once("expr:").expect("an expression").1;
        check(expression, &series);
        let name =
            rule.trim_start().strip_prefix("Lockkit").unwrap().split_whitespace().next().unwrap();
        assert!(page.contains(&format!("\n| {name} |")), "the page does not explain {name}");
    }
}
