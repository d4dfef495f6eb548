//! Finds scenarios, cases and figures in a report.

use super::{
    Case, Curve, GuaranteeClass, Metric, Outcome, Report, Scenario, Series, Side, Store, Verdict,
};

impl Report {
    /// The scenarios that were run, in the report's order.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let mut found = Vec::new();
        for outcome in &self.outcomes {
            if !found.contains(&outcome.scenario) {
                found.push(outcome.scenario);
            }
        }
        found
    }

    /// The cases of a scenario, in the report's order.
    pub(super) fn cases(&self, scenario: Scenario) -> Vec<&Case> {
        let mut found = Vec::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.scenario == scenario) {
            if !found.contains(&&outcome.case) {
                found.push(&outcome.case);
            }
        }
        found
    }

    pub(super) fn outcome(
        &self,
        scenario: Scenario,
        case: &Case,
        store: &str,
        side: Side,
    ) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| {
            outcome.scenario == scenario
                && outcome.side == side
                && outcome.store == store
                && outcome.case == *case
        })
    }

    pub(super) fn series(
        &self,
        scenario: Scenario,
        case: &Case,
        store: &str,
        side: Side,
        metric: Metric,
    ) -> Option<&Series> {
        self.outcome(scenario, case, store, side)?.series(metric)
    }

    /// lockkit's figures on a store.
    pub(super) fn own(
        &self,
        scenario: Scenario,
        case: &Case,
        store: &Store,
        metric: Metric,
    ) -> Option<&Series> {
        self.series(scenario, case, &store.id, Side::Lockkit, metric)
    }

    /// The case that represents a scenario: the hardest case that resembles everyday use. It has no
    /// work under the lock, many processes, and about 64 tasks. If a store fails in that case, the
    /// choice stays the same. Otherwise a failure would choose an easier case for all stores.
    pub(super) fn typical(&self, scenario: Scenario, metric: Metric) -> Option<&Case> {
        // A store of one process or one host can't run the harder cases. It decides only where
        // there is no other store.
        let is_shared = |store: &Store| store.guarantee.class > GuaranteeClass::Host;
        let has = |case: &Case, store: &Store| self.own(scenario, case, store, metric).is_some();
        let cases = self.cases(scenario);
        let of = |is_meant: &dyn Fn(&Store) -> bool| {
            let stores: Vec<_> = self.stores.iter().filter(|store| is_meant(store)).collect();
            let measured =
                cases.iter().copied().filter(|case| stores.iter().any(|store| has(case, store)));
            hardest(measured)
        };
        of(&is_shared).or_else(|| of(&|_| true))
    }

    /// The number of cases of a scenario in which lockkit failed on a store, and the number of
    /// cases.
    pub(super) fn failures(&self, scenario: Scenario, store: &str) -> (usize, usize) {
        let of_store = |outcome: &&Outcome| {
            outcome.scenario == scenario && outcome.store == store && outcome.side == Side::Lockkit
        };
        let all: Vec<_> = self.outcomes.iter().filter(of_store).collect();
        let failed =
            all.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Failed { .. })).count();
        (failed, all.len())
    }
}

fn hardest<'a>(cases: impl Iterator<Item = &'a Case>) -> Option<&'a Case> {
    let hold = |case: &Case| case.hold_ms.unwrap_or(0.0);
    let processes = |case: &Case| case.processes.unwrap_or(1);
    let from_64 = |case: &Case| case.tasks.unwrap_or(1).abs_diff(64);
    cases.min_by(|one, other| {
        (hold(one).total_cmp(&hold(other)))
            .then(processes(other).cmp(&processes(one)))
            .then(from_64(one).cmp(&from_64(other)))
    })
}

impl Outcome {
    /// The values of a metric, if it has values and all are numbers.
    pub(crate) fn series(&self, metric: Metric) -> Option<&Series> {
        match &self.verdict {
            Verdict::Measured { figures, .. } => figures
                .get(&metric)
                .filter(|series| !series.0.is_empty() && !series.0.iter().any(|v| v.is_nan())),
            _ => None,
        }
    }

    pub(super) fn curve(&self) -> Option<&Curve> {
        match &self.verdict {
            Verdict::Measured { curve, .. } => {
                curve.as_ref().filter(|curve| curve.points.len() > 1)
            }
            _ => None,
        }
    }
}

/// The ratios of an outcome to its floor, round by round; `None` unless each round has both.
pub(super) fn ratio(own: &Series, floor: &Series) -> Option<Series> {
    let ratio = own.over(floor);
    let is_whole = own.0.len() == floor.0.len()
        && !ratio.0.is_empty()
        && ratio.0.iter().all(|v| v.is_finite());
    is_whole.then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_typical_hot_name_case_has_many_processes_and_no_hold() {
        let report = sample::report();
        let case = report.typical(Scenario::HotName, Metric::GrantsPerSecond).unwrap();
        assert_eq!((case.tasks, case.processes, case.hold_ms), (Some(64), Some(8), Some(0.0)));
    }

    /// A store that fails in a hard case must not be rewarded with an easier case.
    #[test]
    fn stores_that_fail_do_not_choose_the_case() {
        let mut report = sample::report();
        let hard = report.typical(Scenario::HotName, Metric::GrantsPerSecond).unwrap().clone();
        for outcome in &mut report.outcomes {
            if outcome.case == hard && outcome.store != "redis" {
                outcome.verdict = Verdict::Failed { reason: "too hard".into() };
            }
        }
        assert_eq!(report.typical(Scenario::HotName, Metric::GrantsPerSecond), Some(&hard));
        assert_eq!(report.failures(Scenario::HotName, "zookeeper"), (1, 12));
    }

    #[test]
    fn a_single_store_has_a_typical_case_even_with_one_process() {
        let mut report = sample::report();
        report.stores.retain(|store| store.id == "memory");
        let case = report.typical(Scenario::HotName, Metric::GrantsPerSecond).unwrap();
        assert_eq!((case.tasks, case.processes), (Some(64), Some(1)));
        assert!(report.typical(Scenario::Recovery, Metric::RecoveryMs).is_none());
    }

    #[test]
    fn ratios_are_of_the_same_round_or_not_at_all() {
        let series = |values: &[f64]| Series(values.to_vec());
        assert_eq!(ratio(&series(&[1.0, 4.0]), &series(&[2.0, 4.0])), Some(series(&[0.5, 1.0])));
        assert_eq!(
            ratio(&series(&[1.0, 4.0, 3.0]), &series(&[2.0, 4.0])),
            None,
            "one round has no floor"
        );
        assert_eq!(ratio(&series(&[1.0]), &series(&[0.0])), None, "a floor of nothing");
    }
}
