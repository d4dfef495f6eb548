//! One server, single or as a member of a quorum.

use std::fmt;

use lockkit_fixture::{ServerProcess, WallClock};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{Rounds, clock::Steps, lasting};

pub(super) const KILL: &str = "kill";
pub(super) const STOP: &str = "stop";

/// The faults and answers that a server of any store has.
pub(super) trait Server: fmt::Debug + Send + 'static {
    /// The store, in a namespace.
    fn url(&self, namespace: &str) -> String;
    /// The claims that hold or wait there.
    fn leaks(&self, namespace: &str) -> Result<Vec<String>, BoxError>;
    /// The process of the server.
    fn process(&mut self) -> &mut ServerProcess;
    /// Restarts the server, with the data that it keeps on its disk, if any.
    fn restart(&mut self) -> Result<(), BoxError>;

    /// The server's own clock.
    fn clock(&self) -> Option<&WallClock> {
        None
    }

    /// Applies a fault that only this kind of server has.
    fn strike(&mut self, kind: &str) -> Result<String, BoxError> {
        Err(format!("{self:?} knows no {kind}").into())
    }

    /// Ends such a fault.
    fn heal(&mut self, _kind: &str) -> Result<(), BoxError> {
        Ok(())
    }
}

/// The server is stopped for as long as requests wait, and for longer than short leases.
pub(super) fn stop() -> ServerFault {
    lasting(STOP, 200..=3_000)
}

/// The server is killed, and started again after a while.
pub(super) fn kill() -> ServerFault {
    lasting(KILL, 0..=1_500)
}

/// A store that has one server.
#[derive(Debug)]
pub(super) struct Alone<S> {
    name: &'static str,
    server: S,
    faults: Vec<ServerFault>,
    rounds: Rounds,
    steps: Steps,
    struck: Option<&'static str>,
}

impl<S: Server> Alone<S> {
    pub(super) fn new(name: &'static str, server: S, faults: Vec<ServerFault>) -> Self {
        Self {
            name,
            server,
            faults,
            rounds: Rounds::default(),
            steps: Steps::default(),
            struck: None,
        }
    }
}

impl<S: Server> Site for Alone<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn open(&mut self) -> Result<String, BoxError> {
        Ok(self.server.url(&self.rounds.next()))
    }

    /// Every second process has no gate. Its tasks meet in the store, as the tasks of different
    /// processes do.
    fn more_urls(&self) -> Vec<String> {
        vec![format!("{}&process_gate=false", self.server.url(&self.rounds.now()))]
    }

    fn faults(&self) -> Vec<ServerFault> {
        self.faults.clone()
    }

    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let target = match fault.kind {
            KILL => {
                self.server.process().kill()?;
                "the server".to_owned()
            }
            STOP => {
                self.server.process().pause()?;
                "the server".to_owned()
            }
            kind => match self.steps.strike(self.server.clock(), kind, chance)? {
                Some(target) => target,
                None => self.server.strike(kind)?,
            },
        };
        self.struck = Some(fault.kind);
        Ok(target)
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        match self.struck.take() {
            None => Ok(()),
            Some(KILL) => self.server.restart(),
            Some(STOP) => Ok(self.server.process().resume()?),
            Some(kind) => {
                self.steps.heal(self.server.clock())?;
                self.server.heal(kind)
            }
        }
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        self.server.leaks(&self.rounds.now())
    }
}
