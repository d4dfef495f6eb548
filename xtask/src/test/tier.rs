//! Chooses the tests of each tier, and their order.

use super::programs::Program;

/// Programs of the thorough tier, by package and name. They are topologies of several servers,
/// storms, models, benchmarks, and a variant of MySQL's locks. Some repeat tests of the
/// everyday tier on other servers.
const THOROUGH: [(&str, &str); 16] = [
    ("lockkit-bench", "rivals"),
    ("lockkit-bench", "scenarios"),
    ("lockkit-conformance", "self_test"),
    ("lockkit-mysql", "pessimistic"),
    ("lockkit-redis", "model"),
    ("lockkit-redis", "topology"),
    ("lockkit-stores", "crowd"),
    ("lockkit-stores", "election_storm"),
    ("lockkit-stores", "examples"),
    ("lockkit-stores", "migration"),
    ("lockkit-stores", "redis_failover"),
    ("lockkit-stores", "redis_upheaval"),
    ("lockkit-torture", "mutants"),
    ("lockkit-torture", "self_test"),
    ("lockkit-zk", "curator"),
    ("lockkit-zk", "ensemble"),
];
/// Tests of the thorough tier in everyday programs, by package, program and parts of their names.
/// They are topologies, variants of a store, long storms, what a benchmark measures, and MySQL if
/// MariaDB tests the same statements.
const THOROUGH_PARTS: [(&str, &str, &[&str]); 7] = [
    ("lockkit-bench", "lockkit_bench", &["floor::", "scenario::", "server::"]),
    (
        "lockkit-fixture",
        "lockkit_fixture",
        &["cluster::", "ensemble::", "namespaced::", "network::", "sentinel::"],
    ),
    ("lockkit-fixture", "sql", &["mysql::"]),
    ("lockkit-mysql", "lockkit_mysql", &["galera", "::mysql"]),
    ("lockkit-mysql", "mysql", &["galera::", "mysql::"]),
    (
        "lockkit-stores",
        "conformance",
        &[
            "redis-cluster::",
            "redis-sentinel::",
            "-strict::",
            "-unfair::",
            "mysql-pessimistic::",
            "mysql::one_permit::",
            "mysql::writer::",
        ],
    ),
    (
        "lockkit-stores",
        "torture",
        &[
            "-clock::",
            "-cluster::",
            "-deposed::",
            "-ensemble::",
            "-mixed::",
            "-sentinel::",
            "-sentinel-wait::",
            "-strict::",
            "-unfair::",
            "-volatile::",
            "::c5_thousands_of_slots_",
            "galera::",
            "mysql-pessimistic::",
        ],
    ),
];
/// These programs run alone, because they use all cores themselves, or because the sessions of
/// their locks must survive an election of servers.
const ALONE: [(&str, &str); 3] =
    [("lockkit-stores", "crowd"), ("lockkit-stores", "election_storm"), ("lockkit-zk", "ensemble")];
/// The longest programs, which begin first, in this order.
const FIRST: [(&str, &str); 14] = [
    ("lockkit-stores", "conformance"),
    ("lockkit-stores", "torture"),
    ("lockkit-stores", "holder_process"),
    ("lockkit-cli", "ops"),
    ("lockkit-cli", "run"),
    ("lockkit-zk", "zk"),
    ("lockkit-mysql", "mysql"),
    ("lockkit-redis", "redis"),
    ("lockkit-mysql", "pessimistic"),
    ("lockkit-torture", "simulation"),
    ("lockkit-redis", "model"),
    ("lockkit-conformance", "self_test"),
    ("lockkit-bench", "scenarios"),
    ("lockkit-conformance", "lease_scopes"),
];

/// The choice of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Everyday,
    /// The everyday tests, on servers that stall.
    Stressed,
    Thorough,
}

/// Keeps only the programs and tests of this tier, and sorts the longest programs first.
pub(super) fn select(tier: Tier, programs: &mut Vec<Program>) {
    let place = |program: &Program| FIRST.iter().position(|id| *id == program.id());
    programs.sort_by_key(|program| place(program).unwrap_or(FIRST.len()));
    if tier == Tier::Thorough {
        return;
    }
    programs.retain(|program| !is_one_of(&THOROUGH, program));
    for program in programs {
        let parts = THOROUGH_PARTS.iter().find(|part| (part.0, part.1) == program.id());
        program.skips = parts.map_or(&[], |part| part.2);
    }
}

/// Whether no other program may run at the same time.
pub(super) fn runs_alone(program: &Program) -> bool {
    is_one_of(&ALONE, program)
}

fn is_one_of(list: &[(&str, &str)], program: &Program) -> bool {
    list.contains(&program.id())
}
