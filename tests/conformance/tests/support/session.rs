//! A store whose claims live on the session of their backend, as ZooKeeper's do.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lockkit_conformance::{
    BoxError, Faults, Harness, Hook, Link, Store,
    faulty::{Faulty, Line},
    stores::MemoryStore,
};
use lockkit_core::{
    Clock, FencingToken, LockName, Result, Tick,
    spi::{
        Attempt, Backend, Claim, ClaimSpec, Descriptor, Grant, Inspection, Lease, LeaseScope,
        LossReason, Released, RenewalOutcome, Wait,
    },
};
use tokio::{task::JoinHandle, time};

use super::{
    min_ttl::check,
    server::{Server, SessionId, TIMEOUT},
};

const HEARTBEAT: Duration = TIMEOUT.checked_div(12).unwrap();
/// A heartbeat proves the session only once it is this old.
const RIPE: Duration = TIMEOUT.checked_div(3).unwrap();

/// The flaws that this store may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionFlaw {
    /// The sessions of dead clients are kept up.
    Endless,
    /// A heartbeat whose answer comes after the next one was due proves nothing.
    LateIsNoProof,
    /// The lease counts from when it is asked for, and not from a heartbeat; and heartbeats are
    /// rare.
    ProvenByNothing,
}

#[derive(Debug)]
pub(crate) struct SessionStore(pub(crate) Option<SessionFlaw>);

fn descriptor() -> Descriptor {
    let mut descriptor = MemoryStore::new().descriptor();
    let capabilities = &mut descriptor.capabilities;
    (capabilities.extend, capabilities.names) = (false, false);
    (capabilities.notes, capabilities.time) = (false, false);
    (capabilities.raise_token, capabilities.transfer) = (false, false);
    capabilities.tickets = false;
    Descriptor { min_ttl: TIMEOUT, lease_scope: LeaseScope::Session, ..descriptor }
}

#[async_trait]
impl Store for SessionStore {
    fn name(&self) -> &str {
        "session"
    }

    fn descriptor(&self) -> Descriptor {
        descriptor()
    }

    fn hooks(&self) -> Vec<Hook> {
        Vec::new()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let memory = MemoryStore::new().open().await?;
        let timeout = if self.0 == Some(SessionFlaw::Endless) { TIMEOUT * 600 } else { TIMEOUT };
        let server = Arc::new(Server::new(memory.connect().await?, timeout));
        Ok(Box::new(SessionHarness { memory, server, flaw: self.0 }))
    }
}

#[derive(Debug)]
struct SessionHarness {
    memory: Box<dyn Harness>,
    server: Arc<Server>,
    flaw: Option<SessionFlaw>,
}

#[async_trait]
impl Harness for SessionHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(SessionBackend::connect(&self.server, self.flaw)))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let backend = SessionBackend::connect(&self.server, self.flaw);
        let client = Arc::clone(&backend.client);
        let faulty = Faulty::new(Arc::new(backend));
        let line = faulty.line();
        Ok((Arc::new(faulty), Arc::new(SessionLink { line, client })))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        self.memory.expire_now(name).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        // Any request makes the server notice the sessions that are over.
        self.server.with_store(async |_| ());
        self.memory.leaks().await
    }

    async fn close(&self) {
        self.memory.close().await;
    }
}

/// Applies faults to the calls and to the heartbeats.
#[derive(Debug)]
struct SessionLink {
    line: Arc<Line>,
    client: Arc<Client>,
}

impl Link for SessionLink {
    fn set(&self, faults: Faults) {
        self.line.set(faults);
        self.client.state().faults = faults;
    }

    fn cut(&self) {
        // The session outlives its connections.
        self.line.cut();
    }
}

/// The client's end of a session, and of the next session after that has ended.
#[derive(Debug)]
struct Client {
    server: Arc<Server>,
    state: Mutex<ClientState>,
    flaw: Option<SessionFlaw>,
}

#[derive(Debug)]
struct ClientState {
    session: SessionId,
    /// When the answered heartbeats were sent, from the newest ripe one onwards.
    answered: VecDeque<Tick>,
    faults: Faults,
}

