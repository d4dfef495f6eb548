//! The report as data. [`SCHEMA`] is the version of its JSON. New versions add fields, and never
//! change a field's meaning.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// The version of the JSON. A reader refuses a larger one.
pub const SCHEMA: u32 = 1;

/// One run of the benchmarks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of lockkit.
    pub lockkit: String,
    /// The command that repeats the run, without passwords.
    pub command: String,
    /// The start of the run, as RFC 3339 in UTC.
    pub started_at: String,
    /// The length of the run.
    pub took_seconds: f64,
    /// How many times the run measured each case on each store, in turn with all other stores.
    pub rounds: u32,
    /// The length of one measurement, if the case does not end by itself.
    pub slice_seconds: f64,
    /// Whether this was a quick run. It shows that everything works, but is too short to choose a
    /// store.
    pub is_quick: bool,
    /// The machine that the program ran on.
    pub host: Host,
    /// The stores, in the order of the command line.
    pub stores: Vec<Store>,
    /// All figures, in the order of the plan.
    pub outcomes: Vec<Outcome>,
}

/// The machine that the program ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Such as `Debian GNU/Linux 12`.
    pub system: String,
    /// The version of the kernel.
    pub kernel: String,
    /// The name of the processor.
    pub cpu: String,
    /// The number of its cores.
    pub cores: u32,
    /// The size of main memory.
    pub memory_bytes: u64,
    /// The load average over one minute before the run. More than a few tenths means that other
    /// programs were at work.
    pub load_before: f64,
}

/// A store that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// Short and unique in the report, such as `redis` or `mariadb-pessimistic`.
    pub id: String,
    /// Its URL, without the password.
    pub url: String,
    /// Such as `Redis`.
    pub product: String,
    /// Such as `7.0.15`.
    pub version: String,
    /// The server's settings, such as those for durability.
    pub settings: Vec<Setting>,
    /// The guarantee of a lock on this store with these settings.
    pub guarantee: Guarantee,
    /// Whether waiters are served in order.
    pub is_fair: bool,
    /// Whether the store notifies the next waiter, so that the waiter need not ask.
    pub is_pushed: bool,
}

/// A setting of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The name that the server uses.
    pub name: String,
    /// The value as the server writes it.
    pub value: String,
    /// The setting's meaning for locks, in a few words.
    pub meaning: String,
}

/// The guarantee of a lock on a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// The class, in one word.
    pub class: GuaranteeClass,
    /// In one sentence: the promise, and the faults that break it.
    pub text: String,
}

/// Classes of guarantees, the strongest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GuaranteeClass {
    /// The lock excludes only the tasks of one process.
    Process,
    /// The lock excludes only the processes of one host.
    Host,
    /// A restart of the server forgets the locks.
    Volatile,
    /// Replicas take over, and may lack the last grants.
    AsynchronousFailover,
    /// One server, which keeps its locks over a crash; no other server takes over.
    OneDurableServer,
    /// A majority of servers agrees on each grant, and the locks survive the loss of a minority.
    Consensus,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Scenario {
    /// One task takes and gives back an uncontended name.
    Uncontended,
    /// Many tasks, each with a name of its own.
    OwnNames,
    /// Many tasks over many names, some of them popular (Zipf).
    Zipf,
    /// All tasks want one name.
    HotName,
    /// The time from one owner's release to the next owner's grant, through the store.
    HandOff,
    /// Readers and writers of one name.
    ReadWrite,
    /// Permits of one semaphore.
    Semaphore,
    /// All tasks want one name, and each waits in the store, without the gate of the process.
    Crowd,
    /// Locks that are only held and renewed.
    IdleLocks,
    /// A process that holds the lock is killed.
    Recovery,
    /// Requests come at a fixed rate, however slow the answers are.
    OpenLoop,
}

/// The parameters of a scenario's run. A parameter that doesn't apply is absent.
#[derive(Clone, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(default)]
pub struct Case {
    /// Tasks that want locks, in all processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Processes that the tasks are spread over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Different names of locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<u32>,
    /// The length of each hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<f64>,
    /// How many of a hundred claims only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers_percent: Option<u32>,
    /// How many tasks may hold the semaphore at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// The lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u32>,
}

/// The software that did the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// lockkit.
    Lockkit,
    /// The lock that programs use without a library, by the same client.
    Classic,
    /// A row lock of MySQL: `BEGIN`, `SELECT … FOR UPDATE`, `COMMIT`.
    RowLock,
    /// The bare driver, with the requests that lockkit sends for a grant and its release.
    Floor,
    /// The library rslock.
    Rslock,
}

