//! The words for scenarios, cases and metrics.

use super::{Case, GuaranteeClass, Metric, Report, Scenario, Side, Store, numbers};

/// The heading of a scenario.
pub(super) const fn title(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Uncontended => "One task, no contention",
        Scenario::OwnNames => "Many names, one task each",
        Scenario::Zipf => "Many names, some popular",
        Scenario::HotName => "One hot name",
        Scenario::HandOff => "Hand-off",
        Scenario::ReadWrite => "Readers and writers",
        Scenario::Semaphore => "Semaphore",
        Scenario::Crowd => "Many waiters in the store",
        Scenario::IdleLocks => "Idle locks",
        Scenario::Recovery => "Recovery after a crash",
        Scenario::OpenLoop => "Requests at a fixed rate",
    }
}

/// The work of a scenario, and the question that it answers.
pub(super) const fn explanation(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Uncontended => {
            "One task takes and releases a name that no other task wants. This shows the cost of a \
             lock without a queue."
        }
        Scenario::OwnNames => {
            "Each task has its own name, so no task waits for another. This shows how many locks \
             the store can grant at once."
        }
        Scenario::Zipf => {
            "Tasks choose among many names, and some names are far more popular than others (Zipf, \
             exponent 1). Most locks are free, and some have queues."
        }
        Scenario::HotName => {
            "All tasks want the same name. This shows the rate of grants, the length of a wait, \
             and whether each task gets its share."
        }
        Scenario::HandOff => {
            "The time from one task's release to the next task's grant. All waiters wait in the \
             store. No task has the lock in this time."
        }
        Scenario::ReadWrite => {
            "Most tasks only read, and readers share the name. A writer needs the name alone."
        }
        Scenario::Semaphore => "Many tasks share a few permits.",
        Scenario::Crowd => {
            "All tasks want the same name, and each task waits in the store. This shows the cost \
             of a long queue for the server."
        }
        Scenario::IdleLocks => {
            "The process only holds and renews locks. This shows their cost for the server and for \
             the process."
        }
        Scenario::Recovery => {
            "The benchmark kills a process that holds the lock. This shows the time until another \
             process gets the lock. It depends mostly on the lease."
        }
        Scenario::OpenLoop => {
            "Requests come at a fixed rate, even if the answers are slow. A wait counts from the \
             moment when the request was due, so a stall delays all requests that come during it."
        }
    }
}

/// The name of the software that did the work.
pub(super) const fn side(side: Side) -> &'static str {
    match side {
        Side::Lockkit => "lockkit",
        Side::Classic => "classic",
        Side::RowLock => "row lock",
        Side::Floor => "bare driver",
        Side::Rslock => "rslock",
    }
}

/// The work of the classic in a scenario, if it takes part. A row lock and a peer do the same.
pub(super) const fn classic(scenario: Scenario) -> Option<&'static str> {
    match scenario {
        Scenario::Uncontended => Some("one client does the same work."),
        Scenario::OwnNames => Some("there is a client for each task. They do the same work."),
        Scenario::HotName => Some(
            "there is a client for each task. They want the same name and wait for each other. The \
             classic is measured in the cases with one process.",
        ),
        _ => None,
    }
}

/// The bare driver's work in a scenario, if it takes part.
pub(super) const fn floor(scenario: Scenario) -> Option<&'static str> {
    Some(match scenario {
        Scenario::Uncontended => "one client takes and releases one name, again and again.",
        Scenario::OwnNames => "there is a client for each task. Each client has its own name.",
        Scenario::Zipf => {
            "there is a client for each task. Each client has its own share of the names, and \
             chooses among them in the same way, so no client waits for another. Only lockkit's \
             figures include the waits for popular names."
        }
        Scenario::HotName | Scenario::Crowd => {
            "one client takes the name, holds it as long as the case says, and releases it. No \
             other client wants the name. This is the server's part of a turn. lockkit can be \
             faster, because it transfers a lock with one request."
        }
        Scenario::HandOff => {
            "one client releases the name and takes it again. No other client wants the name. This \
             is the least time between two grants, without the way to another client."
        }
        Scenario::ReadWrite => {
            "there is a client for each task. Each client has its own name, as if all tasks only \
             read. Only lockkit's figures include the waits for writers."
        }
        Scenario::Semaphore => {
            "there is a client for each permit. Each client has its own name. This is the highest \
             rate of the permits, because no client waits for one."
        }
        Scenario::OpenLoop => {
            "there is a client for each name. The clients send the due requests at the same rate, \
             and a wait also counts from the moment when the request was due. The rate is fixed, \
             so the report compares only the waits."
        }
        Scenario::IdleLocks | Scenario::Recovery => return None,
    })
}