impl Client {
    fn new(server: Arc<Server>, flaw: Option<SessionFlaw>) -> Self {
        let answered = VecDeque::from([Clock::Boot.now()]);
        let state = ClientState { session: server.open_session(), answered, faults: Faults::NONE };
        Self { server, state: Mutex::new(state), flaw }
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn heartbeat(&self) {
        let sent = Clock::Boot.now();
        let Faults { request_delay, reply_delay, .. } = self.state().faults;
        let delay = request_delay + reply_delay;
        time::sleep(delay).await;
        if self.flaw == Some(SessionFlaw::LateIsNoProof) && delay > HEARTBEAT {
            return;
        }
        let mut state = self.state();
        if state.faults.refuse || state.faults.hold_requests {
            return;
        }
        let stands = self.server.heartbeat(state.session);
        if state.faults.lose_replies {
            return;
        }
        if stands {
            state.answered.push_back(sent);
        } else {
            state.answered = VecDeque::from([sent]);
            state.session = self.server.open_session();
        }
    }

    fn session(&self) -> SessionId {
        self.state().session
    }

    /// The session's lease, by the newest ripe heartbeat, or by the request that opened the
    /// session.
    fn lease(&self) -> Lease {
        let mut state = self.state();
        let now = Clock::Boot.now();
        while state.answered.get(1).is_some_and(|next| next.after(RIPE) <= now) {
            state.answered.pop_front();
        }
        let at =
            if self.flaw == Some(SessionFlaw::ProvenByNothing) { now } else { state.answered[0] };
        Lease::Proven { at, lasts: TIMEOUT }
    }
}

#[derive(Debug)]
struct SessionBackend {
    client: Arc<Client>,
    descriptor: Descriptor,
    heart: JoinHandle<()>,
}

impl SessionBackend {
    fn connect(server: &Arc<Server>, flaw: Option<SessionFlaw>) -> Self {
        let client = Arc::new(Client::new(Arc::clone(server), flaw));
        let heart = tokio::spawn({
            // The heartbeats continue while a claim or the backend lives, because a guard may
            // outlive its locker.
            let client = Arc::downgrade(&client);
            let pause =
                if flaw == Some(SessionFlaw::ProvenByNothing) { HEARTBEAT * 8 } else { HEARTBEAT };
            async move {
                loop {
                    time::sleep(pause).await;
                    let Some(client) = client.upgrade() else { return };
                    client.heartbeat().await;
                }
            }
        });
        Self { client, descriptor: descriptor(), heart }
    }
}

#[async_trait]
impl Backend for SessionBackend {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        check(&spec, TIMEOUT)?;
        Ok(Box::new(SessionClaim { client: Arc::clone(&self.client), spec, session: None }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let mut seen = self.client.server.with_store(async |store| store.inspect(name).await)?;
        // A client does not know when the server last heard of another client's session.
        seen.holders.iter_mut().for_each(|holder| holder.remaining = None);
        Ok(seen)
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.client.server.with_store(async |store| store.force_release(name, token).await)
    }

    async fn close(&self) -> Result<()> {
        self.heart.abort();
        self.client.server.close_session(self.client.session());
        Ok(())
    }
}

#[derive(Debug)]
struct SessionClaim {
    client: Arc<Client>,
    spec: ClaimSpec,
    /// The session that the claim lives on, from its first attempt.
    session: Option<SessionId>,
}

#[async_trait]
impl Claim for SessionClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let session = self.client.session();
        self.session = Some(session);
        let lease = self.client.lease();
        match self
            .client
            .server
            .with_claim(session, &self.spec, async |claim| claim.attempt(wait).await)
        {
            Some(Ok(Attempt::Granted(Grant { token, .. }))) => {
                Ok(Attempt::Granted(Grant::new(token, lease)))
            }
            Some(Ok(Attempt::Busy { queued, .. })) => {
                Ok(Attempt::Busy { queued, retry_after: None })
            }
            Some(Err(error)) => Err(error),
            // The next heartbeat notices the end of the session, and opens another one.
            None => Ok(Attempt::Busy { queued: false, retry_after: Some(HEARTBEAT) }),
        }
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<RenewalOutcome> {
        let lease = self.client.lease();
        let lost = RenewalOutcome::Lost(LossReason::SessionLost);
        let Some(session) = self.session.filter(|session| *session == self.client.session()) else {
            return Ok(lost);
        };
        match self
            .client
            .server
            .with_claim(session, &self.spec, async |claim| claim.renew(None).await)
        {
            Some(Ok(RenewalOutcome::Alive(_))) => Ok(RenewalOutcome::Alive(lease)),
            Some(answer) => answer,
            None => Ok(lost),
        }
    }

    async fn release(&mut self) -> Result<Released> {
        let Some(session) = self.session else { return Ok(Released::NotHeld) };
        let answer =
            self.client.server.with_claim(session, &self.spec, async |claim| claim.release().await);
        answer.unwrap_or(Ok(Released::NotHeld))
    }
}
