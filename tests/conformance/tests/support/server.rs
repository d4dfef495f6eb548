//! The server of the store with sessions. It knows which claims live on which session, and ends
//! them together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use lockkit_core::{
    Clock, OwnerId, Result, Tick,
    spi::{Backend, Claim, ClaimSpec},
};

/// A session ends this long after the last heartbeat that arrived.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(12);
/// The memory store's own leases never end in a test.
const ENDLESS: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) type SessionId = u64;

/// The server, and the network to it: each event happens at one instant, under one lock.
#[derive(Debug)]
pub(crate) struct Server {
    memory: Arc<dyn Backend>,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: SessionId,
    sessions: HashMap<SessionId, Session>,
}

#[derive(Debug)]
struct Session {
    heard: Tick,
    claims: HashMap<OwnerId, ClaimSpec>,
}

impl Server {
    pub(crate) fn new(memory: Arc<dyn Backend>, timeout: Duration) -> Self {
        Self { memory, timeout, state: Mutex::default() }
    }

    pub(crate) fn open_session(&self) -> SessionId {
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        state.sessions.insert(id, Session { heard: Clock::Boot.now(), claims: HashMap::new() });
        id
    }

    /// Returns whether the session still exists.
    pub(crate) fn heartbeat(&self, id: SessionId) -> bool {
        match self.state().sessions.get_mut(&id) {
            Some(session) => {
                session.heard = Clock::Boot.now();
                true
            }
            None => false,
        }
    }

    pub(crate) fn close_session(&self, id: SessionId) {
        if let Some(session) = self.state().sessions.remove(&id) {
            self.end(session);
        }
    }

    /// Lets a claim of a session use the store; `None` if the session has ended.
    pub(crate) fn with_claim<T>(
        &self,
        id: SessionId,
        spec: &ClaimSpec,
        talk: impl AsyncFnOnce(&mut dyn Claim) -> Result<T>,
    ) -> Option<Result<T>> {
        let mut state = self.state();
        let session = state.sessions.get_mut(&id)?;
        session.claims.insert(spec.owner, spec.clone());
        Some(at_once(talk(&mut *self.claim(spec))))
    }

    /// Lets a request use the whole store.
    pub(crate) fn with_store<T>(&self, ask: impl AsyncFnOnce(&dyn Backend) -> T) -> T {
        let _state = self.state();
        at_once(ask(&*self.memory))
    }

    /// The state, after all sessions that are over by now have ended.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Clock::Boot.now();
        for (_, session) in
            state.sessions.extract_if(|_, session| session.heard.after(self.timeout) <= now)
        {
            self.end(session);
        }
        state
    }

    fn end(&self, session: Session) {
        for spec in session.claims.values() {
            // The claim held the lock, or only waited for it.
            let _ = at_once(self.claim(spec).release()).unwrap();
        }
    }

    /// The memory store knows a claim by its owner.
    fn claim(&self, spec: &ClaimSpec) -> Box<dyn Claim> {
        let mut spec = spec.clone();
        spec.ttl = ENDLESS;
        self.memory.claim(spec).unwrap()
    }
}

fn at_once<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("the memory store never waits")
}
