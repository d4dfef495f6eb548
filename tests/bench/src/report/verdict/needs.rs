//! Answers the needs that figures can answer.

use super::{
    Answer, caution, listed,
    rank::{Finding, Ranked, finding, rank},
};
use crate::report::{
    Better, GuaranteeClass, Metric, Report, Scenario, Side, Store, numbers, table, words,
};

/// A need, and the figure that answers it.
pub(super) struct Need {
    name: &'static str,
    scenario: Scenario,
    metric: Metric,
    /// The condition that a store must meet, beyond being visible to other processes.
    is_met_by: fn(&Store) -> bool,
    /// The reason to leave out a store that doesn't meet the condition.
    otherwise: &'static str,
}

const fn any(_: &Store) -> bool {
    true
}

const fn need(name: &'static str, scenario: Scenario, metric: Metric) -> Need {
    Need { name, scenario, metric, is_met_by: any, otherwise: "" }
}

/// The needs in the order of their answers.
pub(super) const NEEDS: [Need; 6] = [
    need("Lowest latency", Scenario::Uncontended, Metric::WaitP50Us),
    need("Highest throughput on many names", Scenario::OwnNames, Metric::GrantsPerSecond),
    need("Highest throughput on one hot name", Scenario::HotName, Metric::GrantsPerSecond),
    Need {
        is_met_by: |store| store.is_fair,
        otherwise: "it does not serve waiters in order",
        ..need("Fairness among waiters", Scenario::HotName, Metric::MostOverLeast)
    },
    need("Quickest recovery after a crash of the holder", Scenario::Recovery, Metric::RecoveryMs),
    need("Cheap idle locks", Scenario::IdleLocks, Metric::IdleRequestsPerSecond),
];

/// The answer to a need; `None` if its scenario was not run.
pub(super) fn answer(report: &Report, need: &Need) -> Option<Answer> {
    let Some(case) = report.typical(need.scenario, need.metric) else {
        let text = vec!["This run has no figures that answer this.".into()];
        let was_run = report.scenarios().contains(&need.scenario);
        let figures =
            report.stores.iter().filter_map(|store| failures(report, need, store)).collect();
        return was_run.then(|| Answer {
            need: need.name.into(),
            measure: None,
            text,
            named: vec![],
            figures,
            cautions: vec![],
        });
    };
    let measured = (need.scenario, case, need.metric);
    let is_shared = |store: &Store| store.guarantee.class > GuaranteeClass::Host;
    let ranked = rank(report, measured, |store| is_shared(store) && (need.is_met_by)(store));
    let found = finding(report, &ranked);
    let mut text: Vec<_> = said(report, &found, need.metric).into_iter().collect();
    let named = found.named();
    if !named.is_empty() && named.iter().all(|store| caution(store).is_some()) {
        let durable: Vec<_> =
            ranked.iter().filter(|one| caution(one.store).is_none()).cloned().collect();
        let found = finding(report, &durable);
        if let Some(said) = said(report, &found, need.metric).filter(|_| !durable.is_empty()) {
            text.push(format!(
                "Among the stores that keep all grants over a restart or a failover: {said}"
            ));
        }
    }
    let measure = Some(format!("{}: {}", words::metric(need.metric), words::case(case)));
    let mut figures: Vec<_> = ranked.iter().map(|one| figure(one, need.metric)).collect();
    figures.extend(report.stores.iter().filter_map(|store| {
        let why = if !is_shared(store) {
            format!("left out: {}", words::class(store.guarantee.class))
        } else if !(need.is_met_by)(store) {
            format!("left out: {}", need.otherwise)
        } else {
            table::absence(
                report.outcome(need.scenario, case, &store.id, Side::Lockkit)?,
                need.metric,
            )?
        };
        Some(format!("{}: {why}", store.id))
    }));
    figures.extend(report.stores.iter().filter_map(|store| failures(report, need, store)));
    let mut cautions: Vec<_> = named.iter().filter_map(|store| caution(store)).collect();
    cautions.extend(named.iter().filter_map(|store| failures(report, need, store)));
    if need.scenario == Scenario::Recovery && !named.is_empty() {
        cautions.push(KILLED.into());
    }
    let named = found.named().into_iter().map(|store| store.id.clone()).collect();
    Some(Answer { need: need.name.into(), measure, text, named, figures, cautions })
}

