//! A made-up report for tests and pictures: five stores, all scenarios. None of its figures was
//! measured.

use super::{
    Case, Curve, Guarantee, GuaranteeClass, Host, Metric, Outcome, Report, SCHEMA, Scenario,
    Series, Setting, Side, Store, Verdict,
};

/// How a made-up store behaves.
struct Character {
    pair_us: f64,
    own_names: f64,
    hot: f64,
    fairness: f64,
    requests: f64,
    has_floor: bool,
}

/// The rounds of a figure: the same five deviations, but each figure starts at another one.
pub(in crate::report) fn around(value: f64, seed: usize) -> Series {
    const DEVIATIONS: [f64; 5] = [1.0, 0.97, 1.03, 1.01, 0.985];
    Series((0..5).map(|round| value * DEVIATIONS[(round + seed) % 5]).collect())
}

pub(in crate::report) fn store(id: &str, product: &str, class: GuaranteeClass) -> Store {
    Store {
        id: id.into(),
        url: format!("{}://10.0.0.5/", product.to_lowercase()),
        product: product.into(),
        version: "7.1".into(),
        settings: vec![Setting {
            name: "durability".into(),
            value: "some".into(),
            meaning: "the server writes each grant to disk before it answers".into(),
        }],
        guarantee: Guarantee { class, text: super::words::class(class).into() },
        is_fair: !id.contains("optimistic"),
        is_pushed: !id.contains("optimistic"),
    }
}

pub(in crate::report) fn empty(stores: Vec<Store>) -> Report {
    Report {
        schema: SCHEMA,
        lockkit: "0.1.0".into(),
        command: "lockkit-bench --url redis://10.0.0.5/ --url zk://10.0.0.6,10.0.0.7,10.0.0.8/"
            .into(),
        started_at: "2026-01-02T03:04:05Z".into(),
        took_seconds: 2_832.0,
        rounds: 5,
        slice_seconds: 3.0,
        is_quick: false,
        host: Host {
            system: "Debian GNU/Linux 12".into(),
            kernel: "6.1.0".into(),
            cpu: "Some CPU at 3 GHz".into(),
            cores: 8,
            memory_bytes: 16 << 30,
            load_before: 0.12,
        },
        stores,
        outcomes: Vec::new(),
    }
}

pub(in crate::report) fn measured(
    store: &str,
    side: Side,
    (scenario, case): (Scenario, Case),
    figures: impl IntoIterator<Item = (Metric, Series)>,
) -> Outcome {
    let verdict = Verdict::Measured { figures: figures.into_iter().collect(), curve: None };
    Outcome { scenario, case, store: store.into(), side, verdict }
}

/// A report with one store `only` and one case of [`Scenario::OwnNames`].
pub(in crate::report) fn tiny<const ROUNDS: usize>(
    own: [f64; ROUNDS],
    floor: [f64; ROUNDS],
) -> Report {
    let mut report = empty(vec![store("only", "Redis", GuaranteeClass::OneDurableServer)]);
    for (side, values) in [(Side::Lockkit, own), (Side::Floor, floor)] {
        let figures = [(Metric::GrantsPerSecond, Series(values.to_vec()))];
        report.outcomes.push(measured(
            "only",
            side,
            (Scenario::OwnNames, Case::default()),
            figures,
        ));
    }
    report
}

/// A report of all scenarios over five stores.
pub(in crate::report) fn report() -> Report {
    let characters = [
        ("memory", "Memory", GuaranteeClass::Process, [2.0, 900_000.0, 400_000.0, 1.0, 0.0], false),
        ("redis", "Redis", GuaranteeClass::Volatile, [140.0, 42_000.0, 9_800.0, 1.04, 2.9], true),
        (
            "zookeeper",
            "ZooKeeper",
            GuaranteeClass::Consensus,
            [1_900.0, 9_000.0, 1_050.0, 1.02, 4.6],
            true,
        ),
        (
            "mysql-optimistic",
            "MySQL",
            GuaranteeClass::OneDurableServer,
            [1_930.0, 6_300.0, 610.0, 3.7, 3.4],
            true,
        ),
        (
            "mysql-pessimistic",
            "MySQL",
            GuaranteeClass::OneDurableServer,
            [3_400.0, 2_900.0, 720.0, 1.06, 6.2],
            true,
        ),
    ];
    let mut report = empty(
        characters.iter().map(|(id, product, class, ..)| store(id, product, *class)).collect(),
    );
    for (scenario, case) in plan() {
        for (seed, (id, _, _, [pair_us, own_names, hot, fairness, requests], has_floor)) in
            characters.iter().enumerate()
        {
            let character = Character {
                pair_us: *pair_us,
                own_names: *own_names,
                hot: *hot,
                fairness: *fairness,
                requests: *requests,
                has_floor: *has_floor,
            };
            let case = case.clone();
            push(&mut report, Cell { id, character: &character, scenario, case, seed });
        }
    }
    report
}

