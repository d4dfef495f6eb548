//! The servers under test, and their possible faults.

use std::{error::Error as StdError, fmt, ops::RangeInclusive, time::Duration};

/// The reason why a fault could not be caused.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A store on servers with faults. All calls may block. They run on a separate thread, one at a
/// time.
pub trait Site: fmt::Debug + Send + 'static {
    /// A short name, such as `redis-sentinel`.
    fn name(&self) -> &str;

    /// The URL of the store, in an unused namespace. Each call returns another URL. Each round
    /// calls this at its start.
    ///
    /// # Errors
    /// The servers cannot serve.
    fn open(&mut self) -> Result<String, BoxError>;

    /// URLs of the same store through its other servers, if several servers accept writes. The
    /// processes use the URLs in turn. Each round calls this after [`open`](Self::open).
    fn more_urls(&self) -> Vec<String> {
        Vec::new()
    }

    /// The possible faults of these servers.
    fn faults(&self) -> Vec<ServerFault>;

    /// Causes a fault. `chance` is a random number for the remaining choices, such as a node.
    /// Returns the target of the fault.
    ///
    /// # Errors
    /// The fault could not be caused. This ends the run.
    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError>;

    /// Ends the latest fault, and returns when the servers serve again. Does nothing for a fault
    /// that needs no heal.
    ///
    /// # Errors
    /// The servers don't recover. This ends the run.
    fn heal(&mut self) -> Result<(), BoxError>;

    /// Lists leftovers in the namespace of the last [`open`](Self::open), after all processes and
    /// all leases have ended. It does not list entries that an idle name may keep, such as its last
    /// token.
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
    /// The length of the fault before [`Site::heal`]. 0 to 0 if it needs no heal.
    pub lasts: RangeInclusive<Duration>,
    /// The words of the store's documentation, if it says that the fault may break exclusion until
    /// the leases of that time are over. Tokens must still rise.
    pub weakens: Option<&'static str>,
}

/// A store on servers that this program does not run, and so causes no faults of.
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
        Err(format!("cannot cause {}: the test did not start these servers", fault.kind).into())
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        Ok(Vec::new())
    }
}
