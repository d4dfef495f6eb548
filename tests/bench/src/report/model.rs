//! The report as data. Its JSON is versioned by [`SCHEMA`]: fields are added, never changed in
//! meaning.

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
    /// What to type to repeat the run, without passwords.
    pub command: String,
    /// When it began, as RFC 3339 in UTC.
    pub started_at: String,
    /// How long it took.
    pub took_seconds: f64,
    /// How often each case was measured on each store, in turn with all the others.
    pub rounds: u32,
    /// How long one measurement went on, where the case does not end by itself.
    pub slice_seconds: f64,
    /// A short run: enough to see that all works, too short to choose a store by.
    pub is_quick: bool,
    /// Where the program ran.
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
    /// How many of its cores there are.
    pub cores: u32,
    /// Main memory.
    pub memory_bytes: u64,
    /// The load average over one minute before the run: more than a few tenths is other people's
    /// work.
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
    /// What was asked of the server about durability and the like.
    pub settings: Vec<Setting>,
    /// What a lock is worth on it, run as it is.
    pub guarantee: Guarantee,
    /// Waiters are served in their order.
    pub is_fair: bool,
    /// Waiters are told that they are next, and need not ask.
    pub is_pushed: bool,
}

/// A setting of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// As the server calls it.
    pub name: String,
    /// As the server writes it.
    pub value: String,
    /// What it means for locks, in a few words.
    pub meaning: String,
}

/// What a lock is worth on a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// In one word.
    pub class: GuaranteeClass,
    /// In one sentence: what is promised, and what breaks it.
    pub text: String,
}

/// Classes of guarantees, the strongest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GuaranteeClass {
    /// Between the tasks of one process only.
    Process,
    /// Between the processes of one host only.
    Host,
    /// A restart of the server forgets the locks.
    Volatile,
    /// Replicas take over, and may not have heard of the last grants.
    AsynchronousFailover,
    /// One server, which keeps its locks over a crash; nobody takes over.
    OneDurableServer,
    /// A majority of servers agrees on each grant, and the loss of a minority is survived.
    Consensus,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Scenario {
    /// One task takes and gives back a name that nobody else wants.
    Uncontended,
    /// Many tasks, each with a name of its own.
    OwnNames,
    /// Many tasks over many names, some of them popular (Zipf).
    Zipf,
    /// Everybody wants one name.
    HotName,
    /// From the release by one to the grant of the next, through the store.
    HandOff,
    /// Readers and writers of one name.
    ReadWrite,
    /// Permits of one semaphore.
    Semaphore,
    /// Everybody wants one name, and each waits in the store: no gate in the process.
    Crowd,
    /// Locks that are only held and renewed.
    IdleLocks,
    /// A process that holds the lock is killed.
    Recovery,
    /// Requests come at a fixed rate, however slow the answers are.
    OpenLoop,
}

/// With which parameters a scenario was run. What doesn't apply is absent.
#[derive(Clone, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(default)]
pub struct Case {
    /// Tasks that want locks, in all processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Processes that they are spread over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Different names of locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<u32>,
    /// How long each grant is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<f64>,
    /// How many of a hundred only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers_percent: Option<u32>,
    /// How many may hold the semaphore at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// Requests in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// The lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u32>,
}

/// Who did the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// lockkit.
    Lockkit,
    /// The bare driver, with the least that the store has to do for the same work.
    Floor,
}

/// What came out of one case on one store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kind of work.
    pub scenario: Scenario,
    /// Its parameters.
    pub case: Case,
    /// [`Store::id`].
    pub store: String,
    /// Who did it.
    pub side: Side,
    /// The figures, or why there are none.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The figures of a case, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Verdict {
    /// It was measured.
    Measured {
        /// What was measured, a value for each round.
        figures: BTreeMap<Metric, Series>,
        /// How long single grants took to come, over all rounds.
        #[serde(skip_serializing_if = "Option::is_none")]
        curve: Option<Curve>,
    },
    /// The store can't do it, or the server doesn't tell.
    NotApplicable {
        /// Why not.
        reason: String,
    },
    /// It went wrong.
    Failed {
        /// What was said.
        reason: String,
    },
}

/// What can be measured of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Metric {
    /// Grants (with their releases) in a second.
    GrantsPerSecond,
    /// From asking to having, the median, in microseconds.
    WaitP50Us,
    /// The same, 99 of 100 are faster.
    WaitP99Us,
    /// The slowest.
    WaitMaxUs,
    /// From the call of the release to the next one's grant, the median, in microseconds.
    HandOffP50Us,
    /// The same, 99 of 100 are faster.
    HandOffP99Us,
    /// Requests that the server counted, for each grant with its release.
    RequestsPerGrant,
    /// Grants of the luckiest task or process, divided by those of the unluckiest.
    MostOverLeast,
    /// From the death of the holder to the next grant, in milliseconds.
    RecoveryMs,
    /// Memory of the process for each lock held, in bytes.
    BytesPerLock,
    /// Requests that idle locks cost the server in a second.
    IdleRequestsPerSecond,
    /// Processor time of the process, in percent of one core.
    CpuPercent,
    /// The lease as it was in force, in milliseconds: a store may not do as short a one as the case
    /// asks for.
    LeaseMs,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Metric {
    /// Which way is better.
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

/// JSON has no infinity, and `null` is written for it: what was divided by nothing.
impl From<Vec<Option<f64>>> for Series {
    fn from(values: Vec<Option<f64>>) -> Self {
        Self(values.into_iter().map(|value| value.unwrap_or(f64::INFINITY)).collect())
    }
}

impl Series {
    /// The middle value; of an even number the mean of the two in the middle.
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

    /// Whether both cover a common value: then none of them can be called the larger one.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self.min(), self.max(), other.min(), other.max()) {
            (Some(min), Some(max), Some(other_min), Some(other_max)) => {
                min <= other_max && other_min <= max
            }
            _ => true,
        }
    }

    /// Round by round, this divided by the other: what the machine did to both of a round cancels
    /// out.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect())
    }
}

/// A distribution of durations, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// How many there are.
    pub count: u64,
    /// `[percentile, microseconds]`, rising: 0 first, 100 last, and between them closer and closer
    /// to 100.
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
