//! The rivals on Redis. The floor sends the two scripts that lockkit sends for an uncontended
//! mutex, through the bare client. Where lockkit waits for replicas (`wait_replicas`), the rivals
//! do not.

mod classic;
#[cfg(feature = "rslock")]
mod rslock;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use lockkit::{
    OwnerId,
    redis::{
        BareMutex, BareServers, Config, mutex_scripts,
        redis::{ErrorKind, RedisError, Script, ServerErrorKind, Value, cmd},
    },
    url::StoreUrl,
};

use self::classic::Classic;
use super::{Floor, FloorClient, Rival, held};
use crate::{Error, Result, peer::Peer, report::Side};

/// The same value as lockkit's default.
const LEASE_MS: u64 = 30_000;
const WINDOW_MS: u64 = 3_000;
/// Later than any request: 2^53 - 1.
const NEVER: u64 = 9_007_199_254_740_991;
/// The number of names to remove at once.
const AT_ONCE: usize = 64;

/// All rivals of lockkit on these servers.
pub(super) async fn rivals(text: &str, url: StoreUrl, peer: Option<Peer>) -> Vec<Rival> {
    let mut rivals = match Shared::open(url).await {
        Ok(shared) => vec![
            Rival::new(Side::Classic, Ok(Classic::new(Arc::clone(&shared)))),
            Rival::new(Side::Floor, Ok(RedisFloor::new(shared))),
        ],
        Err(error) => {
            [Side::Classic, Side::Floor].map(|side| Rival::without(side, error.to_string())).into()
        }
    };
    #[cfg(feature = "rslock")]
    let peer = match peer {
        Some(Peer::Rslock) => Some(Rival::new(Side::Rslock, rslock::Rslock::open(text).await)),
        None => None,
    };
    // `Peer::check` refuses a peer that this program was built without.
    #[cfg(not(feature = "rslock"))]
    let peer = {
        let _ = (text, peer);
        None
    };
    rivals.extend(peer);
    rivals
}

/// The connections of the bare client, and all names that its clients have used.
struct Shared {
    servers: BareServers,
    names: Mutex<HashSet<String>>,
}

impl Shared {
    async fn open(url: StoreUrl) -> Result<Arc<Self>> {
        let config = Config::from_url(url).map_err(opening)?;
        let servers = BareServers::connect(config).await.map_err(opening)?;
        Ok(Arc::new(Self { servers, names: Mutex::default() }))
    }

    /// The keys that a mutex of lockkit with this name would use. The end of the run removes them.
    async fn mutex(&self, name: String) -> Result<BareMutex> {
        let mutex = self.servers.mutex(&name).await.map_err(opening)?;
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Ok(mutex)
    }

    /// Removes the keys of all names.
    async fn clean(&self) -> Result<()> {
        let names: Vec<_> =
            self.names.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        let removals = names.into_iter().map(|name| self.remove(name));
        stream::iter(removals).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Removes the keys of a mutex, which remain if its client was stopped.
    async fn remove(&self, name: String) -> Result<()> {
        let mut mutex = self.servers.mutex(&name).await.map_err(opening)?;
        let [lock, _counter, queue, live] = mutex.keys;
        let removed: Result<(), _> =
            cmd("DEL").arg(&[lock, queue, live]).query_async(&mut mutex.connection).await;
        removed.map_err(|error| {
            Error::of("could not remove the keys of the bare client from Redis", error)
        })
    }
}

struct RedisFloor {
    shared: Arc<Shared>,
    scripts: Arc<Scripts>,
}

struct Scripts {
    acquire: Source,
    release: Source,
}

struct Source {
    text: &'static str,
    script: Script,
}

impl Source {
    fn new(text: &'static str) -> Self {
        Self { text, script: Script::new(text) }
    }

