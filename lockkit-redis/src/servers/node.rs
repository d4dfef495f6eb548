//! Keeps the connection to one server. One caller opens it for all when it is needed. A connection
//! that is of no use any more is replaced.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use lockkit_core::{Clock, Tick};
use tokio::{
    runtime::{Handle, Id},
    time,
};

use super::{
    endpoint::{Endpoint, SECOND_THOUGHTS, open},
    link::Link,
    pool::{CheckedOutLink, Pool},
};
use crate::{error::OpenError, shared::Shared as Common};

/// The way to one server.
pub(crate) struct Node {
    common: Arc<Common>,
    endpoint: Endpoint,
    state: Mutex<State>,
    /// Only where requests wait for replicas.
    pool: Option<Pool>,
    /// Another server may have replaced this one, which does not know that.
    suspect: AtomicBool,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// At most one for each runtime. All callers of the runtime that wait for it poll it. If all of
    /// them give up, the next caller continues it.
    openings: Vec<Opening>,
    closed: bool,
}

#[derive(Clone)]
struct Opening {
    since: Tick,
    /// Its sockets and timers work only while this runtime runs.
    runtime: Id,
    future: Shared<BoxFuture<'static, Result<Arc<Link>, OpenError>>>,
}

impl Node {
    pub(crate) fn new(common: Arc<Common>, endpoint: Endpoint) -> Self {
        let waits = common.config.replicas.is_some();
        let pool = waits.then(|| Pool::new(Arc::clone(&common), endpoint.clone()));
        Self { common, endpoint, state: Mutex::default(), pool, suspect: AtomicBool::new(false) }
    }

    /// A connection that is good as far as we know. A request that waits for replicas also gets a
    /// connection for itself, to the same server. With two servers, it would take a lock on one and
    /// release it on the other.
    pub(crate) async fn links(
        &self,
        alone: bool,
    ) -> Result<(Arc<Link>, Option<CheckedOutLink>), OpenError> {
        // Boxed, because these futures are rare and large. Each request passes here, so this mostly
        // only reads.
        if self.is_suspect() && self.suspect.swap(false, Ordering::Relaxed) {
            Box::pin(self.think_again()).await;
        }
        loop {
            let link = self.link().await?;
            let Some(pool) = self.pool.as_ref().filter(|_| alone) else { return Ok((link, None)) };
            let own = Box::pin(pool.link()).await?;
            if own.address() == link.address() {
                return Ok((link, Some(own)));
            }
            // A failover happened between the two.
            if own.number() > link.number() {
                self.retire(&link);
            } else {
                own.end();
                pool.retire();
            }
        }
    }

    /// Marks the server as suspect. Before the next request, lockkit asks the sentinels, or the
    /// other nodes of a cluster, whether there is another primary now.
    pub(crate) fn mark_suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    async fn think_again(&self) {
        let Endpoint::Primary(sentinels) = &self.endpoint else { return };
        let Some(link) = self.lock().link.clone() else { return };
        // Most sentinels must answer within this time.
        let patience = SECOND_THOUGHTS.max(self.common.config.connect_timeout / 5);
        if let Ok(Some(_)) = time::timeout(patience, sentinels.another(link.address())).await {
            self.retire(&link);
        }
    }

    async fn link(&self) -> Result<Arc<Link>, OpenError> {
        let opening = match self.current() {
            Ok(link) => return Ok(link),
            Err(opening) => opening?,
        };
        let result = opening.future.clone().await;
        let mut state = self.lock();
        state.openings.retain(|present| !present.future.ptr_eq(&opening.future));
        match result {
            Ok(_) if state.closed => Err(OpenError::Closed),
            // Another caller may have opened a connection meanwhile; all must use the same.
            Ok(link) => Ok(Arc::clone(state.link.get_or_insert(link))),
            Err(error) => Err(error),
        }
    }

    /// Drops the connection. Requests that are under way on it may still be answered.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.openings.clear();
        let link = state.link.take();
        drop(state);
        drop(link);
        if let Some(pool) = &self.pool {
            pool.close();
        }
    }

    /// The present connection, or the attempt to open the next one.
    fn current(&self) -> Result<Arc<Link>, Result<Opening, OpenError>> {
        let patience = self.common.config.connect_timeout;
        let mut state = self.lock();
        let usable = |link: &&Arc<Link>| !link.has_ended() && !link.is_silent(patience);
        if let Some(link) = state.link.as_ref().filter(usable) {
            return Ok(Arc::clone(link));
        }
        if state.closed {
            return Err(Err(OpenError::Closed));
        }
        let Ok(runtime) = Handle::try_current() else { return Err(Err(OpenError::NoRuntime)) };
        let runtime = runtime.id();
        let retired = state.link.take();
        // An attempt that all callers gave up, and that was not polled for long, has timed out
        // without noticing it.
        let now = Clock::Boot.now();
        state.openings.retain(|opening| opening.since.after(patience) > now);
        let present = state.openings.iter().find(|opening| opening.runtime == runtime).cloned();
        let opening = present.unwrap_or_else(|| {
            let future = open(Arc::clone(&self.common), self.endpoint.clone(), true);
            let opening = Opening { since: now, runtime, future: future.boxed().shared() };
            state.openings.push(opening.clone());
            opening
        });
        drop(state);
        if retired.is_some() {
            self.replaced();
        }
        Err(Ok(opening))
    }

    /// Stops using this connection, if it is still the present one.
    pub(crate) fn retire(&self, link: &Arc<Link>) {
        let retired = self.lock().link.take_if(|present| Arc::ptr_eq(present, link));
        if retired.is_some() {
            self.replaced();
        }
    }

    /// Retires the pool, and wakes all waiters. The other connections from that time are of no use
    /// either, and messages may have been missed.
    fn replaced(&self) {
        if let Some(pool) = &self.pool {
            pool.retire();
        }
        self.common.waiters.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