/// The reason why a measured case may lack a figure.
pub(super) const fn lack(metric: Metric) -> &'static str {
    match metric {
        Metric::MostOverLeast => "too few grants for each task, so the figure would be chance",
        Metric::WaitP99Us | Metric::HandOffP99Us => {
            "a round had fewer than 100 values, so p99 would be the slowest one"
        }
        Metric::ClientCpuUs => "the system does not report it",
        Metric::ServerCpuUs => "the server does not report its processor time",
        Metric::RequestsPerGrant | Metric::IdleRequestsPerSecond => {
            "the server does not report its counts"
        }
        _ => "there was nothing to count",
    }
}

/// Notes that explain the figures, for both forms of the report.
pub(super) const NOTES: [&str; 5] = [
    "The classic is the lock that programs use without a lock library. On Redis it is SET NX PX \
     with a random token, and a script that deletes the key if it still has that token. A client \
     that finds the key asks again after a random pause of up to 10 ms. On MySQL it is GET_LOCK. \
     On ZooKeeper it is the lock recipe of the client library, which frees a lock in the \
     background. In a folder it is flock. No classic has a fencing token, and on Redis it has no \
     renewal and no queue. A ratio below 1 is the price of these features. The row lock of MySQL \
     is BEGIN, SELECT … FOR UPDATE and COMMIT.",
    "The bare driver does the least work that the store needs for the same locks. On Redis it \
     sends the scripts that lockkit sends. On ZooKeeper it sends create, exists and delete. On \
     MySQL it sends two updates, or a transaction with a row lock. In a folder it locks a file. \
     The bare driver does not retry, renew or wait. Each scenario describes its work there.",
    "The server counts the requests, and does not report which client sent them. If other clients \
     use the server, their requests are part of the requests per grant and of the requests when \
     idle.",
    "p99 needs at least 100 waits in a round, and is left out of rounds with fewer. Most ÷ least \
     needs 20 grants for each task on average. It is infinite (∞) if a task got no grant.",
    "The benchmark measures recovery by killing the process. The system then closes the \
     connections of the process at once, which frees the locks that depend on a connection. If a \
     whole machine or its network fails, these locks stay until the server notices.",
];

/// The parameters of a case, such as `64 tasks, 8 processes, 2 ms hold`.
pub(super) fn case(case: &Case) -> String {
    let many = |count: u32, one: &str, more: &str| {
        format!("{} {}", numbers::count(count.into()), if count == 1 { one } else { more })
    };
    let parts = [
        case.tasks.map(|tasks| many(tasks, "task", "tasks")),
        case.processes.map(|processes| many(processes, "process", "processes")),
        case.names.map(|names| many(names, "name", "names")),
        case.permits.map(|permits| many(permits, "permit", "permits")),
        case.readers_percent.map(|readers| format!("{readers}% readers")),
        case.rate_per_second.map(|rate| format!("{}/s", numbers::three(rate))),
        case.hold_ms.map(|hold| format!("{hold} ms hold")),
        case.ttl_ms.map(|ttl| format!("{} lease", duration_ms(ttl))),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "default".into() } else { parts.join(", ") }
}

fn duration_ms(ms: u32) -> String {
    if ms >= 1000 { format!("{} s", f64::from(ms) / 1000.0) } else { format!("{ms} ms") }
}