fn plan() -> Vec<(Scenario, Case)> {
    let tasks = |tasks| Case { tasks: Some(tasks), ..Case::default() };
    let hot = |processes, count, hold| Case {
        processes: Some(processes),
        names: Some(1),
        hold_ms: Some(hold),
        ..tasks(count)
    };
    let mut plan = vec![
        (Scenario::Uncontended, Case { names: Some(1), ..tasks(1) }),
        (Scenario::OwnNames, Case { names: Some(64), ..tasks(64) }),
        (Scenario::Zipf, Case { names: Some(10_000), ..tasks(64) }),
    ];
    for hold in [0.0, 2.0] {
        plan.extend([2, 8, 64, 256].map(|count| (Scenario::HotName, hot(1, count, hold))));
    }
    plan.extend(
        [(2, 2), (8, 8), (8, 64), (8, 256)]
            .map(|(processes, count)| (Scenario::HotName, hot(processes, count, 0.0))),
    );
    plan.extend(
        [2, 8, 64, 256].map(|count| (Scenario::HandOff, Case { names: Some(1), ..tasks(count) })),
    );
    plan.push((
        Scenario::ReadWrite,
        Case { readers_percent: Some(90), names: Some(1), ..tasks(64) },
    ));
    plan.push((Scenario::Semaphore, Case { permits: Some(4), ..tasks(32) }));
    plan.extend(
        [2, 64, 1000].map(|count| (Scenario::Crowd, Case { names: Some(1), ..tasks(count) })),
    );
    plan.push((
        Scenario::IdleLocks,
        Case { names: Some(10_000), ttl_ms: Some(30_000), ..Case::default() },
    ));
    plan.push((Scenario::Recovery, Case { ttl_ms: Some(3_000), ..Case::default() }));
    plan.push((
        Scenario::OpenLoop,
        Case { rate_per_second: Some(200.0), names: Some(64), ..tasks(64) },
    ));
    plan
}

/// One case on one made-up store.
struct Cell<'a> {
    id: &'a str,
    character: &'a Character,
    scenario: Scenario,
    case: Case,
    /// Where the deviations of the figures start.
    seed: usize,
}

/// The basic figures of a cell, from which the others follow.
struct Basis {
    rate: f64,
    wait: f64,
    /// How many times the median the wait at the 99th percentile is.
    p99: f64,
}

fn push(report: &mut Report, cell: Cell<'_>) {
    if let Some(verdict) = cell.without_figures() {
        report.outcomes.push(Outcome {
            scenario: cell.scenario,
            case: cell.case,
            store: cell.id.into(),
            side: Side::Lockkit,
            verdict,
        });
        return;
    }
    let basis = cell.basis();
    let figures = cell.figures(&basis);
    let Cell { id, character, scenario, case, seed } = cell;
    let Basis { rate, wait, p99 } = basis;
    let mut outcome = measured(id, Side::Lockkit, (scenario, case.clone()), figures);
    if let Verdict::Measured { curve, .. } = &mut outcome.verdict {
        *curve = Some(bend(wait, p99));
    }
    report.outcomes.push(outcome);
    if character.has_floor && crate::scenario::contenders(scenario, &case).is_some() {
        let peer = (id == "redis").then_some(Side::Rslock);
        for side in [Side::Classic].into_iter().chain(peer) {
            let mut figures = vec![(Metric::GrantsPerSecond, around(rate / 0.9, seed))];
            if scenario == Scenario::HotName {
                figures.push((Metric::MostOverLeast, around(40.0, seed)));
            }
            report.outcomes.push(measured(id, side, (scenario, case.clone()), figures));
        }
    }
    if character.has_floor
        && !matches!(scenario, Scenario::IdleLocks | Scenario::Recovery | Scenario::HandOff)
    {
        let figures = [
            (Metric::GrantsPerSecond, around(rate * 1.07, seed)),
            (Metric::WaitP50Us, around(wait / 1.07, seed)),
        ];
        report.outcomes.push(measured(id, Side::Floor, (scenario, case), figures));
    }
}

