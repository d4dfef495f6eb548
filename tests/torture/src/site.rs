//! The servers under test, and what can be done to them.

use std::{error::Error as StdError, fmt, ops::RangeInclusive, time::Duration};

/// Why a fault could not be done.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A store on servers that can be hurt. All calls may block; they are made on a thread of their
/// own, one at a time.
pub trait Site: fmt::Debug + Send + 'static {
    /// A short name, such as `redis-sentinel`.
    fn name(&self) -> &str;

    /// Where the store is, in a namespace that nobody has used: each call another one. Called at
    /// the beginning of each round.
    ///
    /// # Errors
    /// The servers are in no state to serve.
    fn open(&mut self) -> Result<String, BoxError>;

    /// The same store through others of its servers, where several take writes: processes take
    /// turns to use them. Called after each [`open`](Self::open).
    fn more_urls(&self) -> Vec<String> {
        Vec::new()
    }

    /// What can be done to the servers, as they are run here.
    fn faults(&self) -> Vec<ServerFault>;

    /// Begins a fault. `chance` is a random number for whatever is left to choose, such as a node.
    /// Answers whom it hit.
    ///
    /// # Errors
    /// It could not be done: the run ends.
    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError>;

    /// Ends the fault that was begun last, and returns when the servers serve again. Nothing to do
    /// for one that leaves nothing to heal.
    ///
    /// # Errors
    /// The servers don't come back: the run ends.
    fn heal(&mut self) -> Result<(), BoxError>;

    /// What is left in the namespace of the last [`open`](Self::open) and should not be there, when
    /// all have ended and all leases have passed. What an idle name may leave, such as its last
    /// token, is not told.
    ///
    /// # Errors
    /// The servers don't answer.
    fn leaks(&mut self) -> Result<Vec<String>, BoxError>;
}

/// One thing that can happen to servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFault {
    /// A short name, such as `kill` or `clock-forward`.
    pub kind: &'static str,
    /// How long it lasts before [`Site::heal`]; 0 to 0 for one that leaves nothing to heal.
    pub lasts: RangeInclusive<Duration>,
    /// What the store's documentation gives up because of it, if anything: exclusion, until the
    /// leases of that time are over. Tokens rise all the same.
    pub weakens: Option<&'static str>,
}

/// A store whose servers are somebody else's: nothing is done to them.
#[derive(Debug)]
pub struct Elsewhere {
    url: String,
}

impl Elsewhere {
    /// The store at `url`, as `lockkit::connect` takes it. What it says of a prefix counts.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into() }
    }
}

impl Site for Elsewhere {
    fn name(&self) -> &str {
        self.url.split_once("://").map_or("store", |(scheme, _)| scheme)
    }

    fn open(&mut self) -> Result<String, BoxError> {
        Ok(self.url.clone())
    }

    fn faults(&self) -> Vec<ServerFault> {
        Vec::new()
    }

    fn strike(&mut self, fault: &ServerFault, _: u64) -> Result<String, BoxError> {
        Err(format!("{}: these servers are not ours to hurt", fault.kind).into())
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        Ok(Vec::new())
    }
}
