//! The scenarios, with one file each, and the loops that they share.

mod bare;
pub(crate) mod closed;
mod crowd;
mod hand_off;
pub(crate) mod hot_name;
mod idle_locks;
mod open_loop;
mod own_names;
mod read_write;
mod recovery;
mod semaphore;
mod uncontended;
mod zipf;

use std::time::Duration;

use lockkit::spi::LeaseScope;

use crate::{
    children::Children,
    error::{Error, Result},
    floor::Rival,
    report::{Case, Scenario, Side},
    sample::Sample,
    target::Target,
};

/// Larger crowds run only on stores that have a queue.
const CROWD_OF_ALL: u32 = 64;

/// One slice of one case on one store.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) target: &'a Target,
    pub(crate) scenario: Scenario,
    pub(crate) case: &'a Case,
    /// The name of the lock, or the prefix of all names.
    pub(crate) name: &'a str,
    pub(crate) slice: Duration,
    pub(crate) children: &'a Children,
}

impl Turn<'_> {
    fn tasks(&self) -> usize {
        usize::try_from(self.case.tasks.unwrap_or(1)).unwrap_or(usize::MAX)
    }

    fn hold(&self) -> Duration {
        Duration::from_secs_f64(self.case.hold_ms.unwrap_or(0.0) / 1_000.0)
    }
}

/// The reason why the case can't be measured on the store.
pub(crate) fn obstacle(scenario: Scenario, case: &Case, target: &Target) -> Option<String> {
    let descriptor = target.locker.descriptor();
    let capabilities = &descriptor.capabilities;
    let is_apart = case.processes.unwrap_or(1) > 1 || scenario == Scenario::Recovery;
    if is_apart && target.is_within_process() {
        return Some("its locks are only for the tasks of one process".to_owned());
    }
    match scenario {
        Scenario::ReadWrite if !capabilities.shared => {
            Some("it has no read/write locks".to_owned())
        }
        Scenario::Semaphore if !capabilities.permits => Some("it has no semaphores".to_owned()),
        Scenario::IdleLocks if descriptor.lease_scope == LeaseScope::Connection => Some(
            "each lock needs its own connection, so a process can't hold thousands at once"
                .to_owned(),
        ),
        Scenario::Crowd if case.tasks > Some(CROWD_OF_ALL) && descriptor.name != "zookeeper" => {
            Some(format!(
                "only ZooKeeper is measured with more than {CROWD_OF_ALL} waiters in the store"
            ))
        }
        _ => None,
    }
}

/// Whether a round of warm-up is useless, because a slice begins with new processes, or warms up by
/// itself.
pub(crate) fn has_own_warm_up(scenario: Scenario, case: &Case) -> bool {
    matches!(scenario, Scenario::IdleLocks | Scenario::Recovery | Scenario::OpenLoop)
        || case.processes > Some(1)
}

/// Does the work with lockkit.
///
/// # Errors
/// The store returned an error, or a child process failed.
pub(crate) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    match turn.scenario {
        Scenario::Uncontended => uncontended::lockkit(turn).await,
        Scenario::OwnNames => own_names::lockkit(turn).await,
        Scenario::Zipf => zipf::lockkit(turn).await,
        Scenario::HotName => hot_name::lockkit(turn).await,
        Scenario::HandOff => hand_off::lockkit(turn).await,
        Scenario::ReadWrite => read_write::lockkit(turn).await,
        Scenario::Semaphore => semaphore::lockkit(turn).await,
        Scenario::Crowd => crowd::lockkit(turn).await,
        Scenario::IdleLocks => idle_locks::lockkit(turn).await,
        Scenario::Recovery => recovery::lockkit(turn).await,
        Scenario::OpenLoop => open_loop::lockkit(turn).await,
    }
}

/// The number of a rival's clients in a case. `None` if the rival does not take part in the case.
pub(crate) fn clients(side: Side, scenario: Scenario, case: &Case) -> Option<u32> {
    match side {
        Side::Lockkit => None,
        Side::Floor => floor_clients(scenario, case),
        Side::Classic | Side::RowLock | Side::Rslock => contenders(scenario, case),
    }
}

/// The number of a contender's clients in a case. The locks of a contender exclude, so its clients
/// do the same work as lockkit's tasks. If all clients want one name, they wait for each other.
pub(crate) fn contenders(scenario: Scenario, case: &Case) -> Option<u32> {
    match scenario {
        Scenario::Uncontended | Scenario::OwnNames => case.tasks,
        Scenario::HotName if case.processes.unwrap_or(1) == 1 => case.tasks,
        _ => None,
    }
}

/// The number of the bare driver's clients that do the least of the same work. `None` if the bare
/// driver does not take part in the case.
///
/// If a name has one owner at a time, one client releases it and takes it again, in a row. A
/// hand-over can't cost a store less. The exception is a hand-over within the process, which needs
/// one request and not two. Clients of popular names choose as lockkit's tasks do, each from its
/// own share of the names. Clients for readers and writers all have names of their own, as if all
/// only read.
fn floor_clients(scenario: Scenario, case: &Case) -> Option<u32> {
    match scenario {
        Scenario::Uncontended | Scenario::HotName | Scenario::HandOff | Scenario::Crowd => Some(1),
        Scenario::OwnNames | Scenario::Zipf | Scenario::ReadWrite => case.tasks,
        Scenario::Semaphore => case.permits,
        Scenario::OpenLoop => case.names,
        Scenario::IdleLocks | Scenario::Recovery => None,
    }
}

/// Does the work with a rival.
///
/// # Errors
/// The error of the rival.
pub(crate) async fn rival(turn: &Turn<'_>, rival: &Rival, clients: u32) -> Result<Sample> {
    match turn.scenario {
        Scenario::OpenLoop => open_loop::floor(turn, rival, clients).await,
        _ => bare::pairs(turn, rival, clients).await,
    }
}

fn lock_error(error: lockkit::Error) -> Error {
    Error::of("could not create a lock", error)
}
