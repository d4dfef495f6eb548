//! The dashboard and the alerts of docs/operations.md: each metric and label in them is one that lockkit has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Takes down what is described to it: the name, and the endings with which Prometheus has it.
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

/// The names of metrics in a text, and of the labels by which they are chosen or summed.
fn used(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_word(c));
    let metrics = words.filter(|word| word.starts_with("lockkit_")).map(str::to_owned).collect();
    let mut labels = BTreeSet::new();
    for choice in text.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
        let names = choice.0.split(',').filter_map(|term| term.split(['=', '!']).next());
        labels.extend(names.map(|name| name.trim().to_owned()));
    }
    for sum in text.split("by (").skip(1).filter_map(|rest| rest.split_once(')')) {
        labels.extend(sum.0.split(',').map(|name| name.trim().to_owned()));
    }
    (metrics, labels)
}

fn check(expression: &str, series: &BTreeSet<String>) -> BTreeSet<String> {
    let (metrics, labels) = used(expression);
    assert!(!metrics.is_empty(), "no metric in {expression}");
    for metric in &metrics {
        assert!(series.contains(metric), "{metric} in {expression} is none of {series:?}");
    }
    for label in labels {
        let is_known = ["backend", "group", "le", "outcome", "reason"].contains(&&*label);
        assert!(is_known, "the label {label} in {expression}");
    }
    metrics
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are_and_for_all_of_them() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../docs/grafana/lockkit.json")).unwrap();
    let (series, mut seen) = (series(), BTreeSet::new());
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        seen.extend(check(target["expr"].as_str().unwrap(), &series));
    }
    for metric in series.iter().filter(|name| !name.ends_with("_sum") && !name.ends_with("_count")) {
        assert!(seen.contains(metric), "no panel shows {metric}");
    }
}

#[test]
fn the_alerts_ask_for_metrics_that_there_are() {
    let page = include_str!("../docs/operations.md");
    let alerts = page.split_once("```yaml").unwrap().1.split_once("```").unwrap().0;
    let rules: Vec<_> = alerts.split("- alert:").skip(1).collect();
    assert!(rules.len() >= 6);
    let series = series();
    for rule in rules {
        let expression = rule.split_once("expr:").expect("an expression").1;
        check(expression, &series);
        let name = rule.trim_start().strip_prefix("Lockkit").unwrap().split_whitespace().next().unwrap();
        assert!(page.contains(&format!("\n| {name} |")), "the page does not explain {name}");
    }
}
