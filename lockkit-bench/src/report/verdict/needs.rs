//! The needs that figures can answer.

use super::{
    Answer, caution, listed,
    rank::{Finding, Ranked, finding, rank},
};
use crate::report::{Better, GuaranteeClass, Metric, Report, Scenario, Store, numbers, words};

/// A need, and the figure that answers it.
pub(super) struct Need {
    name: &'static str,
    scenario: Scenario,
    metric: Metric,
    /// Beyond being seen by other processes.
    is_met_by: fn(&Store) -> bool,
    /// Why a store that doesn't meet it is left out.
    otherwise: &'static str,
}

const fn any(_: &Store) -> bool {
    true
}

const fn need(name: &'static str, scenario: Scenario, metric: Metric) -> Need {
    Need { name, scenario, metric, is_met_by: any, otherwise: "" }
}

/// In the order in which they are answered.
pub(super) const NEEDS: [Need; 6] = [
    need("Lowest latency", Scenario::Uncontended, Metric::WaitP50Us),
    need("Most throughput on many names", Scenario::OwnNames, Metric::GrantsPerSecond),
    need("One hot name", Scenario::HotName, Metric::GrantsPerSecond),
    Need {
        is_met_by: |store| store.is_fair,
        otherwise: "it does not serve waiters in their order",
        ..need("Fair to all who wait", Scenario::HotName, Metric::MostOverLeast)
    },
    need("Quickest recovery after a crash of the holder", Scenario::Recovery, Metric::RecoveryMs),
    need("Cheap idle locks", Scenario::IdleLocks, Metric::IdleRequestsPerSecond),
];

/// The answer to a need; `None` if its scenario was not run.
pub(super) fn answer(report: &Report, need: &Need) -> Option<Answer> {
    let Some(case) = report.typical(need.scenario, need.metric) else {
        let text = "Nothing was measured that would tell.".into();
        let was_run = report.scenarios().contains(&need.scenario);
        return was_run.then(|| Answer {
            need: need.name.into(),
            text,
            named: vec![],
            figures: vec![],
            cautions: vec![],
        });
    };
    let measured = (need.scenario, case, need.metric);
    let is_shared = |store: &Store| store.guarantee.class > GuaranteeClass::Process;
    let ranked = rank(report, measured, |store| is_shared(store) && (need.is_met_by)(store));
    let found = finding(report, &ranked);
    let mut text = said(&found, need.metric);
    let mut named = found.named();
    if !named.is_empty() && named.iter().all(|store| caution(store).is_some()) {
        let durable: Vec<_> = ranked.iter().filter(|one| caution(one.store).is_none()).cloned().collect();
        let found = finding(report, &durable);
        if !durable.is_empty() {
            text.push_str(" Among those that keep their locks over a restart: ");
            text.push_str(&said(&found, need.metric));
            named.extend(found.named());
        }
    }
    let mut figures = vec![format!("{}: {}", words::metric(need.metric), words::case(case))];
    figures.extend(ranked.iter().map(|one| figure(one, need.metric)));
    for store in rank(report, measured, |_| true).iter().map(|one| one.store) {
        if !is_shared(store) {
            figures.push(format!("{} is left out: {}", store.id, words::class(store.guarantee.class)));
        } else if !(need.is_met_by)(store) {
            figures.push(format!("{} is left out: {}", store.id, need.otherwise));
        }
    }
    let cautions = named.into_iter().filter_map(caution).collect();
    let named = found.named().into_iter().map(|store| store.id.clone()).collect();
    Some(Answer { need: need.name.into(), text, named, figures, cautions })
}

/// Who still knows who has the lock after a server is gone. No figure can answer that: the class of guarantee does.
pub(super) fn failover(report: &Report) -> Answer {
    let classes = |class| report.stores.iter().filter(move |store: &&Store| store.guarantee.class == class);
    let ids = |stores: &[&Store]| listed(&stores.iter().map(|store| store.id.as_str()).collect::<Vec<_>>());
    let good: Vec<_> = classes(GuaranteeClass::Consensus).collect();
    let risky: Vec<_> = classes(GuaranteeClass::AsynchronousFailover).collect();
    let text = if good.is_empty() {
        "None of the stores measured, as they are set up: without a majority that agrees on each grant, a failover may \
         give a lock to two, or nobody takes over."
            .into()
    } else {
        format!("{}: a majority agrees on each grant, and the loss of a minority is survived.", ids(&good))
    };
    let figures =
        report.stores.iter().map(|store| format!("{}: {}", store.id, words::class(store.guarantee.class)));
    let cautions = if risky.is_empty() {
        vec![]
    } else {
        vec![format!(
            "{} may grant a lock twice at a failover: check fencing tokens where it is used",
            ids(&risky)
        )]
    };
    let named = good.iter().map(|store| store.id.clone()).collect();
    Answer { need: "Survives the loss of a server".into(), text, named, figures: figures.collect(), cautions }
}

fn figure(one: &Ranked<'_>, metric: Metric) -> String {
    format!("{}: {} – {}", one.store.id, numbers::with_range(metric, one.series), one.store.guarantee.class)
}

/// A finding in words.
pub(super) fn said(found: &Finding<'_>, metric: Metric) -> String {
    match found {
        Finding::Best { best, next, factor } => {
            let comparison = match metric.better() {
                Better::Higher => "as much as",
                Better::Lower => "better than",
            };
            match (factor.is_finite(), *factor < 2.0) {
                (false, _) => format!("{}. The next is {}.", best.id, next.id),
                (_, true) => format!("{}, {:.0}% better than the next, {}.", best.id, (factor - 1.0) * 100.0, next.id),
                _ => format!("{}, {} times {comparison} the next, {}.", best.id, numbers::three(*factor), next.id),
            }
        }
        Finding::Tied(stores) => format!(
            "{} can't be told apart in this run: their rounds overlap, or differ by less than 5%.",
            listed(&stores.iter().map(|store| store.id.as_str()).collect::<Vec<_>>())
        ),
        Finding::Alone(store) => format!("Only {} was measured that meets this need.", store.id),
        Finding::Nobody => "None of the stores measured meets this need.".into(),
        Finding::TooShort => {
            "This run is too short to choose by; the figures below only show what it saw. Run it without --quick.".into()
        }
    }
}
