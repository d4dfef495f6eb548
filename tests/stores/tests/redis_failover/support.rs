//! Helpers that the cases share.

use std::{
    mem, thread,
    time::{Duration, Instant},
};

use lockkit::{Error, ErrorKind, FencingToken, LockGuard, LockOptions, Locker, Renewal};
use lockkit_fixture::RedisServer;
pub(crate) use lockkit_fixture::claims::Register;
use tokio::{runtime::Runtime, time::sleep};

/// The bound for work that takes milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const PREFIX: &str = "lockkit-failover";

pub(crate) async fn connect(url: &str) -> Locker {
    lockkit::connect(&with_prefix(url)).await.unwrap()
}

fn with_prefix(url: &str) -> String {
    let and = if url.contains('?') { '&' } else { '?' };
    format!("{url}{and}prefix={PREFIX}")
}

/// The locks that exclude all others, among them a semaphore with one permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Mutex,
    Permit,
    Write,
}

pub(crate) const MODES: [Mode; 3] = [Mode::Mutex, Mode::Permit, Mode::Write];

impl Mode {
    pub(crate) async fn lock(
        self,
        locker: &Locker,
        name: &str,
        options: LockOptions,
    ) -> Result<LockGuard, Error> {
        match self {
            Self::Mutex => locker.mutex(name)?.with_options(options)?.lock().await,
            Self::Permit => locker.semaphore(name, 1)?.with_options(options)?.acquire().await,
            Self::Write => locker.rw_lock(name)?.with_options(options)?.write().await,
        }
    }

    pub(crate) async fn try_lock(
        self,
        locker: &Locker,
        name: &str,
        options: LockOptions,
    ) -> Result<Option<LockGuard>, Error> {
        match self {
            Self::Mutex => locker.mutex(name)?.with_options(options)?.try_lock().await,
            Self::Permit => locker.semaphore(name, 1)?.with_options(options)?.try_acquire().await,
            Self::Write => locker.rw_lock(name)?.with_options(options)?.try_write().await,
        }
    }

    pub(crate) async fn inspect(self, locker: &Locker, name: &str) -> lockkit::spi::Inspection {
        let inspection = match self {
            Self::Mutex => locker.mutex(name).unwrap().inspect().await,
            Self::Permit => locker.semaphore(name, 1).unwrap().inspect().await,
            Self::Write => locker.rw_lock(name).unwrap().inspect().await,
        };
        inspection.unwrap()
    }

    /// Returns when this many claims wait.
    pub(crate) async fn until_waiting(self, locker: &Locker, name: &str, count: u64) {
        eventually("the waiter is in the queue", async || {
            self.inspect(locker, name).await.waiters == Some(count)
        })
        .await;
    }
}

pub(crate) fn with_ttl(ttl: Duration) -> LockOptions {
    LockOptions::new().with_ttl(ttl)
}

pub(crate) fn not_renewed(ttl: Duration) -> LockOptions {
    with_ttl(ttl).with_renewal(Renewal::Manual)
}

/// A holder that dies: the lock is in the store, and no keeper renews or releases it.
pub(crate) fn die_holding(url: &str, mode: Mode, name: &str, options: LockOptions) -> FencingToken {
    let url = url.to_owned();
    let name = name.to_owned();
    let life = thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let guard = mode.lock(&connect(&url).await, &name, options).await.unwrap();
            let token = guard.fencing_token();
            mem::forget(guard);
            token
        })
    });
    life.join().unwrap()
}

/// Asks again and again, until the expected state comes, which must be soon.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < SOON * 2, "{what}: not within {:?}", SOON * 2);
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn is_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost
}

/// All keys of the tests' names.
pub(crate) fn keys_of_names(server: &RedisServer) -> Vec<String> {
    let keys = server.ask(["KEYS", &format!("{PREFIX}:*")]).unwrap();
    let keys = keys.elements().iter().map(lockkit_fixture::RedisReply::text);
    let shared = ["keys", "token"].map(|key| format!("{PREFIX}:{key}"));
    keys.filter(|key| !shared.contains(key)).collect()
}

/// The key of a mutex, which exists while the mutex is held.
pub(crate) fn lock_key(name: &str) -> String {
    format!("{PREFIX}:mutex:{{{name}}}")
}

pub(crate) fn has_key(server: &RedisServer, key: &str) -> bool {
    server.ask(["EXISTS", key]).unwrap().text() == "1"
}

/// lockkit's connections to a server: no other client in these tests uses RESP3.
pub(crate) fn connections(server: &RedisServer) -> usize {
    let clients = server.ask(["CLIENT", "LIST"]).unwrap().text();
    clients.lines().filter(|client| client.contains(" resp=3")).count()
}
