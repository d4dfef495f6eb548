//! Keeps connections that one request has for itself, because WAIT blocks its connection.

use std::{
    collections::VecDeque,
    fmt, mem,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lockkit_core::{Clock, Tick};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    endpoint::{Endpoint, open},
    link::Link,
};
use crate::{error::OpenError, shared::Shared};

/// How many requests of one process can wait for replicas at once. Where replicas need 100 ms, that
/// is 640 renewals a second: of 6,000 locks with a ttl of 30 s.
const SIZE: usize = 64;
/// A server has a limit for the connections of all its clients. So the next request closes a
/// connection that was idle for this long. One connection is kept, because the server may take no
/// new one when it is needed.
const IDLE: Duration = Duration::from_secs(60);
/// After a connection could not be opened, requests wait for the open ones. They open no other one
/// for this long.
const PAUSE: Duration = Duration::from_millis(200);

/// The connections to one server.
///
/// A request takes an idle connection. Without one, it takes the first connection that another
/// request gives back, or that a task has opened meanwhile. Where none can be opened, requests wait
/// for those that are open. Only where none is open, they get the error.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last one in the list was used last.
    idle: Vec<Idle>,
    /// How many connections are in use.
    busy: usize,
    /// How many connections are being opened.
    opening: usize,
    /// When a connection could not be opened, if that was the last attempt.
    failed: Option<Tick>,
    /// Requests without a connection, in the order in which they came. A request whose sender is
    /// dropped looks again.
    waiting: VecDeque<oneshot::Sender<Offer>>,
    closed: bool,
}

struct Idle {
    link: Arc<Link>,
    since: Tick,
}

type Offer = Result<CheckedOutLink, OpenError>;

/// A connection until its request is answered. If the request gives it up before, the connection is
/// closed.
pub(crate) struct CheckedOutLink {
    link: Arc<Link>,
    pool: Arc<Inner>,
}

/// A connection that is being opened.
struct Opening {
    pool: Arc<Inner>,
    /// `None` if the task has ended with its runtime.
    outcome: Option<Result<Arc<Link>, OpenError>>,
}

enum Found {
    Idle(CheckedOutLink),
    Soon(oneshot::Receiver<Offer>),
}

impl Pool {
    pub(crate) fn new(shared: Arc<Shared>, endpoint: Endpoint) -> Self {
        Self(Arc::new(Inner { shared, endpoint, state: Mutex::default() }))
    }

    pub(crate) async fn link(&self) -> Result<CheckedOutLink, OpenError> {
        loop {
            match self.0.find()? {
                Found::Idle(alone) => return Ok(alone),
                Found::Soon(offer) => {
                    if let Ok(offer) = offer.await {
                        return offer;
                    }
                }
            }
        }
    }

    /// Stops using the connections that are idle now.
    pub(crate) fn retire(&self) {
        let retired = mem::take(&mut self.0.lock().idle);
        drop(retired);
    }

    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let idle = mem::take(&mut state.idle);
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        drop(idle);
        refuse(waiting, &OpenError::Closed);
    }
}