/// The heading of a column.
pub(super) const fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::GrantsPerSecond => "grants",
        Metric::WaitP50Us => "wait p50",
        Metric::WaitP99Us => "wait p99",
        Metric::WaitMaxUs => "slowest wait",
        Metric::HandOffP50Us => "hand-off p50",
        Metric::HandOffP99Us => "hand-off p99",
        Metric::RequestsPerGrant => "requests per grant",
        Metric::ClientCpuUs => "client CPU per grant",
        Metric::ServerCpuUs => "server CPU per grant",
        Metric::MostOverLeast => "most ÷ least",
        Metric::RecoveryMs => "recovery",
        Metric::BytesPerLock => "memory per lock",
        Metric::IdleRequestsPerSecond => "requests when idle",
        Metric::CpuPercent => "processor",
        Metric::LeaseMs => "lease",
    }
}

/// The needs for which a class of guarantees is enough.
pub(super) const fn class(class: GuaranteeClass) -> &'static str {
    match class {
        GuaranteeClass::Process => "no other process sees these locks",
        GuaranteeClass::Host => "no other host sees these locks",
        GuaranteeClass::Volatile => {
            "a restart of the server forgets the locks, so two holders are possible"
        }
        GuaranteeClass::AsynchronousFailover => {
            "a replica that takes over may lack the last grants, so two holders are possible"
        }
        GuaranteeClass::OneDurableServer => {
            "locks survive a crash of the server, but the server grants none while it is down"
        }
        GuaranteeClass::Consensus => {
            "a majority agrees on each grant, and the locks survive the loss of a minority"
        }
    }
}

/// The product and its version.
pub(super) fn product(store: &Store) -> String {
    format!("{} {}", store.product, store.version).trim().to_owned()
}

/// The machine, in one line.
pub(super) fn host(report: &Report) -> String {
    let host = &report.host;
    let load = if host.load_before > 0.3 {
        format!("load {:.2} before the run, because other programs were at work", host.load_before)
    } else {
        format!("load {:.2} before the run", host.load_before)
    };
    format!(
        "{}, kernel {}, {} ({} cores), {} memory, {load}",
        host.system,
        host.kernel,
        host.cpu,
        host.cores,
        numbers::bytes(memory(host.memory_bytes)).text()
    )
}

/// The number and length of the rounds, in one line.
pub(super) fn rounds(report: &Report) -> String {
    format!(
        "{}. In each round all stores had a turn of {} s. The run took {}",
        if report.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", report.rounds) },
        report.slice_seconds,
        took(report.took_seconds)
    )
}

fn took(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds => format!("{:.1} hours", seconds / 3_600.0),
    }
}

/// With fewer rounds, the noise is unknown.
pub(super) const MIN_ROUNDS: u32 = 3;

/// The reason why this run is too short to choose a store, if it is. A report contains it once.
pub(super) const fn too_short(report: &Report) -> Option<&'static str> {
    if report.is_quick {
        Some(
            "This was a quick run. It shows that everything works, but it is too short to choose a \
             store. Measure without --quick, in 3 rounds or more.",
        )
    } else if report.rounds < MIN_ROUNDS {
        Some("This run is too short to choose a store. Measure in 3 rounds or more.")
    } else {
        None
    }
}

/// The result is exact up to 2⁵³ bytes.
fn memory(bytes: u64) -> f64 {
    let high = bytes >> 32;
    let low = bytes & u64::from(u32::MAX);
    let part = |part: u64| u32::try_from(part).map_or(0.0, f64::from);
    part(high) * 4_294_967_296.0 + part(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_shows_its_parameters_and_nothing_else() {
        let case_of =
            Case { tasks: Some(64), processes: Some(1), hold_ms: Some(2.0), ..Case::default() };
        assert_eq!(case(&case_of), "64 tasks, 1 process, 2 ms hold");
        assert_eq!(
            case(&Case { names: Some(10_000), ttl_ms: Some(30_000), ..Case::default() }),
            "10,000 names, 30 s lease"
        );
        assert_eq!(case(&Case::default()), "default");
    }

    #[test]
    fn memory_is_exact() {
        assert_eq!(memory(8 << 30), 8_589_934_592.0);
        assert_eq!(memory(123), 123.0);
    }
}
