//! The servers under test, and the faults that are possible on them.

use std::{error::Error as StdError, fmt, ops::RangeInclusive, time::Duration};

/// The reason why a fault could not be done.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A store on servers that can be hurt. All calls may block: they run on a thread of their own, one
/// at a time.
pub trait Site: fmt::Debug + Send + 'static {
    /// A short name, such as `redis-sentinel`.
    fn name(&self) -> &str;

    /// The URL of the store, in an unused namespace: each call returns another one. Called at the
    /// beginning of each round.
    ///
    /// # Errors
    /// The servers cannot serve.
    fn open(&mut self) -> Result<String, BoxError>;

    /// URLs of the same store through its other servers, where several servers take writes. The
    /// processes use the URLs in turn. Called after each [`open`](Self::open).
    fn more_urls(&self) -> Vec<String> {
        Vec::new()
    }

    /// The faults that are possible on these servers.
    fn faults(&self) -> Vec<ServerFault>;

    /// Begins a fault. `chance` is a random number for the remaining choices, such as a node.
    /// Returns the target of the fault.
    ///
    /// # Errors
    /// The fault could not be done: the run ends.
    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError>;

    /// Ends the fault that was begun last, and returns when the servers serve again. Does nothing
    /// for a fault that leaves nothing to heal.
    ///
    /// # Errors
    /// The servers don't come back: the run ends.
    fn heal(&mut self) -> Result<(), BoxError>;

    /// Lists leftovers in the namespace of the last [`open`](Self::open), after all processes have
    /// ended and all leases have passed. It does not list what an idle name may keep, such as its
    /// last token.
    ///
    /// # Errors
    /// The servers don't answer.
    fn leaks(&mut self) -> Result<Vec<String>, BoxError>;
}

/// One fault of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFault {
    /// A short name, such as `kill` or `clock-forward`.
    pub kind: &'static str,
    /// How long the fault lasts before [`Site::heal`]. 0 to 0 if it leaves nothing to heal.
    pub lasts: RangeInclusive<Duration>,
    /// Set if the store's documentation gives up exclusion because of the fault, until the leases
    /// of that time are over. Tokens rise all the same.
    pub weakens: Option<&'static str>,
}

/// A store on servers that this program does not run, and so does not hurt.
#[derive(Debug)]
pub struct Elsewhere {
    url: String,
}

impl Elsewhere {
    /// The store at `url`, as `lockkit::connect` takes it. The prefix in the URL applies.
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