impl Cell<'_> {
    fn is_memory(&self) -> bool {
        self.id == "memory"
    }

    fn tasks(&self) -> f64 {
        f64::from(self.case.tasks.unwrap_or(1))
    }

    /// The verdict of a case that the store can't do, or that fails on it.
    fn without_figures(&self) -> Option<Verdict> {
        let is_memory = self.is_memory();
        let reason = match self.scenario {
            Scenario::Recovery if is_memory => Some("its locks end with the process"),
            Scenario::HotName if is_memory && self.case.processes.unwrap_or(1) > 1 => {
                Some("it is seen by one process only")
            }
            Scenario::Crowd
                if self.id != "zookeeper" && !is_memory && self.case.tasks == Some(1000) =>
            {
                Some("so many waiters need more connections than the server grants")
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return Some(Verdict::NotApplicable { reason: reason.into() });
        }
        (self.scenario == Scenario::Semaphore && self.id == "mysql-pessimistic").then(|| {
            Verdict::Failed {
                reason: "could not take 'sem' on mysql: Lock wait timeout exceeded (1205)".into(),
            }
        })
    }

    fn basis(&self) -> Basis {
        let character = self.character;
        let tasks = self.tasks();
        let hold_us = self.case.hold_ms.unwrap_or(0.0) * 1e3;
        let (rate, wait) = match self.scenario {
            Scenario::Uncontended => (1e6 / character.pair_us, character.pair_us / 1.9),
            Scenario::OwnNames | Scenario::OpenLoop => {
                (character.own_names, 64e6 / character.own_names)
            }
            Scenario::Zipf => (character.own_names * 0.6, 64e6 / character.own_names / 0.6),
            Scenario::ReadWrite => (character.own_names * 0.4, 64e6 / character.own_names / 0.4),
            Scenario::Semaphore => (character.hot * 2.5, tasks * 1e6 / character.hot / 2.5),
            _ => (1e6 / (1e6 / character.hot + hold_us), tasks * (1e6 / character.hot + hold_us)),
        };
        let p99 = if self.id.contains("optimistic") { 9.0 } else { 1.8 };
        Basis { rate, wait, p99 }
    }

    /// The figures of lockkit.
    fn figures(&self, basis: &Basis) -> Vec<(Metric, Series)> {
        let Self { character, scenario, seed, .. } = *self;
        let mut figures = self.main_figures(basis);
        let is_contended = matches!(scenario, Scenario::HotName | Scenario::Crowd);
        if is_contended {
            figures.push((Metric::MostOverLeast, around(character.fairness, seed)));
        }
        if !self.is_memory()
            && (is_contended || matches!(scenario, Scenario::Uncontended | Scenario::OwnNames))
        {
            figures.push((
                Metric::RequestsPerGrant,
                around(if is_contended { character.requests } else { 2.0 }, 0),
            ));
        }
        figures
    }

    /// The figures that the scenario is about. For most scenarios, these are its rate and its
    /// waits.
    fn main_figures(&self, basis: &Basis) -> Vec<(Metric, Series)> {
        let Self { character, seed, .. } = *self;
        let tasks = self.tasks();
        match self.scenario {
            Scenario::HandOff => vec![
                (Metric::HandOffP50Us, around(character.pair_us * (0.8 + tasks / 300.0), seed)),
                (Metric::HandOffP99Us, around(character.pair_us * (2.0 + tasks / 50.0), seed + 1)),
            ],
            Scenario::IdleLocks => vec![
                (
                    Metric::IdleRequestsPerSecond,
                    around(if self.is_memory() { 0.0 } else { 1_000.0 / character.requests }, seed),
                ),
                (Metric::BytesPerLock, around(640.0 + character.requests * 90.0, seed)),
                (Metric::CpuPercent, around(1.0 + character.requests, seed + 2)),
            ],
            Scenario::Recovery => {
                vec![(Metric::RecoveryMs, around(2_400.0 + character.pair_us / 3.0, seed))]
            }
            _ => vec![
                (Metric::GrantsPerSecond, around(basis.rate, seed)),
                (Metric::WaitP50Us, around(basis.wait, seed + 1)),
                (Metric::WaitP99Us, around(basis.wait * basis.p99, seed + 2)),
                (Metric::WaitMaxUs, around(basis.wait * basis.p99 * 3.1, seed + 3)),
            ],
        }
    }
}

fn bend(p50: f64, p99: f64) -> Curve {
    let tail = [
        (0.0, 0.5),
        (25.0, 0.8),
        (50.0, 1.0),
        (75.0, 1.2),
        (90.0, 1.0 + p99 / 5.0),
        (95.0, 1.0 + p99 / 3.0),
    ];
    let end = [(99.0, p99), (99.9, p99 * 1.9), (99.99, p99 * 2.6), (100.0, p99 * 3.1)];
    let points =
        tail.into_iter().chain(end).map(|(percentile, times)| [percentile, p50 * times]).collect();
    Curve { count: 60_000, points }
}
