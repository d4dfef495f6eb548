//! Connections that one request has for itself: WAIT blocks its connection.

use std::{fmt, sync::Arc, time::Duration};

use deadpool::managed::{Manager, Metrics, Object, Pool as Deadpool, PoolError, RecycleError, RecycleResult};

use super::{
    link::Link,
    node::{Seat, open},
};
use crate::{error::OpenError, shared::Shared};

/// So many requests of one process wait for replicas at once. Where replicas need 100 ms, that is 640 renewals a second: of 6,000
/// locks with a ttl of 30 s.
const SIZE: usize = 64;
/// A server has a limit for the connections of all its clients: one that was used by nobody for so long is closed by the next
/// request.
const IDLE: Duration = Duration::from_secs(60);

/// The connections to one server.
pub(crate) struct Pool(Deadpool<Opener>);

/// A connection until its request is answered. One that was given up meanwhile is closed.
pub(crate) type Alone = Object<Opener>;

pub(crate) struct Opener {
    shared: Arc<Shared>,
    seat: Seat,
}

impl Pool {
    pub(crate) fn new(shared: Arc<Shared>, seat: Seat) -> Option<Self> {
        // Never fails without timeouts.
        Deadpool::builder(Opener { shared, seat }).max_size(SIZE).build().ok().map(Self)
    }

    pub(crate) async fn link(&self) -> Result<Alone, OpenError> {
        // Where one was given up without an answer, the others may be as dead, and each would cost an op_timeout.
        if !self.0.retain(|link, _| !link.is_asked()).removed.is_empty() {
            self.retire();
        }
        self.0.retain(|_, metrics| metrics.last_used() < IDLE);
        self.0.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Closed => OpenError::Closed,
            PoolError::NoRuntimeSpecified => OpenError::NoRuntime,
            PoolError::Timeout(_) | PoolError::PostCreateHook(_) => OpenError::Silent,
        })
    }

    /// Those who are idle now are used no more.
    pub(crate) fn retire(&self) {
        self.0.retain(|_, _| false);
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }
}

impl Manager for Opener {
    type Type = Arc<Link>;
    type Error = OpenError;

    async fn create(&self) -> Result<Arc<Link>, OpenError> {
        open(Arc::clone(&self.shared), self.seat.clone(), false).await
    }

    async fn recycle(&self, link: &mut Arc<Link>, _: &Metrics) -> RecycleResult<OpenError> {
        if link.has_ended() || link.is_asked() { Err(RecycleError::message("in use")) } else { Ok(()) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.status()).finish()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("seat", &self.seat).finish_non_exhaustive()
    }
}
