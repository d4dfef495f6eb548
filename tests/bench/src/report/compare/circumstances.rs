//! Checks whether two reports measured the same thing.

use crate::report::{ROUND_TRIP, Report, Setting, Side, Store, Verdict};

/// The reason why two reports have nothing in common, if there is one.
pub(super) fn incomparable(old: &Report, new: &Report) -> Option<String> {
    let ids = |report: &Report| {
        report.stores.iter().map(|store| store.id.clone()).collect::<Vec<_>>().join(", ")
    };
    if !old.stores.iter().any(|store| find(new, &store.id).is_some()) {
        return Some(format!(
            "they have no store in common: the old report has {}, the new report has {}",
            ids(old),
            ids(new)
        ));
    }
    let was_run = |report: &Report| {
        let measured = report
            .outcomes
            .iter()
            .filter(|o| o.side == Side::Lockkit && matches!(o.verdict, Verdict::Measured { .. }));
        measured.map(|o| (o.scenario, o.case.clone(), o.store.clone())).collect::<Vec<_>>()
    };
    let before = was_run(old);
    let attempted = &new.outcomes;
    let is_shared = before.iter().any(|(scenario, case, store)| {
        attempted.iter().any(|o| o.scenario == *scenario && o.case == *case && o.store == *store)
    });
    (!is_shared).then(|| {
        "the new run tried no case that the old report measured; run the same plan again".into()
    })
}

/// The circumstances that differ between the two reports.
pub(super) fn differences(old: &Report, new: &Report) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, old: String, new: String| {
        if old != new {
            found.push(format!("{what}: {old} in the old report, {new} in the new report"));
        }
    };
    let machine = |report: &Report| {
        let host = &report.host;
        format!("{}, {} cores, kernel {}", host.cpu, host.cores, host.kernel)
    };
    differ("another host", machine(old), machine(new));
    differ("rounds", old.rounds.to_string(), new.rounds.to_string());
    differ("seconds per turn", old.slice_seconds.to_string(), new.slice_seconds.to_string());
    let kind = |report: &Report| if report.is_quick { "quick" } else { "full" }.to_owned();
    differ("kind of run", kind(old), kind(new));
    for before in &old.stores {
        let Some(after) = find(new, &before.id) else { continue };
        let name = |what: &str| format!("{of} {what}", of = before.id);
        differ(&name("is another server"), server(before), server(after));
        differ(&name("is at another address"), before.url.clone(), after.url.clone());
        differ(
            &name("guarantee"),
            before.guarantee.class.to_string(),
            after.guarantee.class.to_string(),
        );
        differ(&name("settings"), settings(before, after), settings(after, before));
    }
    found
}

fn find<'a>(report: &'a Report, id: &str) -> Option<&'a Store> {
    report.stores.iter().find(|store| store.id == id)
}

fn server(store: &Store) -> String {
    format!("{} {}", store.product, store.version)
}

/// The settings that the other store lacks, or has with another value.
fn settings(store: &Store, other: &Store) -> String {
    let is_shared = |setting: &Setting| {
        // Each run measures the round trip, and the values always differ.
        setting.name == ROUND_TRIP
            || other.settings.iter().any(|o| (&o.name, &o.value) == (&setting.name, &setting.value))
    };
    let own: Vec<_> = store
        .settings
        .iter()
        .filter(|s| !is_shared(s))
        .map(|s| format!("{} = {}", s.name, s.value))
        .collect();
    if own.is_empty() { "nothing".into() } else { own.join(", ") }
}
