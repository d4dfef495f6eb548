//! The words for scenarios, cases and metrics.

use super::{Case, GuaranteeClass, Metric, Report, Scenario, Side, Store, numbers};

/// The heading of a scenario.
pub(super) const fn title(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Uncontended => "One task, nobody else",
        Scenario::OwnNames => "Many names, one task each",
        Scenario::Zipf => "Many names, some popular",
        Scenario::HotName => "One hot name",
        Scenario::HandOff => "Hand-off",
        Scenario::ReadWrite => "Readers and writers",
        Scenario::Semaphore => "Semaphore",
        Scenario::Crowd => "A crowd in the store",
        Scenario::IdleLocks => "Idle locks",
        Scenario::Recovery => "Recovery after a crash",
        Scenario::OpenLoop => "Requests at a fixed rate",
    }
}

/// The work of a scenario, and the question that it answers.
pub(super) const fn explanation(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Uncontended => {
            "One task takes and gives back a name that nobody else wants: what a lock costs when there is no \
                queue."
        }
        Scenario::OwnNames => {
            "Each task has a name of its own, so nobody waits for anybody: how many locks the store can do at \
                once."
        }
        Scenario::Zipf => {
            "Tasks pick from many names, some of which are far more popular (Zipf, exponent 1): most locks \
                are free, some have queues."
        }
        Scenario::HotName => {
            "Everybody wants the same name: how fast it goes round, how long one waits, and whether all get \
                their share."
        }
        Scenario::HandOff => {
            "From the release by one to the grant of the next, each waiting in the store: the time in which \
                nobody has the lock."
        }
        Scenario::ReadWrite => {
            "Most tasks only read, and readers may share; a writer wants the name alone."
        }
        Scenario::Semaphore => "A few permits for many tasks.",
        Scenario::Crowd => {
            "Everybody wants the same name, and each waits in the store for itself: what a long queue costs \
                the server."
        }
        Scenario::IdleLocks => {
            "Locks are held and renewed while nothing else happens: what they cost the server and this process."
        }
        Scenario::Recovery => {
            "A process that holds the lock is killed: how long until another one gets it. The lease sets the \
                scale."
        }
        Scenario::OpenLoop => {
            "Requests come at a fixed rate, however slow the answers are, and the wait counts from the moment \
                a request was due: a stall is felt by all who come during it."
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

/// The work of the classic beside a scenario, where it has any. A row lock and a peer do the same.
pub(super) const fn classic(scenario: Scenario) -> Option<&'static str> {
    match scenario {
        Scenario::Uncontended => Some("one client does the same."),
        Scenario::OwnNames => Some("as many clients as tasks do the same."),
        Scenario::HotName => Some(
            "as many clients as tasks want the same name and wait for each other, in the cases of one process.",
        ),
        _ => None,
    }
}

/// The bare driver's work beside a scenario, where it has any.
pub(super) const fn floor(scenario: Scenario) -> Option<&'static str> {
    Some(match scenario {
        Scenario::Uncontended => "one client takes and gives back one name, again and again.",
        Scenario::OwnNames => "as many clients as tasks, each with a name of its own.",
        Scenario::Zipf => {
            "as many clients as tasks, each with its share of the names, drawn in the same way: nobody waits for anybody. \
             What popular names make their tasks wait is in lockkit's figures only."
        }
        Scenario::HotName | Scenario::Crowd => {
            "one client takes the name, holds it for as long as the case says, and gives it back, with nobody else \
             about: the server's part of a turn. lockkit can be faster, as it hands a lock over with one request."
        }
        Scenario::HandOff => {
            "one client gives the name back and takes it again, with nobody else about: what lies between two grants \
             at least, without the way to another client."
        }
        Scenario::ReadWrite => {
            "as many clients as tasks, each with a name of its own, as if all only read. Writers that keep readers out \
             are in lockkit's figures only."
        }
        Scenario::Semaphore => {
            "as many clients as there are permits, each with a name of its own: what the permits could do if nobody \
             had to wait for one."
        }
        Scenario::OpenLoop => {
            "as many clients as names do what is due at the same rate, and their waits count from the moment it was \
             due as well. How much is done is given by the rate, so that only waits are compared."
        }
        Scenario::IdleLocks | Scenario::Recovery => return None,
    })
}