/// Without this warning, a connection's lock would seem to be free within milliseconds after any
/// failure of its holder.
const KILLED: &str = "the benchmark killed only the process, so the system closed its connections \
                      at once; if a machine or its network fails, locks that depend on a \
                      connection stay until the server notices";

/// A warning that a store failed in some cases of the scenario that is shown.
fn failures(report: &Report, need: &Need, store: &Store) -> Option<String> {
    let (failed, all) = report.failures(need.scenario, &store.id);
    let scenario = words::title(need.scenario);
    (failed > 0)
        .then(|| format!("{} failed in {failed} of {all} cases of \"{scenario}\"", store.id))
}

/// Lists the stores that know the holders of their locks after the loss of a server. Only the class
/// of guarantee answers this, and no figure does.
pub(super) fn failover(report: &Report) -> Answer {
    let classes =
        |class| report.stores.iter().filter(move |store: &&Store| store.guarantee.class == class);
    let ids = |stores: &[&Store]| {
        listed(&stores.iter().map(|store| store.id.clone()).collect::<Vec<_>>())
    };
    let good: Vec<_> = classes(GuaranteeClass::Consensus).collect();
    let risky: Vec<_> = classes(GuaranteeClass::AsynchronousFailover).collect();
    let text = if good.is_empty() {
        "None of the measured stores, with their present settings. No majority agrees on each \
         grant, so after a failover two holders are possible, or no server takes over."
            .into()
    } else {
        format!(
            "{}: a majority agrees on each grant, and the locks survive the loss of a minority.",
            ids(&good)
        )
    };
    let figures = report
        .stores
        .iter()
        .map(|store| format!("{}: {}", store.id, words::class(store.guarantee.class)));
    let cautions = if risky.is_empty() {
        vec![]
    } else {
        vec![format!(
            "{} may grant a lock twice at a failover, so check fencing tokens",
            ids(&risky)
        )]
    };
    let named = good.iter().map(|store| store.id.clone()).collect();
    Answer {
        need: "Survives the loss of a server".into(),
        measure: None,
        text: vec![text],
        named,
        figures: figures.collect(),
        cautions,
    }
}

fn figure(one: &Ranked<'_>, metric: Metric) -> String {
    format!("{}, {}", with_value(one, metric), one.store.guarantee.class)
}

fn with_value(one: &Ranked<'_>, metric: Metric) -> String {
    format!("{}: {}", one.store.id, numbers::with_range(metric, one.series))
}

/// A finding in words. If the whole run is too short, another place in the report contains this
/// once.
pub(super) fn said(report: &Report, found: &Finding<'_>, metric: Metric) -> Option<String> {
    let is_said = *found == Finding::TooShort && words::too_short(report).is_some();
    (!is_said).then(|| in_words(found, metric))
}

fn in_words(found: &Finding<'_>, metric: Metric) -> String {
    match found {
        Finding::Best { best, next, factor } => {
            let best = with_value(best, metric);
            let next = with_value(next, metric);
            let (by, conjunction) = match *factor {
                factor if !factor.is_finite() => return format!("{best}. The next is {next}."),
                factor if factor < 2.0 => (format!("{:.0}% more", (factor - 1.0) * 100.0), "than"),
                factor => (format!("{} times as much", numbers::three(factor)), "as"),
            };
            match metric.better() {
                Better::Higher => format!("{best}, {by} {conjunction} the next, {next}."),
                Better::Lower => format!("{best}. The next, {next}, {by}."),
            }
        }
        Finding::Tied(all) => format!(
            "{} can't be distinguished in this run. Their rounds overlap, or they differ by less \
             than 5%.",
            listed(&all.iter().map(|one| with_value(one, metric)).collect::<Vec<_>>())
        ),
        Finding::Alone(one) => {
            format!("Only one measured store meets this need: {}.", with_value(one, metric))
        }
        Finding::Nobody => "No measured store meets this need.".into(),
        Finding::TooShort => {
            "This was measured in fewer than 3 rounds, which is too few to choose a store.".into()
        }
    }
}