    fn hash(&self) -> &str {
        self.script.get_hash()
    }
}

impl RedisFloor {
    fn new(shared: Arc<Shared>) -> Self {
        let texts = mutex_scripts();
        let scripts =
            Scripts { acquire: Source::new(texts.acquire), release: Source::new(texts.release) };
        Self { shared, scripts: scripts.into() }
    }
}

fn opening(error: lockkit::Error) -> Error {
    Error::of("could not connect the bare client to Redis", error)
}

#[async_trait]
impl Floor for RedisFloor {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let client = || -> Box<dyn FloorClient> {
            Box::new(RedisClient {
                shared: Arc::clone(&self.shared),
                scripts: Arc::clone(&self.scripts),
                owner: OwnerId::random().to_string(),
                mutexes: HashMap::new(),
            })
        };
        Ok((0..tasks).map(|_| client()).collect())
    }

    async fn close(&self) -> Result<()> {
        self.shared.clean().await
    }
}

impl fmt::Debug for RedisFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFloor").finish_non_exhaustive()
    }
}

struct RedisClient {
    shared: Arc<Shared>,
    scripts: Arc<Scripts>,
    /// The owner id of this client.
    owner: String,
    mutexes: HashMap<String, BareMutex>,
}

impl RedisClient {
    async fn prepare(&self, name: &str) -> Result<BareMutex> {
        // The floor's name differs from the name of lockkit's own mutex.
        self.shared.mutex(format!("{name}/floor")).await
    }
}

#[async_trait]
impl FloorClient for RedisClient {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        if !self.mutexes.contains_key(name) {
            let mutex = self.prepare(name).await?;
            self.mutexes.insert(name.to_owned(), mutex);
        }
        let Some(mutex) = self.mutexes.get_mut(name) else {
            return Err(Error::new("the bare client has no prepared command for Redis"));
        };
        let failed = |error| Error::of("a script of the bare client failed on Redis", error);
        let args = acquire_args(&self.owner, mutex);
        let answer = self.scripts.acquire.run(mutex, &args).await.map_err(failed)?;
        // No other client wants the name, so the answer is the token alone.
        let Value::Int(token) = answer else {
            return Err(Error::new(format!(
                "Redis refused the lock of the bare client: {answer:?}"
            )));
        };
        let granted = held(hold).await;
        let args = release_args(&format!("{token}:{}", self.owner), mutex);
        self.scripts.release.run(mutex, &args).await.map_err(failed)?;
        Ok(granted)
    }
}

impl Source {
    async fn run(&self, mutex: &mut BareMutex, args: &[String]) -> Result<Value, RedisError> {
        let command = |verb, script: &str| {
            let mut command = cmd(verb);
            command.arg(script).arg(mutex.keys.len()).arg(&mutex.keys).arg(args);
            command
        };
        let by_hash = command("EVALSHA", self.hash());
        match mutex.connection.send_packed_command(&by_hash).await?.extract_error() {
            Err(error) if error.kind() == NO_SCRIPT => {
                let by_text = command("EVAL", self.text);
                mutex.connection.send_packed_command(&by_text).await?.extract_error()
            }
            answer => answer,
        }
    }
}

const NO_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);

/// The arguments that [`MutexScripts`](lockkit::redis::MutexScripts) describes, as lockkit sends
/// them for a claim that need not wait.
fn acquire_args(owner: &str, mutex: &BareMutex) -> [String; 8] {
    let client = owner.get(..16).unwrap_or_default();
    let waiter = format!("{client}:{WINDOW_MS}:{owner}");
    let [lease, never, window] = [LEASE_MS, NEVER, 2 * WINDOW_MS].map(|number| number.to_string());
    let publish = mutex.publish.to_owned();
    let channels = mutex.channels.clone();
    [owner.to_owned(), lease, never, waiter, "1".to_owned(), window, publish, channels]
}

fn release_args(grant: &str, mutex: &BareMutex) -> [String; 5] {
    let publish = mutex.publish.to_owned();
    let channels = mutex.channels.clone();
    [grant.to_owned(), String::new(), "0".to_owned(), publish, channels]
}