/// Why a measured case may lack a figure.
pub(super) const fn lack(metric: Metric) -> &'static str {
    match metric {
        Metric::MostOverLeast => "too few grants for each task to call it luck or not",
        Metric::WaitP99Us | Metric::HandOffP99Us => {
            "with fewer than 100 in a round it would be the slowest one"
        }
        Metric::ClientCpuUs => "the system does not tell it",
        Metric::ServerCpuUs => "the server does not tell its processor time",
        Metric::RequestsPerGrant | Metric::IdleRequestsPerSecond => {
            "the server does not tell its counts"
        }
        _ => "there was nothing to count",
    }
}

/// Notes that explain the figures, for both forms of the report.
pub(super) const NOTES: [&str; 5] = [
    "The classic is what programs do without a lock library. On Redis it is SET NX PX with a random token, and a script \
     that deletes the key if it still has that token; a client that finds the key asks again after a random pause of up \
     to 10 ms. On MySQL it is GET_LOCK, on ZooKeeper the lock recipe of the client library, which frees a lock in the \
     background, and in a folder flock. None has a fencing token, and on Redis it has no renewal and no queue: a ratio \
     below 1 is the price of those. The row lock of MySQL is BEGIN, SELECT … FOR UPDATE and COMMIT.",
    "The bare driver is the least that the store has to do for the same work: on Redis the scripts that lockkit sends, on \
     ZooKeeper create, exists and delete, on MySQL two updates, or a transaction with a row lock, in a folder a file \
     that the system locks. It does not retry, renew, or wait for anybody. Each scenario says what it does there.",
    "Requests are counted by the server, which does not tell whose they are: on one that others use, theirs are among \
     those for each grant and those of idle locks.",
    "p99 takes 100 waits in a round at least, and is left out where there were fewer. Most ÷ least takes 20 grants for \
     each task on average; it has no end (∞) where somebody got nothing.",
    "Recovery is measured by killing the process. Its system closes its connections at once, which frees locks that hang \
     on a connection; where a whole machine or its network vanishes, these take until the server notices.",
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
    if parts.is_empty() { "as is".into() } else { parts.join(", ") }
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
            "a restart of the server forgets the locks, and two may then hold one"
        }
        GuaranteeClass::AsynchronousFailover => {
            "a replica that takes over may not know the last grants, and two may then hold one"
        }
        GuaranteeClass::OneDurableServer => {
            "locks outlive a crash of the server, but while it is down nobody gets one"
        }
        GuaranteeClass::Consensus => {
            "a majority agrees on each grant: the loss of a minority is survived"
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
        format!("load {:.2} before the run: other work was going on", host.load_before)
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
        "{}, in each of which all stores had their turn, {} s a turn; {} in all",
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

/// With fewer rounds, nothing is known about the noise.
pub(super) const MIN_ROUNDS: u32 = 3;

/// Why this run is too short to choose a store by, if it is. A report says it once.
pub(super) const fn too_short(report: &Report) -> Option<&'static str> {
    if report.is_quick {
        Some(
            "This was a quick run: it shows that all works, and is too short to choose a store by. Measure without --quick, \
             in 3 rounds or more.",
        )
    } else if report.rounds < MIN_ROUNDS {
        Some("This run is too short to choose a store by: measure in 3 rounds or more.")
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
        assert_eq!(case(&Case::default()), "as is");
    }

    #[test]
    fn memory_is_exact() {
        assert_eq!(memory(8 << 30), 8_589_934_592.0);
        assert_eq!(memory(123), 123.0);
    }
}