impl Inner {
    fn find(self: &Arc<Self>) -> Result<Found, OpenError> {
        let Ok(runtime) = Handle::try_current() else { return Err(OpenError::NoRuntime) };
        let now = Clock::Boot.now();
        let mut state = self.lock();
        if state.closed {
            return Err(OpenError::Closed);
        }
        state.close_unused(now);
        while let Some(Idle { link, .. }) = state.idle.pop() {
            if !link.has_ended() {
                state.busy += 1;
                return Ok(Found::Idle(CheckedOutLink { link, pool: Arc::clone(self) }));
            }
        }
        let (sender, offer) = oneshot::channel();
        state.waiting.retain(|waiting| !waiting.is_closed());
        state.waiting.push_back(sender);
        let opens = state.must_open(now);
        state.opening += usize::from(opens);
        // A runtime that is being shut down drops the task at once, and that drop locks the state.
        drop(state);
        if opens {
            // A task opens the connection, so that the request can take another one that is free
            // sooner. The new one is not wasted then.
            #[expect(
                clippy::disallowed_methods,
                reason = "one for each connection, until it is open"
            )]
            runtime.spawn(Opening { pool: Arc::clone(self), outcome: None }.run());
        }
        Ok(Found::Soon(offer))
    }

    /// Takes back a connection that its request uses no more.
    fn give_back(self: &Arc<Self>, link: &Arc<Link>) {
        let mut state = self.lock();
        state.busy -= 1;
        if link.is_asked() {
            // The request was given up without an answer. The other connections may be dead, too,
            // and each would cost an op_timeout.
            state.idle.clear();
        }
        let good = !link.is_asked() && !link.has_ended() && !state.closed;
        while let Some(waiting) = state.waiting.pop_front() {
            if waiting.is_closed() {
                continue;
            }
            if good {
                state.busy += 1;
                drop(state);
                // A connection that the request does not take after all is given back again.
                let _ = waiting
                    .send(Ok(CheckedOutLink { link: Arc::clone(link), pool: Arc::clone(self) }));
            }
            return;
        }
        if good {
            state.idle.push(Idle { link: Arc::clone(link), since: Clock::Boot.now() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Opens no more connections than there are requests that wait.
    fn must_open(&self, now: Tick) -> bool {
        let pauses = self.busy > 0 && self.failed.is_some_and(|failed| failed.after(PAUSE) > now);
        self.opening < self.waiting.len() && self.busy + self.opening < SIZE && !pauses
    }

    fn close_unused(&mut self, now: Tick) {
        while self.idle.len() + self.busy > 1
            && self.idle.first().is_some_and(|idle| idle.since.after(IDLE) <= now)
        {
            self.idle.remove(0);
        }
    }
}

impl Opening {
    async fn run(mut self) {
        let link = open(Arc::clone(&self.pool.shared), self.pool.endpoint.clone(), false).await;
        self.outcome = Some(link);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.opening -= 1;
        match self.outcome.take() {
            Some(Ok(link)) => {
                state.failed = None;
                state.busy += 1;
                drop(state);
                drop(CheckedOutLink { link, pool: Arc::clone(&self.pool) });
            }
            Some(Err(error)) => {
                state.failed = Some(Clock::Boot.now());
                if state.busy + state.opening == 0 {
                    let waiting = mem::take(&mut state.waiting);
                    drop(state);
                    refuse(waiting, &error);
                }
            }
            None => state.waiting.clear(),
        }
    }
}

fn refuse(waiting: VecDeque<oneshot::Sender<Offer>>, error: &OpenError) {
    for waiting in waiting {
        // The request waits no more, or gets this error.
        let _ = waiting.send(Err(error.clone()));
    }
}

impl Deref for CheckedOutLink {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for CheckedOutLink {
    fn drop(&mut self) {
        self.pool.give_back(&self.link);
    }
}

impl fmt::Debug for CheckedOutLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckedOutLink").field(&self.link).finish()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use lockkit_fixture::RedisServer;
    use tokio::{runtime::Builder, time::timeout};

    use super::*;
    use crate::config::Config;

    const SOON: Duration = Duration::from_secs(60);
    /// A server may not answer for seconds.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn pool(server: &RedisServer) -> Pool {
        let config =
            Config::new("127.0.0.1", server.port()).with_connect_timeout(PATIENCE).unwrap();
        let endpoint = Endpoint::At(config.address_of("127.0.0.1", server.port()));
        Pool::new(Arc::new(Shared::new(config)), endpoint)
    }

    #[tokio::test]
    async fn c10_the_last_connection_is_kept_however_long_it_is_idle() {
        let server = RedisServer::start().unwrap();
        let pool = pool(&server);
        let all =
            [pool.link().await.unwrap(), pool.link().await.unwrap(), pool.link().await.unwrap()];
        let [first, second, third] = all;
        drop([first, second]);
        let now = Clock::Boot.now();
        pool.0.lock().close_unused(now);
        assert_eq!(pool.0.lock().idle.len(), 2);
        drop(third);
        pool.0.lock().close_unused(now.after(IDLE * 2));
        assert_eq!(pool.0.lock().idle.len(), 1);
        let busy = pool.link().await.unwrap();
        drop(pool.link().await.unwrap());
        pool.0.lock().close_unused(Clock::Boot.now().after(IDLE * 2));
        assert_eq!(pool.0.lock().idle.len(), 0, "one is in use");
        drop(busy);
        let state = pool.0.lock();
        assert_eq!((state.idle.len(), state.busy), (1, 0));
    }

    #[test]
    fn c8_a_connection_whose_runtime_ended_while_it_was_opened_is_opened_by_another() {
        let server = RedisServer::start().unwrap();
        let pool = pool(&server);
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        server.pause().unwrap();
        let first = runtime();
        let given_up =
            first.block_on(async { timeout(Duration::from_millis(100), pool.link()).await });
        assert!(given_up.is_err());
        drop(first);
        server.resume().unwrap();
        let second = runtime();
        second
            .block_on(async { timeout(SOON, pool.link()).await })
            .expect("nobody opens one")
            .unwrap();
    }

    /// The runtime drops its tasks as soon as they are spawned.
    #[test]
    fn c8_a_runtime_that_is_shut_down_holds_nobody_up() {
        let server = RedisServer::start().unwrap();
        let pool = pool(&server);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let (done, end) = mpsc::channel();
        let inner = Arc::clone(&pool.0);
        thread::spawn(move || {
            let _inside = handle.enter();
            done.send(inner.find().is_ok()).unwrap();
        });
        assert_eq!(end.recv_timeout(SOON), Ok(true));
    }

    #[tokio::test]
    async fn c6_a_connection_is_lost_neither_by_requests_that_gave_up_nor_by_one_that_was_not_answered()
     {
        let server = RedisServer::start().unwrap();
        let pool = pool(&server);
        let busy = pool.link().await.unwrap();
        server.pause().unwrap();
        for _ in 0..SIZE * 2 {
            assert!(timeout(Duration::from_millis(1), pool.link()).await.is_err());
        }
        let ping = redis::cmd("PING");
        assert!(timeout(Duration::from_millis(1), busy.ask(&ping)).await.is_err());
        drop(busy);
        server.resume().unwrap();
        let mut all = Vec::new();
        for _ in 0..SIZE {
            all.push(timeout(SOON, pool.link()).await.expect("no connection is left").unwrap());
        }
        assert!(
            timeout(Duration::from_millis(100), pool.link()).await.is_err(),
            "more than {SIZE}"
        );
        for link in &all {
            link.ask(&ping).await.unwrap();
        }
    }
}