impl Side {
    /// All rivals of lockkit, in the order of the report.
    pub const RIVALS: [Self; 4] = [Self::Classic, Self::RowLock, Self::Floor, Self::Rslock];
}

/// The result of one case on one store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kind of work.
    pub scenario: Scenario,
    /// Its parameters.
    pub case: Case,
    /// [`Store::id`].
    pub store: String,
    /// The software that did the work.
    pub side: Side,
    /// The figures, or the reason why there are none.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The figures of a case, or the reason why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Verdict {
    /// It was measured.
    Measured {
        /// The measured figures, a value for each round.
        figures: BTreeMap<Metric, Series>,
        /// The distribution of the single waits, over all rounds.
        #[serde(skip_serializing_if = "Option::is_none")]
        curve: Option<Curve>,
    },
    /// The store can't do it, or the server doesn't report it.
    NotApplicable {
        /// The reason.
        reason: String,
    },
    /// The case failed.
    Failed {
        /// The text of the error.
        reason: String,
    },
}

/// A figure that can be measured of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Metric {
    /// Grants (with their releases) per second.
    GrantsPerSecond,
    /// From the request to the grant, the median, in microseconds.
    WaitP50Us,
    /// From the request to the grant, in microseconds; 99 of 100 are faster.
    WaitP99Us,
    /// From the request to the grant, the slowest, in microseconds.
    WaitMaxUs,
    /// From the call of the release to the next claim's grant, the median, in microseconds.
    HandOffP50Us,
    /// From the call of the release to the next claim's grant, in microseconds; 99 of 100 are
    /// faster.
    HandOffP99Us,
    /// Requests that the server counted, for each grant with its release.
    RequestsPerGrant,
    /// Processor time of the client for each grant with its release, in microseconds.
    ClientCpuUs,
    /// Processor time of the server for each grant with its release, in microseconds, as the server
    /// reports it.
    ServerCpuUs,
    /// Grants of the luckiest task or process, divided by those of the unluckiest.
    MostOverLeast,
    /// From the death of the holder to the next grant, in milliseconds.
    RecoveryMs,
    /// Memory of the process for each lock held, in bytes.
    BytesPerLock,
    /// Requests per second that idle locks cost the server.
    IdleRequestsPerSecond,
    /// Processor time of the process, in percent of one core.
    CpuPercent,
    /// The lease that was in force, in milliseconds. A store may not offer a lease as short as the
    /// case asks for.
    LeaseMs,
}

/// Whether more or less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Metric {
    /// Whether more or less is better.
    #[must_use]
    pub const fn better(self) -> Better {
        match self {
            Self::GrantsPerSecond => Better::Higher,
            _ => Better::Lower,
        }
    }
}

/// The values of a metric, one for each round, in the order of the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Option<f64>>")]
pub struct Series(pub Vec<f64>);

/// JSON has no infinity, so an infinite ratio is written as `null`.
impl From<Vec<Option<f64>>> for Series {
    fn from(values: Vec<Option<f64>>) -> Self {
        Self(values.into_iter().map(|value| value.unwrap_or(f64::INFINITY)).collect())
    }
}

impl Series {
    /// The middle value, or the mean of the two middle values.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        if sorted.len().is_multiple_of(2) {
            let lower = *sorted.get(sorted.len() / 2 - 1)?;
            return Some(f64::midpoint(lower, upper));
        }
        Some(upper)
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        self.0.iter().copied().min_by(f64::total_cmp)
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.0.iter().copied().max_by(f64::total_cmp)
    }

    /// Whether both ranges have a common value. Then neither series is the larger one.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self.min(), self.max(), other.min(), other.max()) {
            (Some(min), Some(max), Some(other_min), Some(other_max)) => {
                min <= other_max && other_min <= max
            }
            _ => true,
        }
    }

    /// Divides this series by the other, round by round, so an effect of the machine on both sides
    /// of a round cancels out.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect())
    }
}

/// A distribution of durations, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The number of durations.
    pub count: u64,
    /// `[percentile, microseconds]`, rising: from 0 to 100, and closer together near 100.
    pub points: Vec<[f64; 2]>,
}

impl fmt::Display for GuaranteeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "one process",
            Self::Host => "one host",
            Self::Volatile => "volatile",
            Self::AsynchronousFailover => "asynchronous failover",
            Self::OneDurableServer => "one durable server",
            Self::Consensus => "consensus",
        })
    }
}
